"""Who cancelled: somebody who stops the run, or something inside a tool or a hook?"""

from __future__ import annotations

import asyncio


def stop_requests() -> int:
    """How often the task that runs here was asked to stop.

    Where it is 0, a CancelledError is no stop: a tool awaited a task that it had cancelled itself, say. Where it has
    grown and no CancelledError came, something swallowed it.
    """
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
