"""Cycles put together from the steps of the loop."""

from __future__ import annotations

from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Interrupt,
    Middleware,
    ScriptedModel,
    State,
    ToolCall,
    tool,
)
from sagents_nb.execution import modes, steps
from sagents_nb.execution.modes import Mode
from sagents_nb.execution.run import Run
from sagents_nb.execution.tool_calls import run_tools
from sagents_nb.hooks import HookRun


@tool
async def work(fail: bool = False) -> str:
    """Work."""
    if fail:
        raise ValueError("no")
    return "worked"


def call(id: str, **arguments: Any) -> ToolCall:
    return ToolCall("work", arguments, id=id)


READY: list[tuple[Mode, list[Any], list[str], int]] = [
    # the mode, what the model says, roles afterwards, model calls
    (modes.DEFAULT, [call("a"), "done"], ["user", "assistant", "tool", "assistant"], 2),
    (modes.ONE_CALL, [call("a"), "never"], ["user", "assistant"], 1),
    (modes.ONE_CYCLE, [call("a"), "never"], ["user", "assistant", "tool"], 1),
    (modes.ONE_CYCLE, ["done"], ["user", "assistant"], 1),
    (modes.UNTIL_SUCCESS, [call("a"), "never"], ["user", "assistant", "tool"], 1),
    (
        modes.UNTIL_SUCCESS,
        [call("a", fail=True), call("b"), "never"],
        ["user", "assistant", "tool", "assistant", "tool"],
        2,
    ),
    (modes.UNTIL_SUCCESS, [call("a", fail=True), "gave up"], ["user", "assistant", "tool", "assistant"], 2),
]


@pytest.mark.parametrize(("mode", "turns", "roles", "calls"), READY)
async def test_what_a_mode_does(mode: Mode, turns: list[Any], roles: list[str], calls: int) -> None:
    model = ScriptedModel(turns)
    result = await Agent(model=model, tools=[work], mode=mode).execute("go")
    assert result.status == "completed"
    assert [message.role for message in result.state.messages] == roles
    assert len(model.requests) == calls


async def test_one_cycle_after_the_other_is_the_whole_run() -> None:
    model = ScriptedModel([call("a"), call("b"), "done"])
    agent = Agent(model=model, tools=[work], mode=modes.ONE_CYCLE)
    state = State.from_text("go")
    for _ in range(3):
        state = (await agent.execute(state)).state
    assert [m.role for m in state.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert state.last_text == "done"


async def test_a_step_of_ones_own_stands_where_it_is_put_and_may_stop_the_run() -> None:
    log: list[str] = []

    async def review(run: Run) -> None:
        """Have somebody look at the calls."""
        log.append(f"review {[call.id for call in run.state.messages[-1].tool_calls]}")
        if len(log) == 1:
            run.interrupt(Interrupt("pause", "have a look"), "review")

    place = steps.CYCLE.index(run_tools)
    mode = Mode("reviewed", (*steps.CYCLE[:place], review, *steps.CYCLE[place:]))
    model = ScriptedModel([call("a"), "done"])
    agent = Agent(model=model, tools=[work], mode=mode)
    assert "Have somebody look at the calls" in agent.explain()
    result = await agent.execute("go")
    assert (result.status, log) == ("paused", ["review ['a']"])
    assert [m.role for m in result.state.messages] == ["user", "assistant"]
    result = await agent.resume(result.state)
    assert result.text == "done"
    assert log == ["review ['a']", "review []"]


class Stops(Middleware):
    """Stops the run in a hook."""

    hook: str

    def before_model(self, state: State, run: HookRun) -> Any:
        return Interrupt("halt", "stop") if self.hook == "before_model" else None

    def after_model(self, state: State, run: HookRun) -> Any:
        return Interrupt("halt", "stop") if self.hook == "after_model" else None


@pytest.mark.parametrize(("hook", "calls"), [("before_model", 0), ("after_model", 1)])
async def test_after_a_step_that_ends_the_cycle_no_other_runs(hook: str, calls: int) -> None:
    ran: list[str] = []

    async def last(_run: Run) -> None:
        ran.append("last")

    model = ScriptedModel([call("a"), "done"])
    agent = Agent(model=model, tools=[work], middleware=[Stops(hook=hook)], mode=Mode("x", (*steps.CYCLE, last)))
    result = await agent.execute("go")
    assert (result.status, len(model.requests), ran) == ("interrupted", calls, [])


async def test_the_limits_hold_in_a_cycle_of_ones_own() -> None:
    model = ScriptedModel([call("a")], repeat=True)
    agent = Agent(model=model, tools=[work], mode=Mode("raw", tuple(s for s in steps.CYCLE if s is not steps.repair)))
    with pytest.raises(AgentError) as caught:
        await agent.execute("go", max_runs=4)
    assert (caught.value.type, len(model.requests)) == ("exceeded_max_runs", 4)


WRONG: list[tuple[Any, str]] = [
    (lambda: Mode("empty", ()), "Mode('empty'): steps are async functions of the run, got None"),
    (lambda: Mode("odd", ("x",)), "got 'x'"),  # type: ignore[arg-type]
    (lambda: Mode("twice", (steps.repair, steps.repair)), "Mode('twice') has two steps named 'repair'"),
    (lambda: Agent(model=ScriptedModel([]), mode="fast"), "Agent(mode=…) takes a Mode of sagents_nb.execution.modes"),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_what_is_no_mode_is_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert words in str(caught.value)
