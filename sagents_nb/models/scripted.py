"""A model that says what it is told to say: for tutorials and tests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from sagents_nb.deltas import Delta, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from sagents_nb.errors import ConfigurationError, ModelError
from sagents_nb.messages import Message, Text, Thinking, ToolCall
from sagents_nb.models.base import ChatModel, ModelRequest

Turn: TypeAlias = "str | ToolCall | Message | BaseException | Sequence[str | ToolCall] | Callable[[ModelRequest], Any]"


class ScriptedModel(ChatModel):
    """A deterministic model: one scripted turn per request.

    Args:
        turns: what it answers, request by request: a str; a `ToolCall`; a list of these (one message with
            parallel calls); a `Message`; an exception (raised as the provider's error); a function
            ``(request) -> turn``.
        repeat: begin again after the last turn instead of failing.
        delay: seconds between two chunks.
        chunk_size: characters in a chunk.
        name: what it is called.

    Attributes:
        requests: every `ModelRequest` it was asked, in order.

    Raises:
        ConfigurationError: a turn is of none of these kinds.
    """

    provider = "scripted"

    def __init__(
        self,
        turns: Iterable[Turn],
        *,
        repeat: bool = False,
        delay: float = 0.0,
        chunk_size: int = 8,
        name: str = "scripted",
    ) -> None:
        if isinstance(turns, (str, ToolCall, Message)):
            raise ConfigurationError(f"ScriptedModel takes a list of turns: ScriptedModel([{turns!r}])")
        self.turns: tuple[Any, ...] = tuple(turns)
        for number, turn in enumerate(self.turns, 1):
            if not callable(turn):
                _check(turn, f"turn {number}")
        if chunk_size < 1 or delay < 0:
            raise ConfigurationError(
                f"ScriptedModel needs chunk_size of at least 1 and a delay of at least 0, got {chunk_size}, {delay}"
            )
        self.repeat = repeat
        self.delay = delay
        self.chunk_size = chunk_size
        self.name = name
        self.requests: list[ModelRequest] = []
        self._next = 0
        self._lock = threading.Lock()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """See `ChatModel.stream`."""
        turn = self._take(request)
        if callable(turn) and not isinstance(turn, BaseException):
            turn = turn(request)
            _check(turn, "what the scripted function returned")
        if isinstance(turn, BaseException):
            raise turn
        message = _as_message(turn)
        for count, delta in enumerate(self._deltas(message, request), 1):
            if self.delay:
                await asyncio.sleep(self.delay)
            elif count % 50 == 0:
                await asyncio.sleep(0)  # a long text must not keep the loop for itself
            yield delta

    def _take(self, request: ModelRequest) -> Any:
        with self._lock:
            self.requests.append(request)
            if self._next >= len(self.turns):
                if self.repeat and self.turns:
                    self._next = 0
                else:
                    raise ModelError(
                        f"the ScriptedModel has no turn {self._next + 1}: all {len(self.turns)} were used. Re-run "
                        "the cell that makes the model, add turns, or make it with repeat=True",
                        type="script_exhausted",
                    )
            turn = self.turns[self._next]
            self._next += 1
            return turn

    def _deltas(self, message: Message, request: ModelRequest) -> Iterable[Delta]:
        index = 0
        for part in message.content:
            if isinstance(part, Text):
                for piece in self._chunks(part.text):
                    yield TextDelta(piece, index)
            elif isinstance(part, Thinking):
                for piece in self._chunks(part.text):
                    yield ThinkingDelta(piece, index)
                if part.signature or part.redacted:
                    yield ThinkingDelta("", index, part.signature, part.redacted)
            index += 1
        for number, call in enumerate(message.tool_calls):
            # Ids made from the place in the conversation are the same in every run and unique within one.
            given = call.id if "id" in call.model_fields_set else f"call_{len(request.messages)}_{number + 1}"
            yield ToolCallDelta(index, id=given, name=call.name)
            arguments = call.invalid_arguments
            if arguments is None:
                arguments = json.dumps(call.arguments, ensure_ascii=False)
            for piece in self._chunks(arguments):
                yield ToolCallDelta(index, piece)
            index += 1
        if message.usage is not None:
            yield UsageDelta(message.usage)
        yield StopDelta(message.status, dict(message.metadata))

    def _chunks(self, text: str) -> Iterable[str]:
        return (text[start : start + self.chunk_size] for start in range(0, len(text), self.chunk_size))

    def __repr__(self) -> str:
        return f"ScriptedModel({len(self.turns)} turns, {self._next} used)"


def _check(turn: Any, what: str) -> None:
    if isinstance(turn, (str, ToolCall, Message, BaseException)):
        return
    if isinstance(turn, (list, tuple)) and all(isinstance(item, (str, ToolCall)) for item in turn):
        return
    raise ConfigurationError(
        f"{what} of the ScriptedModel is {turn!r}, a {type(turn).__name__}; it is a str, a ToolCall, a list of "
        "these, a Message, an exception or a function of the request"
    )


def _as_message(turn: Any) -> Message:
    if isinstance(turn, Message):
        return turn
    items = [turn] if isinstance(turn, (str, ToolCall)) else list(turn)
    return Message(
        "assistant",
        [Text(item) for item in items if isinstance(item, str) and item],
        tool_calls=tuple(item for item in items if isinstance(item, ToolCall)),
    )
