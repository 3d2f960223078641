"""Waiting for what another thread does, in a way that Ctrl-C ends."""

from __future__ import annotations

import concurrent.futures
import time
from typing import TypeVar

T = TypeVar("T")

STEP = 0.1
"""Seconds of one wait: the longest that a Ctrl-C which woke nobody goes unnoticed."""


def result_of(future: concurrent.futures.Future[T], timeout: float | None = None) -> T:
    """Wait for a future in short steps.

    Python runs a signal's handler when the main thread runs Python again. A signal that arrives in the moment before a
    wait begins, or that the system gives to another thread, does not wake it; on Windows none does. One wait without an
    end would then never notice it.

    Args:
        future: what is waited for; it goes on when the wait is over.
        timeout: seconds; None for no limit.

    Raises:
        TimeoutError: it is not done in time.
        concurrent.futures.CancelledError: it was cancelled.
    """
    end = None if timeout is None else time.monotonic() + timeout
    while not future.done():
        rest = STEP if end is None else min(STEP, end - time.monotonic())
        if rest <= 0:
            break
        concurrent.futures.wait([future], rest)
    return future.result(timeout=0)
