"""Pieces of a message as a model streams them, and how they become one message."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, get_args

from sagents_nb.frozen import clean_text
from sagents_nb.messages import Message, MessageStatus, Text, Thinking, ToolCall, Usage, message_metadata


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the content block `index`."""

    type: ClassVar[str] = "text"
    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More thought of the content block `index`; pieces of `signature` and of `redacted` are joined like the text."""

    type: ClassVar[str] = "thinking"
    text: str = ""
    index: int = 0
    signature: str | None = None
    redacted: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the tool call in block `index`.

    Attributes:
        index: which block.
        arguments: a piece of their JSON text.
        id: of the call; the first one counts.
        name: a piece of the name. One that is equal to the name so far is the name said again, as some providers do
            with every piece.
    """

    type: ClassVar[str] = "tool_call"
    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """Tokens counted so far; replaces the earlier count of the same message."""

    type: ClassVar[str] = "usage"
    usage: Usage


@dataclass(frozen=True, slots=True)
class StopDelta:
    """The message ended.

    Attributes:
        status: how.
        metadata: JSON to keep with the message, for example the provider's own stop reason and request id.
    """

    type: ClassVar[str] = "stop"
    status: MessageStatus = "complete"
    metadata: dict[str, Any] = field(default_factory=dict)


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | UsageDelta | StopDelta


@dataclass(slots=True)
class _Block:
    """A content block in the making; pieces are joined once, at the end, so that cost stays linear."""

    kind: str
    pieces: list[str] = field(default_factory=list)
    id: str | None = None
    name: str = ""
    signature: str = ""
    redacted: str = ""


_STATUSES = get_args(MessageStatus)


class MessageBuilder:
    """Merges the deltas of one assistant message.

    Blocks are matched by their index value, whatever the order or grouping of the pieces. Every delta is checked as a
    whole before anything is changed, so that what came before a wrong one can always be built.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._usage: Usage | None = None
        self.stop: StopDelta | None = None

    def add(self, delta: Delta) -> None:
        """Merge one delta.

        Raises:
            ValueError: it does not fit the block of its index, or is not made as its class says; what was there stays.
        """
        match delta:
            case TextDelta():
                _check(delta, isinstance(delta.text, str))
                if delta.text:
                    self._block(delta.index, "text").pieces.append(delta.text)
            case ThinkingDelta():
                _check(delta, isinstance(delta.text, str) and _are_text_or_none(delta.signature, delta.redacted))
                if delta.text or delta.signature or delta.redacted:
                    block = self._block(delta.index, "thinking")
                    block.pieces.append(delta.text)
                    block.signature += delta.signature or ""
                    block.redacted += delta.redacted or ""
            case ToolCallDelta():
                _check(delta, isinstance(delta.arguments, str) and _are_text_or_none(delta.id, delta.name))
                if delta.arguments or delta.id or delta.name:
                    block = self._block(delta.index, "tool_call")
                    block.pieces.append(delta.arguments)
                    block.id = block.id or delta.id
                    if delta.name and delta.name != block.name:
                        block.name += delta.name
            case UsageDelta():
                if not isinstance(delta.usage, Usage):
                    raise ValueError(f"the model streamed {delta!r}; its usage is a Usage")
                self._usage = delta.usage
            case StopDelta():
                if delta.status not in _STATUSES:
                    raise ValueError(
                        f"the model streamed {delta!r}; its status is one of {', '.join(map(repr, _STATUSES))}"
                    )
                plain = delta.metadata == {}  # as nearly always: there is nothing to check and to freeze
                self.stop = delta if plain else replace(delta, metadata=message_metadata(delta.metadata))
            case _:
                raise ValueError(f"a model streamed {delta!r}, which is not one of the deltas of sagents_nb.models")

    def _block(self, index: int, kind: str) -> _Block:
        block = self._blocks.setdefault(index, _Block(kind))
        if block.kind != kind:
            raise ValueError(f"the model streamed a {kind} delta for block {index}, which is a {block.kind} block")
        return block

    @property
    def is_empty(self) -> bool:
        """Whether nothing displayable has come yet."""
        return not self._blocks

    def build(self, status: MessageStatus | None = None) -> Message:
        """The message so far.

        Args:
            status: how it ended, where the stream itself did not say it.

        Returns:
            An assistant message. A call whose arguments are not a JSON object keeps the model's text in
            `invalid_arguments`; in a message that is not complete, half-received calls are left out.
        """
        stop = self.stop or StopDelta(status or "stream_error")
        final = status or stop.status
        parts: list[Text | Thinking] = []
        calls: list[ToolCall] = []
        for _, block in sorted(self._blocks.items()):
            text = clean_text("".join(block.pieces))
            if block.kind == "text":
                parts.append(Text(text))
            elif block.kind == "thinking":
                parts.append(Thinking(text=text, signature=block.signature or None, redacted=block.redacted or None))
            else:
                call = _tool_call(block, text)
                if final == "complete" or call.invalid_arguments is None:
                    calls.append(call)
        return Message(
            "assistant",
            parts,
            tool_calls=tuple(calls),
            status=final,
            usage=self._usage,
            metadata=stop.metadata,
        )


def _check(delta: TextDelta | ThinkingDelta | ToolCallDelta, is_text: bool) -> None:
    if type(delta.index) is not int or not is_text:
        raise ValueError(f"the model streamed {delta!r}; its index is an int, all else in it is text")


def _are_text_or_none(one: object, other: object) -> bool:
    return (one is None or isinstance(one, str)) and (other is None or isinstance(other, str))


def _tool_call(block: _Block, text: str) -> ToolCall:
    identity = {"id": block.id} if block.id else {}
    try:
        arguments = json.loads(text) if text.strip() else {}
        if isinstance(arguments, dict):
            return ToolCall(block.name, arguments, **identity)
    except (ValueError, RecursionError):
        # No JSON; JSON that Python reads but JSON does not have, such as NaN; brackets a thousand deep.
        pass
    return ToolCall(block.name, {}, invalid_arguments=text, **identity)
