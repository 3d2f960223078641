"""The living sessions of this process: one owner per conversation, and none left behind by a cell that runs again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from sagents_nb.server.cell import CellRun

if TYPE_CHECKING:
    from sagents_nb.server.session import Session

Key: TypeAlias = tuple[int, str, str]
"""Persistence object, owner, conversation."""


class Registry:
    """Sessions by conversation, and by the cell that began them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._by_key: dict[Key, Session] = {}
        self._by_cell: dict[str, tuple[str, list[Session]]] = {}

    def get(self, key: Key) -> Session | None:
        """The living session of a conversation, if there is one."""
        with self.lock:
            return self._by_key.get(key)

    def add(self, key: Key, session: Session, cell: CellRun | None) -> list[Session]:
        """Enter a session.

        Returns:
            Sessions that an earlier execution of the same cell began without naming a conversation; to be stopped.
        """
        with self.lock:
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
        with self.lock:
            self._by_key = {key: other for key, other in self._by_key.items() if other is not session}
            for cell, (execution, begun) in list(self._by_cell.items()):
                left = [other for other in begun if other is not session]
                if left:
                    self._by_cell[cell] = (execution, left)
                else:
                    del self._by_cell[cell]

    def all(self, wanted: Callable[[Session], bool] = lambda _session: True) -> list[Session]:
        """The living sessions."""
        with self.lock:
            return [session for session in self._by_key.values() if wanted(session)]


registry = Registry()
"""The registry of this process."""
