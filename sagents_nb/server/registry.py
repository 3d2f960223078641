"""The living sessions of this process: one owner per conversation, and none left behind by a cell that runs again."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TypeAlias

from sagents_nb.server.cell import CellRun

if TYPE_CHECKING:
    from sagents_nb.server.session import Session

Key: TypeAlias = tuple[int, str, str]
"""Persistence object, owner, conversation."""


class Registry:
    """Sessions by conversation, and by the cell that began them.

    Attributes:
        starting: held while a session is begun or taken over, so that a conversation gets one owner. That may take
            seconds (the predecessor ends, the store loads), and the runtime never waits for it.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, the locks too: after a fork the sessions are those of the parent."""
        self.starting = threading.RLock()
        self._lock = threading.Lock()  # of the dicts: held for moments only, on any thread
        self._by_key: dict[Key, Session] = {}
        self._by_cell: dict[str, tuple[str, list[Session]]] = {}

    def get(self, key: Key) -> Session | None:
        """The living session of a conversation, if there is one."""
        with self._lock:
            return self._by_key.get(key)

    def add(self, key: Key, session: Session, cell: CellRun | None) -> list[Session]:
        """Enter a session.

        Returns:
            Sessions that an earlier execution of the same cell began without naming a conversation; to be stopped.
        """
        with self._lock:
            self._by_key[key] = session
            if cell is None:
                return []
            execution, begun = self._by_cell.get(cell.cell, (cell.execution, []))
            if execution == cell.execution:
                self._by_cell[cell.cell] = (execution, [*begun, session])
                return []
            self._by_cell[cell.cell] = (cell.execution, [session])
            return begun

    def remove(self, session: Session) -> None:
        """Take a session out."""
        with self._lock:
            self._by_key = {key: other for key, other in self._by_key.items() if other is not session}
            for cell, (execution, begun) in list(self._by_cell.items()):
                left = [other for other in begun if other is not session]
                if left:
                    self._by_cell[cell] = (execution, left)
                else:
                    del self._by_cell[cell]

    def all(self) -> list[Session]:
        """The sessions that can be used."""
        with self._lock:
            sessions = list(self._by_key.values())
        return [session for session in sessions if session.alive]


registry = Registry()
"""The registry of this process."""

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=registry.clear)
