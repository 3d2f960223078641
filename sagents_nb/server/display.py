"""What people see of a conversation: one row for each piece of it."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal, TypeAlias

from pydantic import Field

from sagents_nb.frozen import FrozenDict, JsonObject
from sagents_nb.ids import new_id
from sagents_nb.messages import File, Image, Message, Role, Text, Thinking
from sagents_nb.value import Value

ContentType: TypeAlias = Literal[
    "text",
    "thinking",
    "image",
    "file_reference",
    "structured_data",
    "notification",
    "error",
    "tool_call",
    "tool_result",
    "todo_snapshot",
]
DisplayStatus: TypeAlias = Literal["pending", "executing", "completed", "failed", "interrupted", "cancelled"]


def utc_now() -> dt.datetime:
    """Now, in UTC and aware of it."""
    return dt.datetime.now(dt.UTC)


class DisplayMessage(Value):
    """One row of the transcript; append-only apart from `status`, `metadata` and `updated_at`.

    Attributes:
        id: UUIDv7.
        conversation_id: whose row it is.
        sequence: place in the conversation, dense from 1.
        message_type: role of the message it comes from.
        content_type: which keys `content` has.
        content: for ``text``, ``thinking``, ``notification``: ``text`` (and ``stop_reason`` when the message
            stopped early); ``error``: ``text``, ``error_type``; ``tool_call``: ``call_id``, ``name``,
            ``arguments``, ``display_text``; ``tool_result``: ``tool_call_id``, ``name``, ``content`` (text),
            ``is_error``, ``is_interrupt``; ``image``: ``url`` or ``data`` and ``mime_type``;
            ``file_reference``: ``path``, ``name``.
        status: of a tool call pending, executing, then completed, failed, interrupted or cancelled; of all
            others completed.
        tool_call_id: of tool calls and results.
        metadata: JSON; of a tool call ``duration`` (seconds) and ``output`` (what it printed).
        inserted_at: UTC.
        updated_at: UTC, when it was changed.
    """

    id: str = Field(default_factory=new_id)
    conversation_id: str
    sequence: int = Field(ge=0)
    message_type: Role
    content_type: ContentType
    content: JsonObject
    status: DisplayStatus = "completed"
    tool_call_id: str | None = None
    metadata: JsonObject = Field(default_factory=FrozenDict)
    inserted_at: dt.datetime = Field(default_factory=utc_now)
    updated_at: dt.datetime | None = None

    @property
    def text(self) -> str:
        """What a search over the transcript looks at."""
        content = self.content
        match self.content_type:
            case "text" | "thinking" | "notification" | "error":
                return str(content.get("text", ""))
            case "tool_call":
                return f"{content.get('name', '')} {content.get('arguments', '')}"
            case "tool_result":
                return str(content.get("content", ""))
            case "file_reference":
                return str(content.get("name", ""))
            case _:
                return str(content.get("caption", content.get("alt_text", "")))


def rows_of(message: Message, *, conversation_id: str, sequence: int) -> list[DisplayMessage]:
    """The rows that a message becomes.

    Args:
        message: what was said.
        conversation_id: whose rows they are.
        sequence: place of the first row.

    Returns:
        One row per content part, then one per tool call, then one per tool result. The last one carries
        ``stop_reason`` when the message stopped early.
    """
    items: list[tuple[ContentType, dict[str, Any], str | None]] = []
    for part in message.content:
        match part:
            case Text():
                items.append(("text", {"text": part.text}, None))
            case Thinking():
                if part.text:
                    items.append(("thinking", {"text": part.text}, None))
            case Image():
                source = {"url": part.url} if part.url else {"data": part.data, "mime_type": part.media_type}
                items.append(("image", source, None))
            case File():
                items.append(("file_reference", {"path": part.url or "", "name": part.name}, None))
    content: dict[str, Any]
    for call in message.tool_calls:
        content = {"call_id": call.id, "name": call.name, "arguments": call.arguments, "display_text": None}
        items.append(("tool_call", content, call.id))
    for result in message.tool_results:
        content = {
            "tool_call_id": result.tool_call_id,
            "name": result.name,
            "content": result.text,
            "is_error": result.is_error,
            "is_interrupt": result.is_interrupt,
        }
        items.append(("tool_result", content, result.tool_call_id))
    if items and message.status != "complete":
        items[-1][1]["stop_reason"] = message.status
    return [
        DisplayMessage(
            conversation_id=conversation_id,
            sequence=sequence + offset,
            message_type=message.role,
            content_type=kind,
            content=content,
            status="pending" if kind == "tool_call" else "completed",
            tool_call_id=call_id,
        )
        for offset, (kind, content, call_id) in enumerate(items)
    ]
