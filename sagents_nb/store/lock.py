"""A lock of our own beside the database file, and who holds it.

DuckDB's lock is a POSIX one, which a process loses when anything in it opens and closes the file: a copy, a hash, a zip.
A second process could then open the file, and what one of the two writes is gone without an error. This lock belongs to
an open file of its own and is not lost that way.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from sagents_nb.errors import StoreError, StoreLocked

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
        self._file = Path(f"{path}.lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreLocked: another process has it.
            StoreError: the lock file cannot be made.
        """
        if fcntl is None or self._descriptor is not None:
            return
        while True:
            try:
                descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise StoreError(
                    f"{self._file} cannot be made ({error.strerror}), and without it two kernels could write to one "
                    f"file; choose a folder you can write to, or look at a copy: Store.snapshot('{self._path}')"
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = _read_holder(descriptor)
                os.close(descriptor)
                raise locked(self._path, holder.get("pid"), holder.get("notebook")) from None
            try:
                if os.fstat(descriptor).st_ino == self._file.stat().st_ino:
                    break
            except OSError:
                pass  # the one before us removed it when it let go: then this is a lock on nothing
            os.close(descriptor)
        about = {"pid": os.getpid(), "notebook": os.environ.get("JPY_SESSION_NAME")}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(about).encode(), 0)
        self._descriptor = descriptor
        _held.add(self)

    def release(self) -> None:
        """Let go of it, and take the file away while nobody else can have it."""
        if self._descriptor is not None:
            self._file.unlink(missing_ok=True)
            if fcntl is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # closing is not enough while a fork of this process lives
            self.forget()

    def forget(self) -> None:
        """Close the file without taking it away."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self)


_held: set[FileLock] = set()


def _forget_in_child() -> None:
    # The child shares the lock: it would hold the file after its parent has ended.
    for lock in list(_held):
        lock.forget()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_in_child)


def _read_holder(descriptor: int) -> dict[str, object]:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:  # it has the lock but did not write yet
        return {}
    return holder if isinstance(holder, dict) else {}


def locked(path: Path, pid: object, notebook: object = None) -> StoreLocked:
    """The error for a file that another process holds."""
    known = pid if isinstance(pid, int) else None
    if known == os.getpid():
        return StoreLocked(
            f"{path} is open in this very process (PID {known}), in a Store that sagents_nb no longer knows of because "
            "its modules were imported anew; restart the kernel",
            pid=known,
        )
    holder = "another process" if known is None else f"process {known} ({describe_process(known, notebook)})"
    end = f"`kill {known}` if it is none" if known is not None else "or end the program that has it"
    other = path.with_stem(f"{path.stem}-2")
    return StoreLocked(
        f"{path} is in use by {holder}, and a DuckDB file belongs to one process at a time. Shut that kernel down "
        f"(Kernel ▸ Shut Down Kernel; {end}), or use another file: Store('{other.name}'). To look without changing "
        f"anything: Store.snapshot('{path}') opens a read-only copy",
        pid=known,
    )


def describe_process(pid: int, notebook: object = None) -> str:
    """What a process is, as far as it or the system told."""
    if notebook:
        return f"the kernel of {notebook}"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:  # no /proc here, or it ended meanwhile
        return "another program"
    if "ipykernel" in command:
        return "a Jupyter kernel"
    return command[:80] or "another program"
