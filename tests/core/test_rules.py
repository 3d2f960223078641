"""Rules of safety, order and ownership: each holds, and would not without the code that keeps it.

A rule is a function that asserts. It runs once as it is; then again with the rule switched off in the code under test,
where it must fail: so that a rule which nobody keeps any more cannot go unnoticed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    Message,
    Middleware,
    ScriptedModel,
    State,
    StateUpdate,
    ToolCall,
    ToolContext,
    ToolResult,
    tool,
    tools as tools_module,
)
from sagents_nb.events import StateUpdated
from sagents_nb.execution import loop, model_call, steps, tool_calls
from sagents_nb.execution.run import Run
from sagents_nb.frozen import FrozenList
from tests.support.cancelled import state_reached


@tool
async def add(by: int, context: ToolContext) -> tuple[str, StateUpdate]:
    "The smaller, the later it answers."
    await asyncio.sleep(0.01 * (4 - by))
    seen = context.state.get_metadata("sum", 0)
    return f"saw {seen}", StateUpdate(metadata={"sum": seen + by, f"by {by}": True})


in_turn = tool(name="in_turn", sequential=True)(add.function)


@tool
async def bad() -> str:
    "Fails."
    raise ValueError("x")


async def batch(name: str) -> tuple[list[str], State, list[tuple[str, ...]]]:
    turn = [ToolCall(name, {"by": by}) for by in (1, 2, 3)]
    result = await Agent(model=ScriptedModel([turn, "done"]), tools=[add, in_turn]).execute("go")
    conflicts = [event.conflicts for event in result.events if isinstance(event, StateUpdated)]
    return [r.text for r in result.state.messages[2].tool_results], result.state, conflicts


async def updates_fold_in_call_order_and_the_later_wins() -> None:
    _, state, _ = await batch("add")
    assert state.metadata == {"sum": 3, "by 1": True, "by 2": True, "by 3": True}
    assert list(state.metadata) == ["sum", "by 1", "by 2", "by 3"]


def folded_backwards(patch: pytest.MonkeyPatch) -> None:
    real = tool_calls._fold
    patch.setattr(tool_calls, "_fold", lambda run, results, snapshot: real(run, results[::-1], snapshot))


async def two_writes_of_one_key_are_told() -> None:
    _, _, conflicts = await batch("add")
    assert conflicts == [("sum", "sum")]


def one_by_one(patch: pytest.MonkeyPatch) -> None:
    real = tool_calls._fold

    def fold(run: Any, results: Any, snapshot: Any) -> None:
        for result in results:
            real(run, [result], snapshot)

    patch.setattr(tool_calls, "_fold", fold)


async def tools_of_one_batch_see_one_snapshot() -> None:
    texts, _, _ = await batch("add")
    assert texts == ["saw 0", "saw 0", "saw 0"]


async def sequential_tools_see_the_one_before() -> None:
    texts, state, _ = await batch("in_turn")
    assert texts == ["saw 0", "saw 1", "saw 3"]
    assert state.metadata["sum"] == 6


def all_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tool_calls, "_batches", lambda run, calls: ([place] for place in range(len(calls))))


def all_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tool_calls, "_batches", lambda run, calls: [list(range(len(calls)))])


async def every_call_has_one_result_when_the_run_is_stopped() -> None:
    started = asyncio.Event()

    @tool
    async def endless() -> str:
        "Never."
        started.set()
        await asyncio.sleep(60)
        return "?"

    agent = Agent(model=ScriptedModel([[ToolCall("endless", id="a"), ToolCall("endless", id="b")]]), tools=[endless])
    task = asyncio.ensure_future(agent.execute("go"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    state = state_reached(caught.value)
    assert [[r.tool_call_id for r in m.tool_results] for m in state.messages if m.role == "tool"] == [["a", "b"]]


async def a_timeout_around_execute_is_a_timeout() -> None:
    @tool
    async def endless() -> str:
        "Never."
        await asyncio.sleep(60)
        return "?"

    agent = Agent(model=ScriptedModel([ToolCall("endless")]), tools=[endless])
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0.05):
            await agent.execute("go")
    assert caught.value.__cause__ is not None
    assert [m.role for m in state_reached(caught.value.__cause__).messages] == ["user", "assistant", "tool"]


async def test_a_timeout_around_execute_is_a_timeout() -> None:
    await a_timeout_around_execute_is_a_timeout()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on asyncio.timeout takes subclasses too")
async def test_were_the_cancellation_of_a_class_of_its_own_it_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(asyncio.CancelledError):
        pass

    def instead(_cancelled: asyncio.CancelledError, _state: State) -> None:
        raise Own

    monkeypatch.setattr(loop, "carry_state", instead)
    with pytest.raises(Own):
        await a_timeout_around_execute_is_a_timeout()


def no_results_when_stopped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tool_calls, "not_executed", lambda call, text: ToolResult(text, tool_call_id="?"))


async def n_means_n_model_calls_each_answered() -> None:
    for limit in (1, 2, 5):
        model = ScriptedModel([ToolCall("add", {"by": 3})], repeat=True)
        with pytest.raises(AgentError) as caught:
            await Agent(model=model, tools=[add], max_runs=limit).execute("go")
        assert caught.value.type == "exceeded_max_runs"
        assert len(model.requests) == limit
        assert len(caught.value.state.messages) == 1 + 2 * limit
        enough = ScriptedModel([*[ToolCall("add", {"by": 3})] * (limit - 1), "done"])
        assert (await Agent(model=enough, tools=[add], max_runs=limit).execute("go")).text == "done"


def limit_after_the_model(patch: pytest.MonkeyPatch) -> None:
    """As the reference has it: N means N - 1 useful calls."""
    late = (
        steps.repair,
        steps.before_model,
        model_call.ask_model,
        steps.check_limits,
        steps.after_model,
        tool_calls.run_tools,
    )
    patch.setattr(Run, "steps_left", lambda _run: late)


async def three_failed_turns_in_a_row_end_the_run_and_a_good_one_begins_anew() -> None:
    fails, works = ToolCall("bad"), ToolCall("add", {"by": 3})
    for turns, calls in (([fails] * 9, 3), ([fails, fails, works, fails, fails, works, fails, fails, fails], 9)):
        model = ScriptedModel([*turns, "done"])
        with pytest.raises(AgentError) as caught:
            await Agent(model=model, tools=[add, bad]).execute("go")
        assert caught.value.type == "exceeded_failure_count"
        assert len(model.requests) == calls


def no_failures_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "MAX_FAILURES", 99)


async def a_tool_that_fails_never_fails_the_run() -> None:
    result = await Agent(model=ScriptedModel([ToolCall("bad"), "done"]), tools=[bad]).execute("go")
    assert result.status == "completed"
    assert result.state.messages[2].tool_results[0].text == "ERROR: (ValueError) x"


def failures_pass(patch: pytest.MonkeyPatch) -> None:
    def error(call: Any, text: str) -> ToolResult:
        raise RuntimeError(text)

    patch.setattr(tool_calls, "_error", error)


async def names_of_the_toolkit_win() -> None:
    @tool
    async def look(context: ToolContext) -> str:
        "Looks."
        return f"{context['scope']} {context.scope} {context['agent_id']}"

    agent = Agent(
        model=ScriptedModel([ToolCall("look"), "done"]),
        tools=[look],
        scope="real",
        agent_id="me",
        tool_context={"scope": "forged", "agent_id": "forged"},
    )
    result = await agent.execute("go")
    assert result.state.messages[2].tool_results[0].text == "real real me"


def callers_names_win(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tools_module, "_CONTEXT_NAMES", ())


async def an_old_state_is_what_it_was() -> None:
    class Careless(Middleware):
        def before_model(self, state: State, run: Any) -> None:
            state.metadata["list"].append("mine")

    before = State.from_text("go", metadata={"list": [1]})
    with pytest.raises(AgentError, match=r"state.put_metadata\('key', value\) gives a changed State"):
        await Agent(model=ScriptedModel(["hi"]), middleware=[Careless()]).execute(before)
    assert before.metadata == {"list": [1]}


def plain_dicts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FrozenList, "append", list.append)


async def after_agent_runs_for_all_who_were_entered_when_stopped() -> None:
    left: list[str] = []
    reached = asyncio.Event()

    class Leaves(Middleware):
        async def after_agent(self, state: State, run: Any) -> None:
            left.append(self.name)

    class Waits(Middleware):
        async def before_model(self, state: State, run: Any) -> None:
            reached.set()
            await asyncio.sleep(60)

    stack = [Leaves(name="A"), Waits(), Leaves(name="C")]
    task = asyncio.ensure_future(Agent(model=ScriptedModel(["hi"]), middleware=stack).execute("go"))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == ["C", "A"]


def leaves_nobody(patch: pytest.MonkeyPatch) -> None:
    async def nobody(run: Any) -> list[Exception]:
        return []

    patch.setattr(loop, "_after_agent", nobody)


async def the_door_stands_after_the_wrap_hooks() -> None:
    class Cuts(Middleware):
        async def wrap_model_call(self, request: Any, call_next: Any) -> Message:
            message: Message = await call_next(request.replace(messages=request.messages[:2]))
            return message

    model = ScriptedModel([ToolCall("add", {"by": 3}, id="c"), "done"])
    await Agent(model=model, tools=[add], middleware=[Cuts()]).execute("go")
    assert [m.role for m in model.requests[1].messages] == ["user", "assistant", "tool"]


def no_door(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_call, "repair_history", lambda messages: (messages, ()))


async def a_result_belongs_to_its_call() -> None:
    class Mixes(Middleware):
        async def wrap_tool_call(self, call: ToolCall, context: Any, call_next: Any) -> ToolResult:
            return ToolResult("made", tool_call_id="another's", name="another")

    turn = [ToolCall("add", {"by": 1}, id="a"), ToolCall("add", {"by": 2}, id="b")]
    result = await Agent(model=ScriptedModel([turn, "done"]), tools=[add], middleware=[Mixes()]).execute("go")
    answers = [(r.tool_call_id, r.name, r.text) for r in result.state.messages[2].tool_results]
    assert answers == [("a", "add", "made"), ("b", "add", "made")]


def results_as_they_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tool_calls, "_settle", lambda run, call, context, result: result)


RULES: list[tuple[Callable[[], Awaitable[None]], Callable[[pytest.MonkeyPatch], None]]] = [
    (updates_fold_in_call_order_and_the_later_wins, folded_backwards),
    (two_writes_of_one_key_are_told, one_by_one),
    (tools_of_one_batch_see_one_snapshot, all_alone),
    (sequential_tools_see_the_one_before, all_at_once),
    (every_call_has_one_result_when_the_run_is_stopped, no_results_when_stopped),
    (n_means_n_model_calls_each_answered, limit_after_the_model),
    (three_failed_turns_in_a_row_end_the_run_and_a_good_one_begins_anew, no_failures_counted),
    (a_tool_that_fails_never_fails_the_run, failures_pass),
    (names_of_the_toolkit_win, callers_names_win),
    (an_old_state_is_what_it_was, plain_dicts),
    (after_agent_runs_for_all_who_were_entered_when_stopped, leaves_nobody),
    (the_door_stands_after_the_wrap_hooks, no_door),
    (a_result_belongs_to_its_call, results_as_they_come),
]


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES])
async def test_the_rule_holds(rule: Callable[[], Awaitable[None]]) -> None:
    await rule()


@pytest.mark.parametrize(("rule", "switch_off"), RULES)
async def test_without_the_code_that_keeps_it_the_rule_fails(
    rule: Callable[[], Awaitable[None]],
    switch_off: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch_off(monkeypatch)
    with pytest.raises((AssertionError, AgentError, RuntimeError, pytest.fail.Exception)):
        await rule()
