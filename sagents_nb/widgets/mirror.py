"""A session as a view knows it: the last snapshot, and every event since."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from sagents_nb import events as ev
from sagents_nb.deltas import TextDelta, ThinkingDelta
from sagents_nb.server.display import DisplayMessage
from sagents_nb.server.snapshot import SessionSnapshot
from sagents_nb.state import State
from sagents_nb.views.activity import Activity
from sagents_nb.views.chat import ChatItem

KEPT_EVENTS = 2_000
"""Events a view remembers for its trace."""

_TOUCH_STATE = (ev.HookEnded, ev.StateUpdated, ev.MessageAdded, ev.HistoryRepaired, ev.RunStarted, ev.RunEnded)


@dataclass(slots=True)
class Dirty:
    """What has changed since it was last sent.

    The upper three go out at once (30 times a second), the rest 5 times a second.

    Attributes:
        text: streamed text by the key of its element.
        lights: cells that lit up (1) and went dark (0), in order.
        status: whether the status is another one.
        stream_over: the streamed text became rows or is void; until the rows are out, new text waits.
        items: keys of transcript items.
        cells: ids of sandwich cells.
        lines: events for the trace.
        chat: whether queue, notice or both changed.
        state: whether the State may be another one.
        cycle: whether a new turn began.
    """

    text: dict[str, list[str]] = field(default_factory=dict)
    lights: list[tuple[str, int]] = field(default_factory=list)
    status: bool = False
    stream_over: bool = False
    items: dict[str, None] = field(default_factory=dict)
    cells: dict[str, None] = field(default_factory=dict)
    lines: list[ev.Event] = field(default_factory=list)
    chat: bool = False
    state: bool = False
    cycle: bool = False

    @property
    def fast(self) -> bool:
        """Whether something should go out at once."""
        return self.status or bool(self.lights) or (bool(self.text) and not self.stream_over)

    @property
    def slow(self) -> bool:
        """Whether something may wait a fifth of a second."""
        return bool(self.stream_over or self.items or self.cells or self.lines or self.chat or self.state or self.cycle)


class Mirror:
    """Everything that a view draws, kept up to date by `apply`; one thread only.

    Args:
        snapshot: where it begins.
    """

    def __init__(self, snapshot: SessionSnapshot) -> None:
        self.seq = snapshot.seq
        self.agent_id = snapshot.agent_id
        self.status: str = snapshot.status
        self.error = snapshot.error
        self.state: State = snapshot.state
        self.queue: tuple[str, ...] = snapshot.queue
        self.ended = False
        self.streaming_text: list[str] = [snapshot.streaming_text] if snapshot.streaming_text else []
        self.streaming_thinking: list[str] = [snapshot.streaming_thinking] if snapshot.streaming_thinking else []
        self.events: deque[ev.Event] = deque(snapshot.events, maxlen=KEPT_EVENTS)
        self.start = snapshot.events[0].at if snapshot.events else 0.0
        self.activity = Activity.of(snapshot.events, snapshot.agent_id)
        self.items: dict[str, ChatItem] = {}
        self._calls: dict[str, str] = {}
        self._item_of_row: dict[str, str] = {}
        self._attempt_over = False
        for row in snapshot.display_messages:
            self._put(row)

    def apply(self, event: ev.Event, dirty: Dirty) -> None:
        """Take in one event; those that are in it already do nothing.

        Args:
            event: of the session.
            dirty: gets what must be sent.
        """
        if event.seq and event.seq <= self.seq:
            return
        self.seq = max(self.seq, event.seq)
        own = not event.agent_id or event.agent_id == self.agent_id
        match event:
            case ev.ModelDelta():
                if own:
                    self._stream(event, dirty)
                return
            case ev.ModelStarted() if own:
                # A new attempt: what an earlier one streamed is void.
                self._clear_stream(dirty)
            case ev.ModelEnded() if own:
                self._attempt_over = True
            case ev.DisplayChanged(rows=rows):
                for row in rows:
                    key = self._put(row)
                    if key is not None:
                        dirty.items[key] = None
                if self._attempt_over and any(row.message_type == "assistant" for row in rows):
                    self._clear_stream(dirty)
            case ev.StatusChanged():
                self.status = event.status
                self.error = event.error if event.status == "error" else None
                dirty.status = dirty.chat = dirty.state = True
                if event.status != "running":
                    self._clear_stream(dirty)
            case ev.QueueChanged():
                self.queue = event.texts
                dirty.chat = True
            case ev.SessionStopped():
                self.ended = True
                dirty.status = dirty.chat = True
            case ev.CycleStarted() if own:
                dirty.cycle = True
        light = self.activity.add(event)
        if light is not None:
            dirty.lights.append(light)
            dirty.cells[light[0]] = None
        elif isinstance(event, ev.HookSlow):
            dirty.cells[f"{event.hook}:{event.middleware}"] = None
        if isinstance(event, _TOUCH_STATE):
            dirty.state = True
        if not isinstance(event, (ev.DisplayChanged, ev.QueueChanged)):
            if not self.events:
                self.start = event.at
            self.events.append(event)
            dirty.lines.append(event)

    def _stream(self, event: ev.ModelDelta, dirty: Dirty) -> None:
        delta = event.delta
        if isinstance(delta, TextDelta) and delta.text:
            self.streaming_text.append(delta.text)
            dirty.text.setdefault("stream-text", []).append(delta.text)
        elif isinstance(delta, ThinkingDelta) and delta.text:
            self.streaming_thinking.append(delta.text)
            dirty.text.setdefault("stream-thinking", []).append(delta.text)

    def _clear_stream(self, dirty: Dirty) -> None:
        self._attempt_over = False
        if self.streaming_text or self.streaming_thinking:
            self.streaming_text, self.streaming_thinking = [], []
            dirty.text.clear()
            dirty.stream_over = True

    def _put(self, row: DisplayMessage) -> str | None:
        """Add or change a row; the key of the item it belongs to, None for one that is not shown."""
        call_id = row.tool_call_id
        if row.content_type == "tool_result" and call_id in self._calls:
            key = self._calls[call_id]
            self.items[key] = ChatItem(key, self.items[key].row, row)
            return key
        if row.content_type in ("text", "thinking") and not row.text.strip() and not row.content.get("stop_reason"):
            return None
        key = f"row:{row.id}"
        known = self.items.get(key)
        self.items[key] = ChatItem(key, row, known.result if known else None)
        if row.content_type == "tool_call" and call_id:
            self._calls[call_id] = key
        return key
