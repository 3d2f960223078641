"""The steps of a cycle. Each takes the run, changes its State or notes why it has to stop, and gives nothing back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from sagents_nb.events import CycleStarted, HistoryRepaired, MiddlewarePrepared
from sagents_nb.execution.gate import gate
from sagents_nb.execution.hooks import run_hooks
from sagents_nb.execution.model_call import ask_model
from sagents_nb.execution.run import MAX_FAILURES, Run
from sagents_nb.execution.tool_calls import run_tools
from sagents_nb.execution.waiting_calls import waiting_calls
from sagents_nb.interrupts import Pause

Step = Callable[[Run], Awaitable[None]]

logger = logging.getLogger("sagents_nb")


async def check_limits(run: Run) -> None:
    """Check limits [loop]."""
    if run.failures >= MAX_FAILURES:
        raise run.fail(
            "exceeded_failure_count",
            f"in {MAX_FAILURES} turns in a row all tool calls failed; the tool results in .state say why",
        )
    if run.cycle >= run.max_runs:
        logger.warning(
            "agent %s exceeded max_runs limit: Exceeded maximum number of runs (%d/%d); Agent(max_runs=…) sets another",
            run.agent_id,
            run.cycle,
            run.max_runs,
        )
        error = run.fail("exceeded_max_runs", "Max number of automated turns reached. You may continue if desired.")
        error.add_note(f"Exceeded maximum number of runs ({run.cycle}/{run.max_runs}): max_runs counts model calls")
        raise error
    run.cycle += 1
    run.emit(CycleStarted(cycle=run.cycle))


async def check_pause(run: Run) -> None:
    """Pause, if somebody asked for it and something is left to do [loop]."""
    if run.wants_pause() and (run.needs_model or waiting_calls(run.state)):
        run.interrupt(Pause(), run.agent_id)


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


async def check_until(run: Run) -> None:
    """End the run with the tool it was to run until, if that was called [loop]."""
    run.tool_result = run.until.reached(run.state) if run.unseen else None
    if run.tool_result is not None:
        run.finished = True
    elif run.until.names and not run.needs_model:
        names = ", ".join(run.until.names)
        raise run.fail(
            "until_tool_not_called",
            f"Agent completed without calling target tool(s) {names}"
            + (" successfully" if run.until.success else "")
            + "; its last words are in .state",
        )


async def finish(run: Run) -> None:
    """End the run after this cycle, whatever is left to do [loop]."""
    run.finished = True


async def finish_without_errors(run: Run) -> None:
    """End the run when the tools of this cycle answered without an error [loop]."""
    last = run.state.messages[-1] if run.state.messages else None
    if last is not None and last.role == "tool" and not any(result.is_error for result in last.tool_results):
        run.finished = True


CYCLE: tuple[Step, ...] = (
    check_pause,
    check_limits,
    repair,
    before_model,
    ask_model,
    after_model,
    check_pause,
    gate,
    run_tools,
    check_until,
)
"""One pass of the loop, in order. `agent.explain()` prints it from here."""
