"""A copy of a database file that another process may be writing."""

from __future__ import annotations

import shutil
from pathlib import Path

from sagents_nb.errors import StoreError

TRIES = 20


def copy_files(path: Path, folder: Path) -> Path:
    """Copy a database file with its log.

    Only of another process's file: opening and closing our own would drop DuckDB's lock on it.

    Args:
        path: the file.
        folder: where to.

    Returns:
        The copy.

    Raises:
        StoreError: it cannot be read, or is changed all the time.
    """
    if not path.is_file():
        raise StoreError(f"there is no file {path} to copy")
    if _is_open_here(path):
        raise StoreError(
            f"this process has {path} open itself, and copying it would drop the lock on it; read through what has it open"
        )
    copy = folder / path.name
    for _ in range(TRIES):
        before = _stamp(path)
        for old in folder.iterdir():
            old.unlink()
        try:
            for file in _files(path):
                shutil.copyfile(file, folder / file.name)
        except FileNotFoundError:  # the log was folded in meanwhile
            continue
        except OSError as error:
            raise StoreError(f"{path} cannot be copied: {error.strerror}") from error
        if _stamp(path) == before:
            return copy
    raise StoreError(f"{path} is written all the time; try again when its kernel is less busy")


def _files(path: Path) -> list[Path]:
    """The file and its logs, ``.wal`` and those that DuckDB has beside it during a checkpoint."""
    return [path, *(file for file in path.parent.glob(f"{_escaped(path.name)}.*") if "wal" in file.suffixes[-1])]


def _is_open_here(path: Path) -> bool:
    """Whether this process has it open, through duckdb.connect for example; where the system does not tell, no."""
    descriptors = Path("/proc/self/fd")
    try:
        names = list(descriptors.iterdir())
    except OSError:
        return False
    about = path.stat()
    for name in names:
        try:
            other = name.stat()
        except OSError:  # closed meanwhile
            continue
        if (other.st_dev, other.st_ino) == (about.st_dev, about.st_ino):
            return True
    return False


def _escaped(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _stamp(path: Path) -> list[tuple[str, int, int]]:
    found = []
    for file in sorted(_files(path)):
        try:
            about = file.stat()
        except FileNotFoundError:
            continue
        found.append((file.name, about.st_mtime_ns, about.st_size))
    return found
