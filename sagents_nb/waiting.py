"""Waiting for what another thread does, in a way that Ctrl-C ends."""

from __future__ import annotations

import concurrent.futures
import time
from typing import TypeVar

from sagents_nb import main_thread

T = TypeVar("T")

STEP = 0.1
"""Seconds of one wait: the longest that a Ctrl-C which woke nobody goes unnoticed."""


def result_of(future: concurrent.futures.Future[T], timeout: float | None = None) -> T:
    """Wait for a future in short steps.

    Python runs a signal's handler when the main thread runs Python again. A signal that arrives in the moment before a
    wait begins, or that the system gives to another thread, does not wake it; on Windows none does. One wait without an
    end would then never notice it.

    On the main thread, what has to run there (tools with ``thread="main"``) runs meanwhile.

    Args:
        future: what is waited for; it goes on when the wait is over.
        timeout: seconds; None for no limit.

    Raises:
        TimeoutError: it is not done in time.
        concurrent.futures.CancelledError: it was cancelled.
    """
    end = None if timeout is None else time.monotonic() + timeout
    with main_thread.waits() as wake:
        future.add_done_callback(lambda _: wake.set())
        while not future.done():
            main_thread.serve()
            rest = STEP if end is None else min(STEP, end - time.monotonic())
            if rest <= 0:
                break
            wake.wait(rest)
            wake.clear()
    return future.result(timeout=0)
