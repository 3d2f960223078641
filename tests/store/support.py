"""What the tests of the store share: States, turns, rows and other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sagents_nb.events import Published
from sagents_nb.messages import Message
from sagents_nb.server.display import DisplayMessage
from sagents_nb.state import State
from sagents_nb.store import Store, Turn

ROOT = Path(__file__).parents[2]


def state(*texts: str, **fields: Any) -> State:
    """A State of user messages."""
    return State(messages=tuple(Message("user", text) for text in texts), **fields)


def texts(found: State) -> list[str]:
    return [message.text for message in found.messages]


def row(conversation_id: str, sequence: int, text: str = "hello", **fields: Any) -> DisplayMessage:
    values: dict[str, Any] = {"message_type": "user", "content_type": "text", "content": {"text": text}}
    return DisplayMessage(conversation_id=conversation_id, sequence=sequence, **(values | fields))


def published(seq: int = 1, **data: Any) -> Published:
    return Published(source="a tool", name="note", data=data, seq=seq, at=1.0)


def bad_turn(conversation_id: str) -> Turn:
    """A turn that cannot be written: what it publishes is no JSON."""
    return Turn(conversation_id, state=state("bad"), events=(published(number=float("nan")),))


@contextmanager
def writer_held(store: Store, scope: Any = None) -> Iterator[None]:
    """What is saved meanwhile is written as one group afterwards."""
    gate, held = threading.Event(), threading.Event()

    def wait(_done: object) -> None:
        if threading.current_thread().name == "sagents-store-writer":
            held.set()
            gate.wait(30)

    while not held.is_set():  # a save that is quicker than this line calls `wait` here, which does nothing
        store.save_turn(scope, Turn("held up")).add_done_callback(wait)
        held.wait(0.2)
    try:
        yield
    finally:
        gate.set()


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process, with pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def output(code: str, *arguments: object) -> str:
    """What another process prints until it ends."""
    with python(code, *arguments) as process:
        found, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return found.strip()
