"""The transcript that people see, as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sagents_nb.server.display import DisplayMessage
from sagents_nb.views._render import alone, call, render

STATUS_WORDS = {
    "idle": "Ready",
    "running": "Running",
    "interrupted": "Waiting for you",
    "paused": "Paused",
    "cancelled": "Stopped",
    "error": "Error",
    "completed": "Completed",
}
"""What people read for a status."""

STOP_WORDS = {
    "length": "Cut off at the length limit",
    "cancelled": "Stopped by you",
    "refused": "Refused by the model",
    "content_filtered": "Filtered by the provider",
    "stream_error": "The connection was lost",
}
"""What people read for the reason why a message stopped early."""

SHOWN_ITEMS = 200
"""Items of a transcript that a view draws; older ones are counted, and asked for in a live view."""

_RASTER = ("image/png", "image/jpeg", "image/gif", "image/webp")  # SVG can carry script
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")


@dataclass(frozen=True, slots=True)
class ChatItem:
    """One thing in the transcript: a row, and for a tool call the row of its result.

    Attributes:
        key: names its element; stays the same when the result arrives.
        row: the row.
        result: the result of a tool call, as soon as there is one.
    """

    key: str
    row: DisplayMessage
    result: DisplayMessage | None = None

    @property
    def image(self) -> str:
        """Source of an image that is in the row itself; empty for a remote one."""
        content = self.row.content
        data, kind = content.get("data"), content.get("mime_type")
        if isinstance(data, str) and kind in _RASTER and _BASE64.fullmatch(data):
            return f"data:{kind};base64,{data}"
        return ""

    @property
    def link(self) -> str:
        """Address of a remote image or file, if a browser may go there."""
        address = str(self.row.content.get("url") or self.row.content.get("path") or "")
        return address if address.startswith(("http://", "https://")) else ""

    @property
    def status(self) -> str:
        """How a tool call stands; a failed result counts as a failed call."""
        if self.result is not None and self.row.status in ("pending", "executing"):
            if self.result.content.get("is_interrupt"):
                return "interrupted"
            return "failed" if self.result.content.get("is_error") else "completed"
        if self.row.metadata.get("hitl_decision") == "rejected":
            return "declined"
        return self.row.status


def chat_items(rows: Iterable[DisplayMessage]) -> list[ChatItem]:
    """Rows as they are shown: each result with the call it answers, empty texts left out.

    A result that no call before it claims stands alone.
    """
    items: list[ChatItem] = []
    calls: dict[str, int] = {}
    for row in rows:
        call_id = row.tool_call_id
        if row.content_type == "tool_call" and call_id:
            calls[call_id] = len(items)
        elif row.content_type == "tool_result" and call_id in calls:
            place = calls[call_id]
            items[place] = ChatItem(items[place].key, items[place].row, row)
            continue
        elif row.content_type in ("text", "thinking") and not row.text.strip() and not row.content.get("stop_reason"):
            continue
        items.append(ChatItem(f"row:{row.id}", row))
    return items


def item_html(item: ChatItem) -> Markup:
    """One item of the transcript."""
    return call("_chat", "item", item, STOP_WORDS)


def stream_html(text: str = "", thinking: str = "") -> Markup:
    """The answer in the making: plain text, to whose nodes a live view appends."""
    return call("_chat", "stream", text, thinking)


def status_html(status: str) -> Markup:
    """The status as a mark and a word."""
    return call("_chat", "status_chip", status, STATUS_WORDS.get(status, status))


def queue_html(queue: Sequence[str]) -> Markup:
    """Messages that wait for the present run to end."""
    return call("_chat", "waiting", list(queue))


def notice_html(error: str | None, pending: str = "") -> Markup:
    """What a person must know: an error, or what the run waits for."""
    return call("_chat", "notice", error, pending)


def earlier_html(hidden: int, *, live: bool) -> Markup:
    """How many older items are not drawn."""
    return call("_chat", "earlier", hidden, live)


def chat(
    rows: Sequence[DisplayMessage],
    *,
    status: str = "idle",
    streaming_text: str = "",
    streaming_thinking: str = "",
    queue: Sequence[str] = (),
    error: str | None = None,
    pending: str = "",
    live: bool = False,
    composer: bool = False,
    title: str = "",
    limit: int = SHOWN_ITEMS,
) -> Markup:
    """The transcript as a fragment: no style, not wrapped."""
    items = chat_items(rows)
    return render(
        "chat",
        items=items[-limit:],
        hidden=max(0, len(items) - limit),
        status=status,
        status_word=STATUS_WORDS.get(status, status),
        stop_words=STOP_WORDS,
        streaming_text=streaming_text,
        streaming_thinking=streaming_thinking,
        queue=list(queue),
        error=error,
        pending=pending,
        live=live,
        composer=composer,
        title=title,
    )


def chat_html(
    rows: Sequence[DisplayMessage],
    *,
    status: str = "idle",
    streaming_text: str = "",
    streaming_thinking: str = "",
    queue: Sequence[str] = (),
    error: str | None = None,
) -> str:
    """A transcript that stands alone.

    Args:
        rows: of the conversation, in order.
        status: of the session.
        streaming_text: the answer in the making.
        streaming_thinking: the thought in the making.
        queue: messages that wait.
        error: what went wrong last, in words.
    """
    fragment = chat(
        rows,
        status=status,
        streaming_text=streaming_text,
        streaming_thinking=streaming_thinking,
        queue=queue,
        error=error,
    )
    return alone(fragment, "chat")
