"""The runtime: one background thread with an event loop, in which agents live.

A busy cell, a blocking ``time.sleep`` or a debugger in the main thread do not stop them: a 20 ms ticker on the kernel's
own loop got 1 tick during a ``time.sleep(2)``, one on such a thread 98 of 100.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from sagents_nb.errors import RunCancelled, SessionError, state_of
from sagents_nb.waiting import result_of

T = TypeVar("T")

logger = logging.getLogger("sagents_nb")

CANCEL_TIMEOUT = 10.0
"""Seconds a cancelled run gets to come to an end before the one who interrupted it gets the cell back."""


class Runtime:
    """An event loop in a daemon thread; where threads cannot start (Pyodide), the running loop serves instead.

    Attributes:
        loop: the event loop. Touch it from other threads by `call` and `submit` only.
        in_thread: whether it has a thread of its own.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.in_thread = True
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="sagents-runtime", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.loop.close()
            self.in_thread = False
            try:
                self.loop = asyncio.get_running_loop()
            except RuntimeError:
                raise SessionError(
                    "no thread can be started here, so agents live on the running event loop, and there is none: "
                    "call this from a notebook cell or from an `async def`"
                ) from None

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while True:
                try:
                    self.loop.run_forever()
                    break
                except (SystemExit, KeyboardInterrupt):
                    # asyncio lets these two out of a task and ends the loop; what one agent's code raises
                    # must not be the end of all the others.
                    logger.exception("something that ran on the agents' thread tried to end the process")
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    @property
    def alive(self) -> bool:
        """Whether it can be used: not closed, and not inherited by a forked process."""
        return self.pid == os.getpid() and not self.loop.is_closed() and (not self.in_thread or self._thread.is_alive())

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a function called soon on the loop's thread; from any thread, without waiting.

        Raises:
            SessionError: the runtime has ended, or was inherited by a forked process, where its thread is not.
        """
        self._refuse_dead()
        self.loop.call_soon_threadsafe(function, *arguments)

    def submit(self, job: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop; from any thread.

        Raises:
            SessionError: as for `call`.
        """
        try:
            self._refuse_dead()
        except SessionError:
            job.close()
            raise
        return asyncio.run_coroutine_threadsafe(job, self.loop)

    def _refuse_dead(self) -> None:
        if not self.alive:
            raise SessionError(
                "the event loop this session lived on has ended; begin another with agent.session()"
                if self.pid == os.getpid()
                else f"this session lives in process {self.pid}, of which this one is a fork; begin one here with "
                "agent.session()"
            )

    def refuse_here(self, what: str, instead: str) -> None:
        """Raise when called on the loop's own thread, where waiting would wait for itself.

        Args:
            what: the synchronous call, for the error.
            instead: what to type.

        Raises:
            SessionError: this is that thread.
        """
        here = threading.current_thread() is self._thread if self.in_thread else True
        if here:
            raise SessionError(f"{what} waits, which cannot be done on the thread where agents run; use {instead}")

    def run_blocking(self, job: Awaitable[T]) -> T:
        """Run a coroutine on the loop and wait for it, in a way that Ctrl-C ends.

        Raises:
            RunCancelled: interrupted; the State so far is in it, where the job was a run.
        """
        if not asyncio.iscoroutine(job):
            raise TypeError(f"run_blocking takes a coroutine, got {job!r}")
        try:
            self.refuse_here("agent.run", "`await agent.execute(…)`")
        except SessionError:
            job.close()
            raise
        # The task is held directly: cancelling the concurrent future would drop what the task raises, the State with it.
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(self.loop.create_task(job))
            tasks[0].add_done_callback(lambda task: _settle(task, done))

        try:
            self.call(start)
            return result_of(done)
        except KeyboardInterrupt:
            self.call(lambda: [task.cancel() for task in tasks])
            try:
                state = getattr(result_of(done, CANCEL_TIMEOUT), "state", None)
            except (asyncio.CancelledError, concurrent.futures.CancelledError) as cancelled:
                state = state_of(cancelled)
            except TimeoutError:
                state = None
            if state is not None:  # also of one that came to its end in the same moment: nothing it reached is lost
                raise RunCancelled(state) from None
            raise

    def close(self) -> None:
        """Cancel what runs and end the thread."""
        if self.alive and self.in_thread:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout=2)


def _settle(task: asyncio.Task[T], done: concurrent.futures.Future[T]) -> None:
    try:
        done.set_result(task.result())
    except BaseException as error:  # handed to whoever waits, a cancellation included
        done.set_exception(error)


_lock = threading.Lock()
_runtime: Runtime | None = None


def _forget_lock() -> None:
    # Another thread may have held it when the process was forked; nobody here would ever let go of it.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_lock)


def runtime() -> Runtime:
    """The runtime of this process; made when it is first needed, made again after a fork."""
    global _runtime
    with _lock:
        if _runtime is None or not _runtime.alive:
            _runtime = Runtime()
            atexit.register(_runtime.close)
        return _runtime
