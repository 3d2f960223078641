"""The stores of this process that hold a file: a cell that runs again gets back the one it made."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sagents_nb.store.store import Store

# Looked up first, since a module that is reloaded (%autoreload) keeps its old names until they are set again.
_old: dict[str, Any] = globals()
lock: threading.RLock = _old.get("lock") or threading.RLock()
living: dict[Path, Store] = _old.get("living") or {}


def find(path: Path) -> Store | None:
    """The living store of a file, known by its real path, or by what the path leads to (a hard link)."""
    store = living.get(path)
    if store is None:
        for other, candidate in living.items():
            try:
                if other.samefile(path):
                    store = candidate
                    break
            except OSError:  # one of the two is not there (any more)
                continue
    return store if store is not None and not store.closed else None


def _in_child() -> None:
    # Another thread may have held it when the process was forked; nobody here would ever let go of it. The stores of
    # the parent are none of the child's.
    global lock
    lock = threading.RLock()
    living.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
