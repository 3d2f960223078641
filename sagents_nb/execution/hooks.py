"""The one way into a middleware: every hook is timed, recorded and checked here."""

from __future__ import annotations

import asyncio
import inspect
import time
from types import TracebackType
from typing import Any

from sagents_nb.errors import AgentError, ModelError, in_words
from sagents_nb.events import HookEnded, HookSlow, HookStarted
from sagents_nb.execution.callbacks import CallbackFailed
from sagents_nb.execution.cancellation import stop_requests
from sagents_nb.execution.run import Run
from sagents_nb.execution.scope_guard import check_scope
from sagents_nb.execution.threads import in_thread
from sagents_nb.hooks import STATE_HOOKS
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
    before = run.state
    with _Record(run, bound):
        result = await _invoke(run, bound, before, run.hook_run(bound.middleware))
        if isinstance(result, Interrupt):
            run.interrupt(result, bound.middleware)
        elif isinstance(result, State):
            check_scope(result, before, run.agent.scope)
            run.state = result
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
    with _Record(run, bound):
        answer = bound.function(*arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, expect):
            raise TypeError(
                f"it returned a {type(answer).__name__}; a wrap hook returns the {expect.__name__} that "
                "`await call_next(…)` gave, or one of its own"
            )
        if isinstance(answer, Message) and answer.role != "assistant":
            raise TypeError(
                f"it returned a Message of the role {answer.role!r}; the model's is Message('assistant', …)"
            )
        return answer


async def _invoke(run: Run, bound: BoundHook, *arguments: Any) -> Any:
    if bound.in_thread:
        return await in_thread(lambda: bound.function(*arguments), name=f"{bound.middleware}.{bound.hook}")
    if bound.is_async:
        return await bound.function(*arguments)
    started = time.perf_counter()
    result = bound.function(*arguments)
    duration = time.perf_counter() - started
    if duration > SLOW and (bound.middleware, bound.hook) not in run.slow_hooks:
        run.slow_hooks.add((bound.middleware, bound.hook))
        run.emit(
            HookSlow(
                middleware=bound.middleware,
                hook=bound.hook,
                duration=duration,
                advice=f"{bound.middleware}.{bound.hook} held up every agent and the Stop button for "
                f"{duration * 1000:.0f} ms; make it an `async def`, or set blocking = True on its class to run its "
                "hooks in a thread",
            )
        )
    if result is None or isinstance(result, State):  # nearly always; asking inspect is slower than both
        return result
    return await result if inspect.isawaitable(result) else result


class _Record:
    """Emits the two events of a hook, and turns what it raises into an error that names it."""

    __slots__ = ("_before", "_bound", "_cycle", "_run", "_started")

    def __init__(self, run: Run, bound: BoundHook) -> None:
        self._run = run
        self._bound = bound
        self._cycle = run.cycle
        self._before = run.state

    def __enter__(self) -> None:
        self._run.emit(HookStarted(middleware=self._bound.middleware, hook=self._bound.hook, cycle=self._cycle))
        self._started = time.perf_counter()

    def __exit__(
        self, _type: type[BaseException] | None, failure: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        duration = time.perf_counter() - self._started
        stopped = isinstance(failure, asyncio.CancelledError) and not _is_its_own(failure)
        # Wrap hooks of several tools run at once: what changed meanwhile is not theirs.
        after = self._run.state if self._bound.hook in STATE_HOOKS else self._before
        self._run.emit(
            HookEnded(
                middleware=self._bound.middleware,
                hook=self._bound.hook,
                cycle=self._cycle,
                duration=duration,
                changed=after is not self._before,
                before=self._before,
                after=after,
                error=None if failure is None or stopped else _words(failure),
                cancelled=stopped,
            )
        )
        if failure is not None and _is_its_own(failure):
            raise self._run.fail(
                "middleware_error", f"{self._bound.middleware}.{self._bound.hook} raised {_words(failure)}"
            ) from failure


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
