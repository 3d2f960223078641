"""Blocking code beside the loop.

Not asyncio's own pool: that has few threads, a timed-out tool keeps its place in it, and the process waits for it
at exit. A thread of our own is a daemon, so nothing a tool does holds up the end of the kernel.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_numbers = itertools.count(1)


async def in_thread(function: Callable[[], T], *, name: str, on_end: Callable[[], None] | None = None) -> T:
    """Run a blocking function in a thread, with the context variables of the caller.

    Cancelling the caller does not stop the function (a thread cannot be stopped); its late result is dropped.

    Args:
        function: takes no arguments.
        name: of the thread, for debuggers.
        on_end: called in the thread when the function has really ended, even if nobody waits any more.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        elif isinstance(error, (StopIteration, KeyboardInterrupt, GeneratorExit)):
            # A future refuses StopIteration, and the others would end the coroutine or the loop that awaits it.
            done.set_exception(RuntimeError(f"{type(error).__name__} raised: {error}"))
        else:
            done.set_exception(error)

    def work() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = context.run(function)
        except BaseException as error:
            failure = error
        finally:
            if on_end is not None:
                on_end()
        try:
            loop.call_soon_threadsafe(finish, result, failure)
        except RuntimeError:
            # The loop was closed meanwhile: nobody waits any more.
            return

    thread = threading.Thread(target=work, name=f"sagents-{name}-{next(_numbers)}", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        work()  # where threads cannot start (Pyodide), the loop has to wait
    return await done
