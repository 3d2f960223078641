"""The one seam to language models."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from sagents_nb.deltas import Delta
from sagents_nb.errors import ModelError
from sagents_nb.messages import Message
from sagents_nb.tools import Tool


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked.

    Attributes:
        system: the system prompt, empty for none.
        messages: the conversation; every tool call in it has exactly one result.
        tools: what the model may call.
        tool_choice: ``"auto"``, ``"any"``, ``"none"`` or the name of the tool it must call.
        model: who is asked; a wrap hook may replace it.
        options: further settings of the provider, by its own names. They win over those the model was made with; None
            takes one of those away.
    """

    system: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    model: ChatModel | None = None
    # Not shown: the headers among them may hold a key.
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    def replace(self, **changes: Any) -> ModelRequest:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


class ChatModel(abc.ABC):
    """A language model.

    A subclass has a `name` and an async generator `stream`; that is all it needs. It may be used from several event
    loops and by several agents at once. `sagents_nb.models.conformance.check_model` tells whether it keeps its side.
    """

    name: str = "model"
    """What events and views call it."""
    provider: str = "custom"
    """Whose model it is, for tracing: a word of OpenTelemetry's, such as ``"anthropic"``, or one of its own."""

    @abc.abstractmethod
    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Ask the model.

        Args:
            request: what to ask. Not to be changed.

        Yields:
            The pieces of one assistant message, a `StopDelta` last.

        Raises:
            ModelError: the model or the way to it failed, before or in the middle of the answer.
        """

    def retry_on_fallback(self, error: ModelError) -> bool:
        """Whether the next model of ``Agent(fallback_models=…)`` may succeed where this one failed.

        Args:
            error: how this one failed, after its own tries.

        Returns:
            By default what `ModelError.retryable` says: a mistake in the request is one for every model.
        """
        return error.retryable

    def secrets(self) -> tuple[SecretStr, ...]:
        """Keys and secret headers it was given: texts that must never be written down or shown."""
        return ()

    async def aclose(self) -> None:  # noqa: B027 - most models hold nothing
        """Let go of what belongs to the running event loop, such as connections. The model stays usable."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
