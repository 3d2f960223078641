"""Models and stores that do what a test tells them, when it tells them."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any

from sagents_nb import Agent, ChatModel, ModelRequest, ScriptedModel, Session
from sagents_nb.events import Event
from sagents_nb.models import Delta, StopDelta, TextDelta
from sagents_nb.server.persistence import MemoryPersistence, StoredConversation, Turn

TIMEOUT = 20.0
"""Seconds after which a test gives up; what it waits for takes a thousandth of it."""


class WaitingModel(ChatModel):
    """Says `before`, waits until it is let go (`go`) or cancelled, says `after`."""

    name = "waiting"

    def __init__(self, before: str = "Half an ", after: str = "answer.") -> None:
        self.before = before
        self.after = after
        self.reached = threading.Event()
        self.go = threading.Event()
        self.chunks = 0
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if self.before:
            yield TextDelta(self.before)
        self.reached.set()
        while not self.go.is_set():  # noqa: ASYNC110 - a threading.Event, set by the test from its own thread
            await asyncio.sleep(0.002)
        self.chunks += 1
        yield TextDelta(self.after)
        yield StopDelta()


class EchoModel(ChatModel):
    """Answers with the last message, in chunks; knows whether it was ever asked twice at once."""

    name = "echo"

    def __init__(self, delay: float = 0.0005) -> None:
        self.delay = delay
        self.busy = 0
        self.overlapped = False
        self.asked: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.busy += 1
        self.overlapped |= self.busy > 1
        try:
            text = request.messages[-1].text
            self.asked.append(text)
            for piece in ("echo ", text):
                await asyncio.sleep(self.delay)
                yield TextDelta(piece)
            yield StopDelta()
        finally:
            self.busy -= 1


class Unreliable(MemoryPersistence):
    """Saves in a thread, after `delay` seconds; fails when `fails` says so.

    Attributes:
        turns: those that were saved.
        fails: asked before every attempt, with its number from 1.
    """

    def __init__(self, delay: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.delay = delay
        self.fails: Callable[[int], bool] = lambda _number: False
        self.attempts = 0
        self.turns: list[Turn] = []

    def save_turn(self, scope: Any, turn: Turn) -> Future[int]:
        self.attempts += 1
        number = self.attempts
        done: Future[int] = Future()

        def work() -> None:
            time.sleep(self.delay)
            if self.fails(number):
                done.set_exception(OSError("the disk is full"))
                return
            revision = MemoryPersistence.save_turn(self, scope, turn).result()
            self.turns.append(turn)
            done.set_result(revision)

        threading.Thread(target=work, daemon=True).start()
        return done

    def stored(self, session: Session) -> StoredConversation | None:
        return self.load_conversation(session.agent.scope, session.conversation_id).result()


def scripted(*turns: Any, **options: Any) -> Agent:
    """An agent on a script."""
    return Agent(model=ScriptedModel(turns, **options))


def texts(session: Session) -> list[str]:
    """What people see, as ``"role: text"``."""
    return [f"{row.message_type}: {row.text}" for row in session.display_messages]


def eventually(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until something holds."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {TIMEOUT:g} s"
        time.sleep(0.002)


@contextlib.contextmanager
def recorded(session: Session) -> Iterator[list[Any]]:
    """Every event of a session while the block lasts."""
    events: list[Event] = []
    end = session.subscribe_callback(events.append)
    try:
        yield events
    finally:
        end()


def in_threads(count: int, job: Callable[[int], Any]) -> list[Any]:
    """Run a job in threads that begin at the same moment; their results, exceptions included, by number."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def work(number: int) -> None:
        barrier.wait(TIMEOUT)
        try:
            results[number] = job(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "a thread hangs"
    return results
