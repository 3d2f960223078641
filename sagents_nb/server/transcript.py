"""What people see, kept up to date with what happens: a fold of events into rows."""

from __future__ import annotations

from typing import Any

from sagents_nb.deltas import TextDelta, ThinkingDelta
from sagents_nb.events import (
    Event,
    MessageAdded,
    ModelDelta,
    ModelEnded,
    ModelStarted,
    RunEnded,
    ToolEnded,
    ToolStarted,
)
from sagents_nb.messages import Message, ToolResult
from sagents_nb.server.display import ContentType, DisplayMessage, DisplayStatus, rows_of, utc_now

_OPEN = ("pending", "executing")


class Transcript:
    """The rows of one conversation, and the answer that is being streamed.

    Args:
        conversation_id: whose rows they are.
        rows: those that exist already, oldest first.
    """

    def __init__(self, conversation_id: str, rows: tuple[DisplayMessage, ...] = ()) -> None:
        self.conversation_id = conversation_id
        self._rows: dict[str, DisplayMessage] = {row.id: row for row in rows}
        # Calls that are still open, by id. Ids may come again in a long conversation; the open one is meant.
        self._calls: dict[str, str] = {}
        for row in rows:
            self._note_call(row)
        self._last = rows[-1].sequence if rows else 0
        self._text: list[str] = []
        self._thinking: list[str] = []

    @property
    def rows(self) -> tuple[DisplayMessage, ...]:
        """All rows, oldest first."""
        return tuple(self._rows.values())

    @property
    def streaming_text(self) -> str:
        """The answer as far as it came; empty between two answers."""
        return "".join(self._text)

    @property
    def streaming_thinking(self) -> str:
        """The thought as far as it came."""
        return "".join(self._thinking)

    def add_message(self, message: Message) -> list[DisplayMessage]:
        """Rows for a message.

        Returns:
            The new rows.
        """
        return self._add(rows_of(message, conversation_id=self.conversation_id, sequence=self._last + 1))

    def apply(self, event: Event) -> list[DisplayMessage]:
        """Follow an event of a run.

        Returns:
            Rows that are new or changed.
        """
        match event:
            case ModelDelta(delta=TextDelta() as delta):
                self._text.append(delta.text)
            case ModelDelta(delta=ThinkingDelta() as delta):
                self._thinking.append(delta.text)
            case ModelStarted() | ModelEnded():
                self._text.clear()
                self._thinking.clear()
            case MessageAdded():
                return self.add_message(event.message)
            case ToolStarted():
                return self._update_call(event.call.id, "executing", {})
            case ToolEnded():
                notes: dict[str, Any] = {"duration": round(event.duration, 6)}
                if event.output:
                    notes["output"] = event.output
                status = "cancelled" if event.cancelled else _status_of(event.result)
                return self._update_call(event.call.id, status, notes)
            case RunEnded(status="completed"):
                return self.close_open_calls()  # of an answer that was cut off: they never run
            case RunEnded(status="error"):
                error = {"text": event.error or "", "error_type": event.error_type}
                return [*self.close_open_calls(), *self._note("error", error)]
            case RunEnded(status="cancelled"):
                last = next(reversed(self._rows.values()), None)
                if last is not None and last.content.get("stop_reason") == "cancelled":
                    return self.close_open_calls()
                stopped = {"text": "Stopped.", "stop_reason": "cancelled"}
                return [*self.close_open_calls(), *self._note("notification", stopped)]
        return []

    def close_open_calls(self) -> list[DisplayMessage]:
        """Mark tool calls that never came to an end, after a stop or a crash.

        Returns:
            The rows that changed.
        """
        changed: list[DisplayMessage] = []
        for call_id in tuple(self._calls):
            changed += self._update_call(call_id, "cancelled", {})
        return changed

    def _note(self, kind: ContentType, content: dict[str, Any]) -> list[DisplayMessage]:
        row = DisplayMessage(
            conversation_id=self.conversation_id,
            sequence=self._last + 1,
            message_type="system",
            content_type=kind,
            content=content,
        )
        return self._add([row])

    def _add(self, rows: list[DisplayMessage]) -> list[DisplayMessage]:
        for row in rows:
            self._rows[row.id] = row
            self._last = row.sequence
            self._note_call(row)
        return rows

    def _note_call(self, row: DisplayMessage) -> None:
        if row.content_type == "tool_call" and row.tool_call_id and row.status in _OPEN:
            self._calls[row.tool_call_id] = row.id

    def _update_call(self, call_id: str, status: DisplayStatus, notes: dict[str, Any]) -> list[DisplayMessage]:
        row = self._rows.get(self._calls.get(call_id, ""))
        if row is None:
            return []  # no such row, or one that came to its end already
        if status not in _OPEN:
            del self._calls[call_id]
        changed = row.replace(status=status, metadata={**row.metadata, **notes}, updated_at=utc_now())
        self._rows[row.id] = changed
        return [changed]


def _status_of(result: ToolResult) -> DisplayStatus:
    if result.is_interrupt:
        return "interrupted"
    return "failed" if result.is_error else "completed"
