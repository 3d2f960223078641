"""The record of what happens: numbers every event, keeps the latest, tells whoever listens."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from sagents_nb.events import Event, ModelDelta

RING_SIZE = 5_000
"""Events kept in memory. Each may hold two States; those of an unbounded record of a conversation of 8,000 messages
would hold 260 MB of references."""


class Recorder:
    """Numbers events densely from 1, keeps the latest (streamed deltas left out) and calls listeners in order.

    Args:
        last_seq: number of the last event recorded before this recorder was made.
        fold: called with every event while `lock` is held, so that who takes the lock sees event and consequence
            together.

    Attributes:
        lock: held while an event is numbered and kept.
    """

    def __init__(self, last_seq: int = 0, fold: Callable[[Event], object] | None = None) -> None:
        self.lock = threading.RLock()
        self.last_seq = last_seq
        self.events: deque[Event] = deque(maxlen=RING_SIZE)
        self.listeners: list[Callable[[Event], object]] = []
        self._fold = fold

    def record(self, event: Event) -> None:
        """Number an event, keep it, tell the listeners."""
        if self._fold is None:  # a run that nobody watches from another thread
            self.last_seq = event.seq = self.last_seq + 1
            if type(event) is not ModelDelta:
                self.events.append(event)
        else:
            with self.lock:
                self.last_seq = event.seq = self.last_seq + 1
                if type(event) is not ModelDelta:
                    self.events.append(event)
                self._fold(event)
        for listener in self.listeners:
            listener(event)
