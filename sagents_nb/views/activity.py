"""What has run so far, cell by cell: the numbers in the sandwich picture."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from sagents_nb.changes import Change
from sagents_nb.events import (
    CycleStarted,
    Event,
    HookEnded,
    HookSlow,
    HookStarted,
    ModelEnded,
    ModelFailed,
    ModelStarted,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
)

MODEL = "model:"
"""Name of the model's cell."""
RECENT = 5
"""Runs of one hook whose changes are shown; each holds two States alive."""


def cell_id(hook: str, middleware: str) -> str:
    """Name of the cell of one hook of one middleware; of a tool the hook is ``"tool"``."""
    return f"{hook}:{middleware}"


@dataclass(slots=True)
class Cell:
    """One cell of the picture.

    Attributes:
        runs: how often it ran to its end.
        last: seconds of the latest run.
        total: seconds of all runs.
        changed: in how many runs it changed the State.
        errors: in how many runs it raised.
        last_error: what it raised last, in words.
        running: how often it is entered and not left.
        note: a word of advice from the loop.
        recent: its latest runs that changed something or raised.
    """

    runs: int = 0
    last: float | None = None
    total: float = 0.0
    changed: int = 0
    errors: int = 0
    last_error: str = ""
    running: int = 0
    note: str = ""
    recent: deque[HookEnded] = field(default_factory=lambda: deque(maxlen=RECENT))

    def ended(self, seconds: float, error: str | None) -> None:
        """Count one run."""
        self.runs += 1
        self.running = max(0, self.running - 1)
        self.last = seconds
        self.total += seconds
        if error:
            self.errors += 1
            self.last_error = error

    def changes(self) -> list[tuple[int, tuple[Change, ...]]]:
        """Cycle and changes of its latest runs, newest first; compared now, when somebody looks."""
        return [(event.cycle, event.changes) for event in reversed(self.recent) if event.changed]


@dataclass(slots=True)
class Activity:
    """Adds up events; `add` says which cells an event touched.

    Attributes:
        cells: by cell id.
        cycle: pass of the loop, 0 before the first.
        agent_id: whose events count; empty counts all. Events of sub-agents flow past the parent's views.
    """

    agent_id: str = ""
    cells: dict[str, Cell] = field(default_factory=dict)
    cycle: int = 0

    @classmethod
    def of(cls, events: Iterable[Event], agent_id: str = "") -> Activity:
        """The activity that these events make."""
        activity = cls(agent_id)
        for event in events:
            activity.add(event)
        return activity

    def cell(self, key: str) -> Cell:
        """The cell, empty if nothing ran there."""
        return self.cells.get(key) or Cell()

    def _cell(self, key: str) -> Cell:
        return self.cells.setdefault(key, Cell())

    def add(self, event: Event) -> tuple[str, int] | None:
        """Take in one event.

        Returns:
            Cell id and 1 when the cell lights up, 0 when it goes dark; None when the event lights nothing.
        """
        if self.agent_id and event.agent_id and event.agent_id != self.agent_id:
            return None
        match event:
            case HookStarted():
                return self._lit(cell_id(event.hook, event.middleware))
            case HookEnded():
                key = cell_id(event.hook, event.middleware)
                cell = self._cell(key)
                cell.ended(event.duration, event.error)
                cell.changed += event.changed
                if event.changed:
                    cell.recent.append(event)
                return key, 0
            case HookSlow():
                self._cell(cell_id(event.hook, event.middleware)).note = event.advice
            case ModelStarted():
                return self._lit(MODEL)
            case ModelEnded():
                self._cell(MODEL).ended(event.duration, None)
                return MODEL, 0
            case ModelFailed():
                self._cell(MODEL).ended(0.0, event.error)
                return MODEL, 0
            case ToolStarted():
                return self._lit(cell_id("tool", event.call.name))
            case ToolEnded():
                key = cell_id("tool", event.call.name)
                error = event.result.text if event.result.is_error else None
                self._cell(key).ended(event.duration, error)
                return key, 0
            case CycleStarted():
                self.cycle = event.cycle
            case RunStarted():
                self.cycle = 0
            case RunEnded():
                for cell in self.cells.values():
                    cell.running = 0
        return None

    def _lit(self, key: str) -> tuple[str, int]:
        self._cell(key).running += 1
        return key, 1

    @property
    def running(self) -> list[str]:
        """Cells that are lit now, outermost first."""
        return [key for key, cell in self.cells.items() if cell.running]
