"""Stop is Stop: whoever is asked to leave has a little time for it, and then is left behind."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class _LeftBehind(BaseException):
    """Ends a job that took a cancellation for something else."""


def _close(job: Coroutine[Any, Any, object]) -> None:
    # Not close() alone: Python 3.11 does not pass it on to an async generator, which would then wait for ever in a
    # loop that is to be closed.
    with suppress(BaseException):
        job.throw(_LeftBehind())
    with suppress(RuntimeError):  # it awaits something even now
        job.close()


@types.coroutine
def leave_in_time(
    job: Coroutine[Any, Any, T], seconds: float, left_behind: Callable[[], object]
) -> Generator[Any, Any, T]:
    """Await a coroutine that may not want to end when its task is cancelled.

    It runs in the task that awaits it, as with a plain ``await``, and costs nothing while all goes well; a task of its
    own would cost 10 µs, and would stay in the loop that has to be closed some day.

    Args:
        job: what is awaited.
        seconds: what it has for its clean-up, from the cancellation on. After that it is closed where it stands.
        left_behind: called when that was necessary.

    Raises:
        asyncio.CancelledError: the task was cancelled, and the job has ended or was left behind.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine of asyncio runs in a task"
    before = task.cancelling()
    timer: asyncio.TimerHandle | None = None
    late = False

    def hurry() -> None:
        nonlocal late, timer
        timer = None
        if task.cancelling() > before:  # else it was a timeout of the job's own, which is over
            late = task.cancel()

    step: Callable[[], Any] = partial(job.send, None)
    try:
        while True:
            try:
                awaited = step()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                step = partial(job.send, (yield awaited))
            except asyncio.CancelledError as stop:
                if late:
                    left_behind()
                    _close(job)
                    raise
                if timer is None:
                    timer = task.get_loop().call_later(seconds, hurry)
                step = partial(job.throw, stop)
            except BaseException as thrown:
                step = partial(job.throw, thrown)
    finally:
        if timer is not None:
            timer.cancel()
        if late:
            task.uncancel()  # the second request was not the caller's
