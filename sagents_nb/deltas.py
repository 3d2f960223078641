"""Pieces of a message as a model streams them, and how they become one message."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from sagents_nb.frozen import clean_text
from sagents_nb.messages import Message, MessageStatus, Text, Thinking, ToolCall, Usage


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the content block `index`."""

    type: ClassVar[str] = "text"
    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More thought of the content block `index`; `signature` and `redacted` come whole, once."""

    type: ClassVar[str] = "thinking"
    text: str = ""
    index: int = 0
    signature: str | None = None
    redacted: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the tool call in block `index`: `id` and `name` first, then pieces of the arguments' JSON text."""

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
    signature: str | None = None
    redacted: str | None = None


class MessageBuilder:
    """Merges the deltas of one assistant message.

    Blocks are matched by their index value, whatever the order or grouping of the pieces.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._usage: Usage | None = None
        self.stop: StopDelta | None = None

    def add(self, delta: Delta) -> None:
        """Merge one delta.

        Raises:
            ValueError: it does not fit the block of its index; what was there stays.
        """
        match delta:
            case TextDelta():
                self._block(delta.index, "text").pieces.append(delta.text)
            case ThinkingDelta():
                block = self._block(delta.index, "thinking")
                block.pieces.append(delta.text)
                block.signature = delta.signature or block.signature
                block.redacted = delta.redacted or block.redacted
            case ToolCallDelta():
                block = self._block(delta.index, "tool_call")
                block.pieces.append(delta.arguments)
                block.id = delta.id or block.id
                block.name = delta.name or block.name
            case UsageDelta():
                self._usage = delta.usage
            case StopDelta():
                self.stop = delta
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
        return not any(block.pieces or block.id or block.redacted for block in self._blocks.values())

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
                if text:
                    parts.append(Text(text))
            elif block.kind == "thinking":
                if text or block.signature or block.redacted:  # a sealed thought may come without its text
                    parts.append(Thinking(text=text, signature=block.signature, redacted=block.redacted))
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
