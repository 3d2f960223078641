"""The loop, written once: run, stream, sessions and sub-agents all go through here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sagents_nb.errors import AgentError, ModelError, carry_state
from sagents_nb.events import CycleStarted, HistoryRepaired, MiddlewarePrepared, RunEnded, RunStarted
from sagents_nb.execution.callbacks import CallbackFailed
from sagents_nb.execution.cancellation import stop_requests
from sagents_nb.execution.heartbeat import heartbeat
from sagents_nb.execution.hooks import call_hook, run_hooks
from sagents_nb.execution.model_call import ask_model
from sagents_nb.execution.run import MAX_FAILURES, Run
from sagents_nb.execution.tool_calls import run_tools

LEAVE_TIMEOUT = 5.0
"""Seconds the after_agent hooks get when the run was cancelled: Stop must not wait for them for ever."""

Step = Callable[[Run], Awaitable[None]]


async def run_leg(run: Run) -> None:
    """One leg: the agent hooks, and in between the cycle until the model has answered.

    Args:
        run: where to begin; its `state` is where it ended, whatever the way out.

    Raises:
        AgentError: the run failed.
        asyncio.CancelledError: the task was cancelled; its `state` is how far the run came.
    """
    status, error, words = "error", None, None
    run.loop = asyncio.get_running_loop()
    run.stop_requests = stop_requests()
    try:
        run.emit(RunStarted(resumed=run.resumed))
        with heartbeat():
            async with agent_hooks(run):
                while not run.stop_if_interrupted() and await cycle(run):
                    pass
            run.stop_if_interrupted()  # an after_agent hook may ask for a person too
        status = "interrupted" if run.interrupted else "completed"
    except asyncio.CancelledError as cancelled:
        status = "cancelled"
        carry_state(cancelled, run.state)
        raise
    except (ModelError, CallbackFailed, AgentError) as failure:
        kind = "callback_error" if isinstance(failure, CallbackFailed) else failure.type
        error = run.fail(kind, str(failure))
        raise error from failure
    except Exception as failure:  # a mistake of the toolkit itself; what was recorded must still say what happened
        words = f"{type(failure).__name__}: {failure}"
        raise
    finally:
        ended = RunEnded(
            status=status,
            error=error.message if error else words,
            error_type=error.type if error else None,
            duration=time.perf_counter() - run.started,
        )
        try:
            run.emit(ended)
        except CallbackFailed as failure:
            # Callbacks for the end are told of errors: the one that is on its way is the one to report.
            if error is not None:
                error.add_note(str(failure))


async def cycle(run: Run) -> bool:
    """One pass of the loop.

    Returns:
        Whether there is to be another.
    """
    for step in CYCLE:
        await step(run)
        if stop_requests() > run.stop_requests:  # a hook or a tool swallowed the cancellation; Stop is Stop
            raise asyncio.CancelledError
        if run.stop_if_interrupted():
            return False
    return needs_model(run)


async def check_limits(run: Run) -> None:
    """Check limits [loop]."""
    if run.failures >= MAX_FAILURES:
        raise run.fail(
            "exceeded_failure_count",
            f"in {MAX_FAILURES} turns in a row all tool calls failed; the tool results in .state say why",
        )
    if run.cycle >= run.max_runs:
        raise run.fail(
            "exceeded_max_runs",
            "Max number of automated turns reached. You may continue if desired. "
            f"(max_runs is {run.max_runs} model calls)",
        )
    run.cycle += 1
    run.emit(CycleStarted(cycle=run.cycle))


async def repair(run: Run) -> None:
    """Repair the history: every tool call has exactly one result [loop, not middleware]."""
    messages, repairs = run.history.check(run.state.messages)
    run.sound = messages
    if repairs:
        run.state = run.state.with_messages(messages)
        run.emit(HistoryRepaired(cycle=run.cycle, repairs=repairs))


async def before_model(run: Run) -> None:
    """before_model ↓."""
    await run_hooks(run, "before_model")
    run.emit(MiddlewarePrepared(cycle=run.cycle, state=run.state))


async def after_model(run: Run) -> None:
    """after_model ↑."""
    await run_hooks(run, "after_model")


CYCLE: tuple[Step, ...] = (check_limits, repair, before_model, ask_model, after_model, run_tools)
"""One pass of the loop, in order. `agent.explain()` prints it from here."""


def needs_model(run: Run) -> bool:
    """Again while there is something the model has not seen: tool results, or a message that a hook put in."""
    return run.state.messages[-1].role in ("user", "tool") if run.state.messages else False


@asynccontextmanager
async def agent_hooks(run: Run) -> AsyncIterator[None]:
    """before_agent ↓ at the beginning of a leg, after_agent ↑ at its end, whatever the way out."""
    try:
        await _before_agent(run)
        yield
        failures = await _after_agent(run)
    except BaseException:
        # The first failure is the one to report; what an after_agent hook raises now is in the record.
        await _after_agent(run)
        raise
    if failures:
        raise failures[0]


async def _before_agent(run: Run) -> None:
    hooks = {bound.middleware: bound for bound in run.agent.stack.hooks("before_agent")}
    for name in run.agent.stack.names:
        run.entered.add(name)
        if name in hooks:
            await call_hook(run, hooks[name])


async def _after_agent(run: Run) -> list[Exception]:
    """Run after_agent, once, of every middleware that before_agent came to, also when one of them fails."""
    limit = LEAVE_TIMEOUT if stop_requests() else None
    failures: list[Exception] = []
    try:
        async with asyncio.timeout(limit):
            for bound in run.agent.stack.hooks("after_agent"):
                if bound.middleware in run.entered:
                    run.entered.remove(bound.middleware)
                    try:
                        await call_hook(run, bound)
                    except (AgentError, ModelError, CallbackFailed) as failure:
                        failures.append(failure)
    except TimeoutError as late:
        failures.append(late)
    return failures
