"""What has to run on the main thread, and who lets it run there.

Agents live on a thread of their own, but drawing, signal handlers and many a database handle belong to the main thread.
What is handed over here waits until somebody has time there: a call that waits (`waits`), an event loop on the main
thread in which something of ours is awaited (`served_by`), or the kernel's own loop, whenever no cell is busy.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from sagents_nb import _late

if TYPE_CHECKING:
    import asyncio


class Outcome(NamedTuple):
    """How a function ended.

    Attributes:
        value: what it returned.
        error: what it raised, if it did.
    """

    value: Any
    error: BaseException | None


class Job:
    """One function for the main thread.

    While it runs there, Ctrl-C, the kernel's Interrupt and `stop` raise KeyboardInterrupt in it: an idle kernel ignores
    the signal otherwise, and an awaiting cell only makes a note of it. A person's interrupt goes on to whoever would have
    got it, once the function has ended.

    Args:
        function: takes no arguments.

    Attributes:
        done: settled when the function has ended; cancelling it while it waits keeps it from running.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self.done: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        self._function = function
        self._sending = threading.Lock()  # held while `stop` sends its signal, so that it cannot come too late
        self._listens = False
        self._inside = False
        self._stopped = False
        self._interrupted = False

    def run(self) -> None:
        """Run it here and now, on the main thread; not if it was cancelled before.

        Raises:
            KeyboardInterrupt: a person pressed Ctrl-C meanwhile, and it means that here.
        """
        if not self.done.set_running_or_notify_cancel():
            return
        before = signal.getsignal(signal.SIGINT)
        if before is not None:  # else it is not Python's, and could not be put back
            signal.signal(signal.SIGINT, self._on_signal)
            self._listens = True
        value, error = None, None
        try:
            try:
                self._inside = True
                if self._stopped or self._interrupted:  # by a signal that came a moment too early to be raised
                    raise KeyboardInterrupt
                value = self._function()
            finally:
                self._inside = False
        except BaseException as failure:
            error = failure
        with self._sending:
            self._listens = False
        if before is not None:
            signal.signal(signal.SIGINT, before)
        self.done.set_result(Outcome(value, error))
        if self._interrupted:
            signal.raise_signal(signal.SIGINT)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._interrupted = self._interrupted or not self._stopped
        if self._inside:
            self._inside = False  # once is enough; a second one could hit what cleans up
            raise KeyboardInterrupt

    def stop(self) -> None:
        """Interrupt it, if it runs; from any thread. Code that does not let itself be interrupted goes on."""
        with self._sending:
            if not self._listens or self._stopped:
                return
            self._stopped = True
            if hasattr(signal, "pthread_kill"):
                # Not `interrupt_main`: that does not end a wait of the operating system, such as time.sleep.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                _thread.interrupt_main()


class _Queue:
    """Jobs that wait, and who may be woken to run them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jobs: deque[Job] = deque()
        self.waiting: list[threading.Event] = []
        self.loops: list[asyncio.AbstractEventLoop] = []


_queue = _Queue()


def _forget() -> None:
    # A fork inherits jobs that run in the parent, and a lock that nobody here would ever let go of.
    global _queue
    _queue = _Queue()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


def is_here() -> bool:
    """Whether this is the main thread."""
    return threading.current_thread() is threading.main_thread()


def submit(job: Job) -> None:
    """Have a job run on the main thread as soon as somebody there has time; from any thread."""
    with _queue.lock:
        _queue.jobs.append(job)
        waiting, loops = tuple(_queue.waiting), list(_queue.loops)
    for wake in waiting:
        wake.set()
    kernel = _late.kernel_loop()
    if kernel is not None:
        loops.append(kernel)
    for loop in loops:
        try:
            loop.call_soon_threadsafe(serve)
        except RuntimeError:
            continue  # it was closed meanwhile, and serves nobody any more


def is_served() -> bool:
    """Whether there is somebody who lets jobs run, now or when a busy cell has ended."""
    with _queue.lock:
        if _queue.waiting or _queue.loops:
            return True
    return _late.kernel_loop() is not None


def serve() -> None:
    """Run what waits, if this is the main thread.

    Raises:
        KeyboardInterrupt: a person pressed Ctrl-C while a job ran.
    """
    while is_here():
        with _queue.lock:
            if not _queue.jobs:
                return
            job = _queue.jobs.popleft()
        job.run()


@contextmanager
def waits() -> Iterator[threading.Event]:
    """Say that the main thread waits and calls `serve` now and then.

    Yields:
        An event that is set when there is something to serve. On another thread nobody else sets it.
    """
    wake = threading.Event()
    if not is_here():
        yield wake
        return
    with _queue.lock:
        _queue.waiting.append(wake)
    try:
        yield wake
    finally:
        with _queue.lock:
            _queue.waiting.remove(wake)


@contextmanager
def served_by(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Say that a loop runs on the main thread, if it does; jobs run between its callbacks.

    Args:
        loop: the running one.
    """
    if not is_here():
        yield
        return
    with _queue.lock:
        _queue.loops.append(loop)
        late = bool(_queue.jobs)
    if late:
        loop.call_soon(serve)
    try:
        yield
    finally:
        with _queue.lock:
            _queue.loops.remove(loop)
