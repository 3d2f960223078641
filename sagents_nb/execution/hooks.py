"""The one way into a middleware: every hook is timed, recorded and checked here."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from time import perf_counter
from typing import Any

from sagents_nb.errors import AgentError, ModelError, in_words
from sagents_nb.events import HookEnded, HookSlow, HookStarted
from sagents_nb.execution.callbacks import CallbackFailed
from sagents_nb.execution.cancellation import stop_requests
from sagents_nb.execution.run import Run
from sagents_nb.execution.scope_guard import check_scope
from sagents_nb.execution.threads import in_thread
from sagents_nb.interrupts import Interrupt
from sagents_nb.messages import Message
from sagents_nb.stack import BoundHook
from sagents_nb.state import State

SLOW = 0.05
"""Seconds a synchronous hook may take before it is announced: while it runs, no agent goes on and Stop waits."""


async def run_hooks(run: Run, hook: str) -> None:
    """Run all implementations of a State hook in stack order, each given what the one before it left."""
    for bound in run.agent.stack.hooks(hook):
        await call_hook(run, bound)


async def call_hook(run: Run, bound: BoundHook) -> None:
    """Run one State hook.

    Raises:
        AgentError: the hook raised (``"middleware_error"``, naming middleware and hook) or returned something that
            is no State.
    """
    before, cycle = run.state, run.cycle
    run.emit(HookStarted(bound.middleware, bound.hook, cycle))
    started = perf_counter()
    try:
        if bound.in_thread:
            job = partial(bound.function, before, run.hook_run(bound.middleware))
            result = await in_thread(job, name=f"{bound.middleware}.{bound.hook}")
        else:
            result = bound.function(before, run.hook_run(bound.middleware))
            if bound.is_async:
                result = await result
            elif perf_counter() - started > SLOW:
                _tell_slow(run, bound, perf_counter() - started)
        if result is not None:  # None nearly always, and asking a model class whether it is one of its own is not cheap
            _take(run, bound, await result if inspect.isawaitable(result) else result)
    except BaseException as failure:
        _failed(run, bound, before, started, failure)
        raise
    after = run.state  # what `_ended` does, without its call: most of what a hook costs is this function
    run.emit(
        HookEnded(bound.middleware, bound.hook, cycle, perf_counter() - started, after is not before, before, after)
    )


def _take(run: Run, bound: BoundHook, result: object) -> None:
    """What a State hook returned takes effect."""
    if isinstance(result, State):
        check_scope(result, run.state, run.agent.scope)
        run.state = result
    elif isinstance(result, Interrupt):
        if result.state is not None:
            _take(run, bound, result.state)
        run.interrupt(result, bound.middleware)
    elif result is not None:
        raise TypeError(
            f"it returned a {type(result).__name__}; a hook returns a State, None for 'unchanged' or an Interrupt"
        )


async def call_wrapped(run: Run, bound: BoundHook, *arguments: Any, expect: type) -> Any:
    """Run one wrap hook.

    Args:
        run: the run.
        bound: the hook.
        *arguments: what the hook is called with, ``call_next`` last.
        expect: the class of what it must return.

    Raises:
        AgentError: the hook itself raised, or returned something else.
    """
    words = f"a wrap hook returns the {expect.__name__} that `await call_next(…)` gave, or one of its own"
    return await call_checked(run, bound, *arguments, expect=expect, words=words)


async def call_checked(run: Run, bound: BoundHook, *arguments: Any, expect: type | tuple[type, ...], words: str) -> Any:
    """Run one hook that does not return a State.

    Args:
        run: the run.
        bound: the hook.
        *arguments: what the hook is called with.
        expect: the class, or classes, of what it must return.
        words: the same in words, for the error.

    Raises:
        AgentError: the hook itself raised, or returned something else.
    """
    before = run.state
    run.emit(HookStarted(bound.middleware, bound.hook, run.cycle))
    started = perf_counter()
    try:
        answer = bound.function(*arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, expect):
            raise TypeError(f"it returned a {type(answer).__name__}; {words}")
        if isinstance(answer, Message) and answer.role != "assistant":
            raise TypeError(
                f"it returned a Message of the role {answer.role!r}; the model's is Message('assistant', …)"
            )
    except BaseException as failure:
        _failed(run, bound, before, started, failure)
        raise
    _ended(run, bound, before, started, before)  # several tools run at once: what changed meanwhile is not its doing
    return answer


def _tell_slow(run: Run, bound: BoundHook, duration: float) -> None:
    if (bound.middleware, bound.hook) in run.slow_hooks:
        return
    run.slow_hooks.add((bound.middleware, bound.hook))
    advice = (
        f"{bound.middleware}.{bound.hook} held up every agent and the Stop button for {duration * 1000:.0f} ms; make it an "
        "`async def`, or set blocking = True on its class to run its hooks in a thread"
    )
    run.emit(HookSlow(middleware=bound.middleware, hook=bound.hook, duration=duration, advice=advice))


def _ended(  # noqa: PLR0917 - by position, which costs half of what keywords do
    run: Run,
    bound: BoundHook,
    before: State,
    started: float,
    after: State,
    error: str | None = None,
    cancelled: bool = False,
) -> None:
    duration = perf_counter() - started
    changed = after is not before
    run.emit(
        HookEnded(bound.middleware, bound.hook, run.cycle, duration, changed, before, after, error, cancelled),
    )


def _failed(run: Run, bound: BoundHook, before: State, started: float, failure: BaseException) -> None:
    """What the hook itself raised becomes an error that names it; what only came through it stays what it is."""
    own = _is_its_own(failure)
    stopped = isinstance(failure, asyncio.CancelledError) and not own
    _ended(run, bound, before, started, before, None if stopped else _words(failure), stopped)
    if own:
        raise run.fail("middleware_error", f"{bound.middleware}.{bound.hook} raised {_words(failure)}") from failure


def _is_its_own(failure: BaseException) -> bool:
    """Whether a hook is to blame for what came out of it."""
    if isinstance(failure, asyncio.CancelledError):
        return not stop_requests()  # it cancelled something of its own
    # Failures of the model, of callbacks and of hooks further in pass through a wrap hook as they are.
    if isinstance(failure, (AgentError, ModelError, CallbackFailed)):
        return False
    # sys.exit() in a hook is its failure too: let through, it would end the loop in which all agents live.
    return isinstance(failure, (Exception, SystemExit))


def _words(failure: BaseException) -> str:
    if isinstance(failure, AgentError):
        return failure.message
    if isinstance(failure, asyncio.CancelledError):
        return "CancelledError, though nobody stopped the run"
    return f"{type(failure).__name__}: {in_words(failure)}"
