"""What the model asked for is run, answered in order, and never the end of the run."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from sagents_nb import (
    Agent,
    AgentError,
    Halt,
    Interrupt,
    Message,
    Middleware,
    ScriptedModel,
    State,
    StateUpdate,
    Text,
    Todo,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
)
from sagents_nb.events import StateUpdated, ToolAbandoned, ToolEnded
from sagents_nb.execution import capture, model_call, steps, tool_calls
from sagents_nb.execution.repair import HistoryKeeper
from sagents_nb.execution.result import RunResult
from tests.support.cancelled import state_reached


async def run(tools: list[Any], *calls: ToolCall, **options: Any) -> tuple[RunResult, ScriptedModel]:
    model = ScriptedModel([list(calls), "done"])
    return await Agent(model=model, tools=tools, **options).execute("go"), model


def answers(result: RunResult) -> list[tuple[str, str, bool]]:
    return [(r.tool_call_id, r.text, r.is_error) for r in result.state.messages[2].tool_results]


@tool
async def late(n: int) -> str:
    "The smaller n, the later."
    await asyncio.sleep(0.05 * (4 - n))
    return f"late {n}"


@tool
def slow(n: int) -> str:
    "In a thread."
    time.sleep(0.03 * (4 - n))
    return f"slow {n}"


async def in_call_order() -> None:
    calls = [ToolCall("late", {"n": 1}, id="a"), ToolCall("slow", {"n": 2}, id="b"), ToolCall("late", {"n": 3}, id="c")]
    result, model = await run([late, slow], *calls)
    expected = [("a", "late 1", False), ("b", "slow 2", False), ("c", "late 3", False)]
    assert answers(result) == expected
    assert [r.tool_call_id for r in model.requests[1].messages[2].tool_results] == ["a", "b", "c"]


async def test_results_stand_in_the_order_of_the_calls_whoever_is_first() -> None:
    await in_call_order()


async def test_without_places_the_order_would_be_that_of_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tool_calls._run_batch

    async def as_they_come(run: Any, calls: Any, batch: Any, results: Any, snapshot: Any) -> None:
        await real(run, calls, batch, results, snapshot)
        results.reverse()

    monkeypatch.setattr(tool_calls, "_run_batch", as_they_come)
    # The repair of the history would put them right again.
    monkeypatch.setattr(HistoryKeeper, "check", lambda self, messages: (messages, ()))
    monkeypatch.setattr(model_call, "repair_history", lambda messages: (messages, ()))
    with pytest.raises(AssertionError):
        await in_call_order()


async def test_calls_of_one_message_run_beside_each_other() -> None:
    meeting = threading.Barrier(2, timeout=5)

    @tool
    def meet() -> str:
        "Waits for the other one."
        meeting.wait()
        return "met"

    result, _ = await run([meet], ToolCall("meet"), ToolCall("meet"))
    assert [text for _, text, _ in answers(result)] == ["met", "met"]


async def test_a_sequential_tool_runs_alone_and_sees_what_the_one_before_it_changed() -> None:
    running = 0

    @tool(sequential=True)
    async def step(context: ToolContext) -> tuple[str, StateUpdate]:
        "Counts up."
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.01)
        running -= 1
        n = context.state.get_metadata("n", 0)
        return f"saw {n}", StateUpdate(metadata={"n": n + 1})

    result, _ = await run([step], *[ToolCall("step") for _ in range(3)])
    assert [text for _, text, _ in answers(result)] == ["saw 0", "saw 1", "saw 2"]
    assert result.state.metadata == {"n": 3}


async def test_tools_of_one_batch_see_one_snapshot_and_the_later_write_wins_and_is_told() -> None:
    @tool
    async def bump(by: int, context: ToolContext) -> tuple[str, State]:
        "Adds to what it was given."
        await asyncio.sleep(0.02 / by)
        return "ok", context.state.put_metadata("n", context.state.get_metadata("n", 0) + by)

    result, _ = await run([bump], ToolCall("bump", {"by": 1}), ToolCall("bump", {"by": 5}), ToolCall("bump", {"by": 2}))
    assert result.state.metadata == {"n": 2}
    told = [event for event in result.events if isinstance(event, StateUpdated)]
    assert [event.conflicts for event in told] == [("n", "n")]
    assert [str(change) for change in told[0].changes] == ["+ metadata.n: 2"]


@dataclass
class Point:
    x: int
    y: int


class Shape(BaseModel):
    name: str


RETURNED: list[tuple[Any, str, Any]] = [
    ("text", "text", None),
    ("", "(no output)", None),
    ("  \n", "(no output)", None),
    (None, "(no output)", None),
    (123, "123", 123),
    (True, "true", True),
    ({"a": [1, None]}, '{"a":[1,null]}', {"a": [1, None]}),
    ([], "[]", []),
    ([1, 2], "[1,2]", [1, 2]),
    (Point(1, 2), '{"x":1,"y":2}', Point(1, 2)),
    (Shape(name="s"), '{"name":"s"}', Shape(name="s")),
    (Text("part"), "part", None),
    ([Text("a"), Text("b")], "a\n\nb", None),
    (ToolResult("mine", processed=7), "mine", 7),
    (ToolResult("mine", tool_call_id="wrong", name="wrong"), "mine", None),
    (("seen", {"value": 1}), "seen", {"value": 1}),
]


@pytest.mark.parametrize(("value", "text", "processed"), RETURNED)
async def test_what_a_tool_may_return(value: Any, text: str, processed: Any) -> None:
    @tool
    def give() -> Any:
        "Gives it."
        return value

    result, _ = await run([give], ToolCall("give", id="c1"))
    answer = result.state.messages[2].tool_results[0]
    assert (answer.tool_call_id, answer.name, answer.text, answer.is_error) == ("c1", "give", text, False)
    assert answer.processed == processed


@dataclass
class Odd:
    it: Any


FAILED: list[tuple[Callable[[], Any], str]] = [
    (lambda: 1 / 0, "ERROR: (ZeroDivisionError) division by zero"),
    (lambda: _throw(RuntimeError("Boom!")), "ERROR: (RuntimeError) Boom!"),
    (lambda: _throw(ToolError("no such file: try list_files")), "no such file: try list_files"),
    (lambda: _throw(StopIteration("x")), "StopIteration"),
    (lambda: _throw(SystemExit(3)), "ERROR: (SystemExit) 3"),
    (lambda: _throw(TimeoutError("mine")), "ERROR: (TimeoutError) mine"),
    (lambda: object(), "Tool give returned a object, which has no JSON form"),
    (lambda: float("nan"), ""),
    (lambda: ("x", State(metadata={"a": 1})), "was not made from context.state"),
    (lambda: ToolResult("x", update={"metadata": {}}), "the update is a dict; it is a StateUpdate"),
]


def _throw(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(("body", "words"), FAILED)
async def test_whatever_goes_wrong_in_a_tool_is_an_error_the_model_sees(body: Callable[[], Any], words: str) -> None:
    @tool
    def give() -> Any:
        "Goes wrong."
        return body()

    result, model = await run([give], ToolCall("give"))
    assert result.status == "completed"
    answer = model.requests[1].messages[2].tool_results[0]
    assert words in answer.text
    assert answer.is_error == (words != "")


ASKED_WRONGLY: list[tuple[ToolCall, str]] = [
    (ToolCall("lat", {"n": 1}), "Tool call made to lat but tool not found (did you mean 'late'?). Tools: late, find."),
    (
        ToolCall("find", {"file_path": "/a"}),
        "Missing parameters: path. Got file_path (did you mean 'path'?). Parameters of find: path, depth.",
    ),
    (ToolCall("find", {"path": "/a", "depth": "deep"}), "depth: Input should be a valid integer"),
    (ToolCall("find", {"path": None}), "path: Input should be a valid string, got None."),
    (ToolCall("late", {}, invalid_arguments='{"n": '), "The arguments of late were not a JSON object"),
]


@pytest.mark.parametrize(("call", "words"), ASKED_WRONGLY)
async def test_a_wrong_call_is_answered_in_words_the_model_can_act_on(call: ToolCall, words: str) -> None:
    ran = []

    @tool
    def find(path: str, depth: int = 1) -> str:
        "Finds."
        ran.append(path)
        return "found"

    result, _ = await run([late, find], call)
    _, text, is_error = answers(result)[0]
    assert is_error
    assert words in text
    assert ran == []


async def test_arguments_are_converted_before_the_body_runs() -> None:
    got: list[Any] = []

    @tool
    def take(when: int, shape: Shape, tags: list[str] = ["x"]) -> str:  # noqa: B006 - a default that must stay itself
        "Takes."
        got.extend([when, shape, tags])
        return "ok"

    await run([take], ToolCall("take", {"when": "5", "shape": {"name": "s"}}))
    assert got == [5, Shape(name="s"), ["x"]]


async def test_a_tool_that_takes_too_long_is_given_up_and_its_late_result_dropped() -> None:
    release = threading.Event()
    seen: list[bool] = []

    @tool(timeout=0.1)
    def stuck(context: ToolContext) -> tuple[str, StateUpdate]:
        "Never ends in time."
        release.wait(5)
        seen.append(context.cancelled)
        return "late", StateUpdate(metadata={"late": True})

    @tool(timeout=0.05)
    async def sleepy() -> str:
        "Neither."
        await asyncio.sleep(5)
        return "late"

    result, _ = await run([stuck, sleepy], ToolCall("stuck"), ToolCall("sleepy"))
    assert [(text, error) for _, text, error in answers(result)] == [
        ("Tool stuck did not answer within 0.1 s and was given up.", True),
        ("Tool sleepy did not answer within 0.05 s and was given up.", True),
    ]
    assert [e.call.name for e in result.events if isinstance(e, ToolAbandoned)] == ["stuck"]
    release.set()
    await asyncio.sleep(0.1)
    assert seen == [True]
    assert result.state.metadata == {}


async def test_stopping_keeps_what_was_answered_and_says_what_was_not() -> None:
    @tool
    async def quick() -> str:
        "At once."
        return "quick"

    @tool
    async def endless() -> str:
        "Never."
        await asyncio.sleep(60)
        return "?"

    agent = Agent(model=ScriptedModel([[ToolCall("quick"), ToolCall("endless")], "after"]), tools=[quick, endless])
    task = asyncio.ensure_future(agent.execute("go"))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    results = state_reached(caught.value).messages[2].tool_results
    assert [(r.text, r.is_error) for r in results] == [
        ("quick", False),
        ("Tool call endless was stopped by the user before it was completed.", True),
    ]
    assert (await agent.execute(state_reached(caught.value).add_message("go on"))).text == "after"


async def prints() -> tuple[list[str], str]:
    """What two tools at once printed, and what the user printed meanwhile."""

    @tool
    def chatty(name: str) -> str:
        "Prints in a thread."
        for n in range(5):
            print(name, n)
            time.sleep(0.01)
        return "ok"

    @tool
    async def chatty_async(name: str) -> str:
        "Prints in a task."
        for n in range(5):
            print(name, n)
            await asyncio.sleep(0.01)
        return "ok"

    import io

    mine = io.StringIO()
    real, sys.stdout = sys.stdout, mine
    try:
        task = asyncio.ensure_future(
            run(
                [chatty, chatty_async],
                ToolCall("chatty", {"name": "a"}),
                ToolCall("chatty", {"name": "b"}),
                ToolCall("chatty_async", {"name": "c"}),
                ToolCall("chatty_async", {"name": "d"}),
            )
        )
        for _ in range(5):
            print("user")
            await asyncio.sleep(0.01)
        result, _ = await task
        assert sys.stdout is mine
    finally:
        sys.stdout = real
    outputs = {e.call.arguments["name"]: e.output for e in result.events if isinstance(e, ToolEnded)}
    return [outputs[name] for name in "abcd"], mine.getvalue()


async def test_what_tools_print_goes_to_their_calls_and_what_the_user_prints_to_the_user() -> None:
    outputs, mine = await prints()
    assert outputs == ["".join(f"{name} {n}\n" for n in range(5)) for name in "abcd"]
    assert mine == "user\n" * 5


async def test_without_the_router_the_outputs_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture._Router, "write", lambda self, text: self.stream.write(text))
    outputs, mine = await prints()
    assert outputs == ["", "", "", ""]
    assert "a 0" in mine


async def three_failed_turns() -> list[int]:
    model = ScriptedModel([ToolCall("bad")], repeat=True)

    @tool
    def bad() -> str:
        "Fails."
        raise RuntimeError("no")

    with pytest.raises(AgentError) as caught:
        await Agent(model=model, tools=[bad], max_runs=10).execute("go")
    assert caught.value.type == "exceeded_failure_count"
    return [len(model.requests), len(caught.value.state.messages)]


async def test_three_turns_in_a_row_in_which_all_calls_failed_end_the_run() -> None:
    assert await three_failed_turns() == [3, 7]


async def test_without_that_limit_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MAX_FAILURES", 99)
    with pytest.raises(AssertionError):
        await three_failed_turns()


async def test_one_good_call_among_bad_ones_is_no_failed_turn() -> None:
    @tool
    def bad() -> str:
        "Fails."
        raise RuntimeError("no")

    turns = [[ToolCall("bad"), ToolCall("late", {"n": 3})]] * 4
    result = await Agent(model=ScriptedModel([*turns, "done"]), tools=[bad, late]).execute("go")
    assert result.text == "done"


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_limit_of_n_means_n_useful_calls_of_the_model(limit: int) -> None:
    model = ScriptedModel([ToolCall("late", {"n": 3})], repeat=True)
    agent = Agent(model=model, tools=[late], max_runs=limit)
    with pytest.raises(AgentError, match="Max number of automated turns reached") as caught:
        await agent.execute("go")
    assert caught.value.type == "exceeded_max_runs"
    assert len(model.requests) == limit
    assert len(caught.value.state.messages) == 1 + 2 * limit  # every call was answered
    enough = ScriptedModel([ToolCall("late", {"n": 3})] * (limit - 1) + ["done"])
    assert (await Agent(model=enough, tools=[late]).execute("go", max_runs=limit)).text == "done"


async def test_a_tool_updates_the_state_sparsely() -> None:
    @tool
    def plan(context: ToolContext) -> tuple[str, StateUpdate]:
        "Plans."
        return "planned", StateUpdate(
            todos=[Todo(id=1, content="one"), Todo(id=2, content="two")],
            metadata={"b": 2},
            messages=[Message("user", "(reminder)")],
        )

    @tool
    def revise(context: ToolContext) -> State:
        "Revises."
        state = context.state.put_metadata("c", 3).delete_metadata("a")
        return state.replace(todos=(state.todos[1], Todo(id=3, content="three")))

    model = ScriptedModel([ToolCall("plan"), ToolCall("revise"), "done"])
    state = State.from_text("go", metadata={"a": 1})
    result = await Agent(model=model, tools=[plan, revise]).execute(state)
    assert result.state.metadata == {"b": 2, "c": 3}
    assert [(t.id, t.content) for t in result.state.todos] == [(2, "two"), (3, "three")]
    assert [m.role for m in result.state.messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [("scope", "S"), ("state", None), ("agent_id", "me"), ("tool_call_id", "c1"), ("parent_tools", None)],
)
async def test_names_of_the_toolkit_win_over_equal_keys_of_the_caller(key: str, value: Any) -> None:
    seen: dict[str, Any] = {}

    @tool
    def look(context: ToolContext) -> str:
        "Looks."
        seen.update(attribute=getattr(context, key), item=context[key], given=context.tool_context[key])
        return "ok"

    await run([look], ToolCall("look", id="c1"), scope="S", agent_id="me", tool_context={key: "caller's"})
    assert seen["given"] == "caller's"
    assert seen["attribute"] is seen["item"] or seen["attribute"] == seen["item"]
    assert seen["attribute"] != "caller's"
    if value is not None:
        assert seen["attribute"] == value


async def test_an_unknown_name_in_the_context_is_answered_with_what_there_is() -> None:
    @tool
    def look(context: ToolContext) -> str:
        "Looks."
        return str(context.feature_flag)

    result, _ = await run([look], ToolCall("look"), tool_context={"feature_flags": 1})
    assert "has no 'feature_flag' (did you mean 'feature_flags'?)" in answers(result)[0][1]


async def test_a_halting_tool_stops_the_run_and_the_persons_next_message_goes_on() -> None:
    @tool
    def stop_here() -> Halt:
        "Halts."
        return Halt("Out of budget.")

    @tool
    def ask() -> Interrupt:
        "Asks."
        return Interrupt("question", "Which one?")

    model = ScriptedModel([[ToolCall("late", {"n": 3}), ToolCall("ask"), ToolCall("stop_here")], "all right"])
    agent = Agent(model=model, tools=[late, stop_here, ask])
    result = await agent.execute("go")
    assert result.status == "interrupted"
    assert result.interrupt is not None
    assert (result.interrupt.kind, result.interrupt.message) == ("halt", "Out of budget.")  # a halt wins
    assert [r.is_interrupt for r in result.state.messages[2].tool_results] == [False, True, True]
    again = await agent.execute(result.state.add_message("go on"))
    assert again.text == "all right"
    told = [(r.is_interrupt, r.is_error) for r in model.requests[1].messages[2].tool_results]
    assert told == [(False, False), (False, True), (False, True)]


async def test_a_wrap_hook_may_change_call_and_result_but_not_whose_result_it_is() -> None:
    class Shouts(Middleware):
        async def wrap_tool_call(self, call: ToolCall, context: ToolContext, call_next: Any) -> ToolResult:
            result = await call_next(call.replace(arguments={"n": 2}, id="other"))
            return ToolResult(result.text.upper(), tool_call_id="wrong", name="wrong")

    result, _ = await run([late], ToolCall("late", {"n": 3}, id="mine"), middleware=[Shouts()])
    assert answers(result) == [("mine", "LATE 2", False)]
