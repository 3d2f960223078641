"""What happened, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sagents_nb import events as ev
from sagents_nb.changes import Change
from sagents_nb.interrupts import PAUSE
from sagents_nb.views._render import alone, call, render
from sagents_nb.views.format import clip_line, duration, plural, preview

SHOWN_EVENTS = 400
"""Latest lines that are drawn."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the trace.

    Attributes:
        key: names its element.
        at: seconds since the epoch.
        kind: class of the event, for its colour: loop, hook, model, tool, state, session, error.
        what: what happened.
        who: where: the middleware, model or tool.
        seconds: how long it took.
        detail: more, on one line.
        changes: what it changed in the State.
        bad: whether something failed.
    """

    key: str
    at: float
    kind: str
    what: str
    who: str = ""
    seconds: float | None = None
    detail: str = ""
    changes: tuple[Change, ...] = ()
    bad: bool = False


def line_of(event: ev.Event) -> Line | None:
    """The line of an event; None for those that only begin something whose end tells it all."""
    key, at = f"ev:{event.seq}", event.at
    match event:
        case ev.RunStarted():
            return Line(key, at, "loop", "run resumed" if event.resumed else "run started")
        case ev.RunEnded():
            bad = event.status == "error"
            return Line(
                key,
                at,
                "error" if bad else "loop",
                f"run {event.status}",
                event.error_type or "",
                event.duration,
                clip_line(event.error or "", 300),
                bad=bad,
            )
        case ev.CycleStarted():
            return Line(key, at, "loop", f"turn {event.cycle}")
        case ev.HookEnded():
            return Line(
                key,
                at,
                "hook",
                event.hook,
                event.middleware,
                event.duration,
                clip_line(event.error or "", 300),
                event.changes,
                bad=bool(event.error),
            )
        case ev.HookSlow():
            return Line(
                key,
                at,
                "error",
                "slow hook",
                f"{event.middleware}.{event.hook}",
                event.duration,
                event.advice,
                bad=True,
            )
        case ev.HistoryRepaired():
            return Line(key, at, "loop", "history repaired", detail="; ".join(event.repairs))
        case ev.ModelStarted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return Line(
                key,
                at,
                "model",
                "model asked",
                event.model,
                detail=f"{plural(event.messages, 'message')}, {plural(len(event.tools), 'tool')}{again}",
            )
        case ev.ModelFailed():
            then = "" if event.retry_in is None else f"; again in {duration(event.retry_in)}"
            return Line(
                key, at, "error", "model failed", event.model, detail=clip_line(event.error, 300) + then, bad=True
            )
        case ev.ModelEnded():
            return Line(key, at, "model", "model answered", event.model, event.duration, _said(event))
        case ev.ToolEnded():
            bad = event.result.is_error
            text = f"{preview(event.call.arguments, 80)} → {clip_line(event.result.text, 120)}"
            return Line(
                key, at, "tool", "tool failed" if bad else "tool", event.call.name, event.duration, text, bad=bad
            )
        case ev.ToolAbandoned():
            return Line(
                key,
                at,
                "error",
                "tool still runs",
                event.call.name,
                detail="its call is over; the result will be dropped",
                bad=True,
            )
        case ev.StateUpdated():
            lost = f"two calls wrote {', '.join(event.conflicts)}; the later won" if event.conflicts else ""
            return Line(key, at, "state", "tools changed the state", detail=lost, changes=event.changes)
        case ev.RunInterrupted():
            waits = "paused" if event.kind == PAUSE else "waits for a person"
            return Line(key, at, "loop", waits, event.kind, detail=clip_line(event.message, 200))
        case ev.Published():
            return Line(key, at, "session", event.name, event.source, detail=preview(event.data, 160))
        case ev.StatusChanged():
            bad = event.status == "error"
            return Line(
                key,
                at,
                "error" if bad else "session",
                f"session {event.status}",
                detail=clip_line(event.error or "", 300),
                bad=bad,
            )
        case ev.Saved():
            return Line(key, at, "session", "saved", detail=f"revision {event.revision}")
        case ev.SaveFailed():
            return Line(key, at, "error", "not saved", detail=clip_line(event.error, 300), bad=True)
        case ev.SessionStopped():
            return Line(key, at, "session", "session stopped")
    return None


def _said(event: ev.ModelEnded) -> str:
    message = event.message
    parts = [clip_line(message.text, 140)] if message.text else []
    parts += [f"{call.name}({preview(call.arguments, 60)})" for call in message.tool_calls]
    if message.status != "complete":
        parts.append(message.status)
    if message.usage:
        parts.append(f"{message.usage.input_tokens} tokens in, {message.usage.output_tokens} out")
    return " · ".join(parts)


def lines_of(events: Iterable[ev.Event]) -> list[Line]:
    """The lines of these events."""
    return [line for line in map(line_of, events) if line is not None]


def row_html(line: Line, start: float) -> Markup:
    """One row of the table; `start` is the moment from which its time counts."""
    return call("_trace", "row", line, start)


def trace_fragment(events: Sequence[ev.Event]) -> Markup:
    """The trace as a fragment: no style, not wrapped."""
    lines = lines_of(events)
    return render(
        "trace",
        lines=lines[-SHOWN_EVENTS:],
        hidden=max(0, len(lines) - SHOWN_EVENTS),
        start=events[0].at if events else 0.0,
    )


def trace_html(events: Iterable[ev.Event]) -> str:
    """A trace that stands alone: when, what, who, how long, and what it changed."""
    return alone(trace_fragment(tuple(events)), "sandwich", "trace")
