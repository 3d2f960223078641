"""What a tool prints goes to its call, not to the cell that happens to run.

`contextlib.redirect_stdout` swaps a global: with two tools at once it mixes their outputs, takes the user's, and may
leave the wrong stream behind. Here one stream stands in for ``sys.stdout`` while any tool runs, and asks a context
variable where each piece of text belongs.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, cast

MAX_OUTPUT = 1_000_000
"""Characters kept of what one call prints."""

_target: ContextVar[Output | None] = ContextVar("sagents_nb_output", default=None)
_lock = threading.Lock()
_users = 0


class Output:
    """What one call printed."""

    def __init__(self) -> None:
        self._buffer = io.StringIO()
        self._left = MAX_OUTPUT

    def write(self, text: str) -> int:
        """Keep a piece of text, as far as there is room."""
        if self._left > 0:
            self._buffer.write(text[: self._left])
            self._left -= len(text)
            if self._left <= 0:
                self._buffer.write(f"\n… (more than {MAX_OUTPUT:,} characters; the rest is left out)")
        return len(text)

    def getvalue(self) -> str:
        """All of it."""
        return self._buffer.getvalue()


class _Router:
    """Stands in for ``sys.stdout``; anything but writing is the real stream's business, its encoding for example."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return (_target.get() or self.stream).write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if _target.get() is None:
            self.stream.flush()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def captured(output: Output) -> Iterator[None]:
    """Collect what is printed in this context (task, or thread with a copied context) in `output`."""
    token = _target.set(output)
    try:
        with _routed():
            yield
    finally:
        _target.reset(token)


@contextmanager
def _routed() -> Iterator[None]:
    """Keep the routing stream in place; the last user puts the real one back."""
    global _users
    with _lock:
        _users += 1
        if not isinstance(sys.stdout, _Router):
            sys.stdout = cast("TextIO", _Router(sys.stdout))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and isinstance(sys.stdout, _Router):
                sys.stdout = sys.stdout.stream
