"""A lock of our own beside the database file.

DuckDB's lock is a POSIX one, which a process loses when anything in it opens and closes the file: a copy, a hash, a zip.
This one belongs to an open file of its own and is not lost that way. It also tells who holds it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from sagents_nb.errors import StoreLocked

try:
    import fcntl
except ImportError:  # Windows: there DuckDB's own lock is mandatory
    fcntl = None  # type: ignore[assignment]


class FileLock:
    """An exclusive lock on ``<path>.lock``.

    Args:
        path: the database file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreLocked: another process has it.
        """
        if fcntl is None or self._file is not None:
            return
        file = Path(f"{self._path}.lock").open("a+", encoding="utf-8")  # noqa: SIM115 - held until release
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            from sagents_nb.store.engine import locked

            raise locked(self._path, int(holder) if holder.isdecimal() else None) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let go of it. The file stays: another process may be waiting for it by now."""
        if self._file is not None:
            self._file.truncate(0)
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)  # closing is not enough when a fork of this process lives
            self._file.close()
            self._file = None


def describe_process(pid: int) -> str:
    """``process 123, python -m ipykernel …``, as far as the system tells."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    if "ipykernel" in command:
        return f"process {pid}, a Jupyter kernel"
    return f"process {pid}, {command[:80]}" if command else f"process {pid}"


__all__ = ["FileLock", "StoreLocked", "describe_process"]
