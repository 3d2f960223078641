"""The loop, written once: run, stream, sessions and sub-agents all go through here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sagents_nb.errors import AgentError, ModelError, carry_state
from sagents_nb.events import RunEnded, RunStarted
from sagents_nb.execution.callbacks import CallbackFailed
from sagents_nb.execution.cancellation import stop_requests
from sagents_nb.execution.heartbeat import heartbeat
from sagents_nb.execution.hooks import call_hook
from sagents_nb.execution.run import Run
from sagents_nb.interrupts import END

LEAVE_TIMEOUT = 5.0
"""Seconds the after_agent hooks get when the run was cancelled: Stop must not wait for them for ever."""


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
    run.task, run.stop_requests = asyncio.current_task(), stop_requests()
    run.agent.running.add(run)
    try:
        run.emit(RunStarted(resumed=run.resumed))
        with heartbeat():
            async with agent_hooks(run):
                go_on = run.step != END and not run.stop_if_interrupted(run.step)
                while go_on:
                    go_on = await cycle(run)
            run.stop_if_interrupted(END)  # an after_agent hook may ask for a person too
        status = run.outcome
    except asyncio.CancelledError as cancelled:
        status = "cancelled"
        carry_state(cancelled, run.state)
        raise
    except (ModelError, CallbackFailed, AgentError) as failure:
        kind = "callback_error" if isinstance(failure, CallbackFailed) else failure.type
        error = run.fail(kind, str(failure))
        for note in getattr(failure, "__notes__", ()):
            error.add_note(note)
        raise error from failure
    except Exception as failure:  # a mistake of the toolkit itself; what was recorded must still say what happened
        words = f"{type(failure).__name__}: {failure}"
        raise
    finally:
        run.end()
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
    """One pass of the loop, or what is left of one that was stopped.

    Returns:
        Whether there is to be another: while there is something the model has not seen.
    """
    steps = run.steps_left()
    for place, step in enumerate(steps):
        await step(run)
        if run.asked_to_stop:  # a hook or a tool swallowed the cancellation; Stop is Stop
            raise asyncio.CancelledError
        if run.interrupts:
            run.stop_if_interrupted(steps[place + 1].__name__ if place + 1 < len(steps) else run.after_cycle)
            return False
    return run.needs_model and not run.finished


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
