"""The one seam to language models."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from sagents_nb.deltas import Delta
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
        options: further settings, passed on to the provider as they are.
    """

    system: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    model: ChatModel | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def replace(self, **changes: Any) -> ModelRequest:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


class ChatModel(abc.ABC):
    """A language model.

    A subclass has a `name` and an async generator `stream`; that is all the toolkit ever uses. It may be used
    from several event loops and by several agents at once.
    """

    name: str = "model"
    provider: str = "custom"
    """Whose model it is, for tracing: a word of OpenTelemetry's, such as ``"anthropic"``, or one of its own."""

    @abc.abstractmethod
    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Ask the model.

        Args:
            request: what to ask. Immutable.

        Yields:
            The pieces of one assistant message, a `StopDelta` last.

        Raises:
            ModelError: the model or the way to it failed, before or in the middle of the answer.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
