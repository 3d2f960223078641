"""Blocking code beside the loop.

Not asyncio's own pool: that has few threads, a timed-out tool keeps its place in it, and the process waits for it
at exit. A thread of our own is a daemon, so nothing a tool does holds up the end of the kernel.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sagents_nb import main_thread
from sagents_nb.errors import ToolError

T = TypeVar("T")

NOTICE = 1.0
"""Seconds a call waits for the main thread before it says so, and between two looks at who serves it."""

PATIENCE = 10.0
"""Seconds a call waits for the main thread while nobody there waits for the agent: a script may be about to."""

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


async def on_main_thread(
    function: Callable[[], T],
    *,
    name: str,
    on_end: Callable[[], None],
    on_wait: Callable[[], None],
) -> T:
    """Run a blocking function on the main thread, with the context variables of the caller.

    If the caller is there already it runs at once, and the loop waits. Cancelling the caller takes a function that has
    not begun out of the queue, and interrupts one that runs.

    Args:
        function: takes no arguments.
        name: of the tool, for errors.
        on_end: called when the function has ended, or never will begin.
        on_wait: called once if it has to wait for long.

    Raises:
        ToolError: nobody lets it run there, or a person interrupted it.
    """
    context = contextvars.copy_context()

    def body() -> T:
        try:
            return context.run(function)
        finally:
            on_end()

    job = main_thread.Job(body)
    if main_thread.is_here():
        job.run()
    else:
        main_thread.submit(job)
        await _ended(job, name, on_end, on_wait)
    value, error = job.done.result()
    if isinstance(error, KeyboardInterrupt):
        # The interrupt went on to whoever waits here, which ipykernel tells a cell some turns of its loop later.
        await asyncio.sleep(0.01)
        raise ToolError(f"Tool {name} was interrupted by the user.") from error
    if isinstance(error, (StopIteration, GeneratorExit)):
        raise RuntimeError(f"{type(error).__name__} raised: {error}") from error  # they mean something to a coroutine
    if error is not None:
        raise error
    result: T = value
    return result


async def _ended(job: main_thread.Job, name: str, on_end: Callable[[], None], on_wait: Callable[[], None]) -> None:
    """Wait until a job that was handed over has ended."""
    waiter = asyncio.wrap_future(job.done)
    told = False
    served = time.monotonic()
    try:
        while not (await asyncio.wait({waiter}, timeout=NOTICE))[0]:
            if job.done.running():
                continue
            if not told:
                told = True
                on_wait()
            if main_thread.is_served():
                served = time.monotonic()
            elif time.monotonic() - served > PATIENCE and job.done.cancel():
                raise ToolError(
                    f"Tool {name} has to run on the main thread of the program, which does not wait for the agent. There, "
                    "call agent.run(…) or session.wait(), or `await session`; or make the tool without thread='main'."
                )
    finally:
        if job.done.cancel():
            on_end()
        job.stop()
