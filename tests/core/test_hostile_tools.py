"""Tools that do what no tool should: the model is told, the run goes on, nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Interrupt,
    Message,
    Middleware,
    ScriptedModel,
    State,
    StateUpdate,
    Text,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
)
from sagents_nb.events import Published, ToolAbandoned, ToolEnded
from sagents_nb.execution import threads, tool_calls
from sagents_nb.execution.result import RunResult
from tests.support.cancelled import state_reached


async def run(function: Any, *calls: ToolCall, **options: Any) -> tuple[RunResult, ScriptedModel]:
    model = ScriptedModel([list(calls) or [ToolCall("give")], "done"])
    given = function if isinstance(function, list) else [function]
    return await Agent(model=model, tools=given, **options).execute("go"), model


def answer(result: RunResult) -> ToolResult:
    return result.state.messages[2].tool_results[0]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def _cancels_itself() -> str:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task
    return "?"


def _raise(error: BaseException) -> Callable[[], Any]:
    def body() -> Any:
        raise error

    return body


IN_THREADS: list[tuple[Callable[[], Any], str]] = [
    (_raise(KeyboardInterrupt("mine")), "ERROR: (RuntimeError) KeyboardInterrupt raised: mine"),
    (_raise(GeneratorExit("mine")), "ERROR: (RuntimeError) GeneratorExit raised: mine"),
    (_raise(StopIteration("mine")), "ERROR: (RuntimeError) StopIteration raised: mine"),
    (_raise(SystemExit("usage: …")), "ERROR: (SystemExit) usage: …"),
    (_raise(asyncio.CancelledError()), "Tool give waited for something that was cancelled."),
    (_raise(Mute()), "ERROR: (Mute) (an error whose text cannot be made: its class Mute has a broken __str__)"),
    (_raise(ToolError("")), "(the tool failed and said nothing)"),
    (_raise(ToolError("half \ud800")), "half \ufffd"),
    (_raise(ExceptionGroup("many", [ValueError("one")])), "ERROR: (ExceptionGroup) many (1 sub-exception)"),
    (_cancels_itself, "Tool give waited for something that was cancelled."),
]


@pytest.mark.parametrize(("body", "words"), IN_THREADS)
async def test_whatever_a_tool_raises_is_told_to_the_model(body: Callable[[], Any], words: str) -> None:
    @tool
    def give() -> Any:
        "Goes wrong."
        return body()

    result, model = await run(give)
    assert result.status == "completed"
    assert (answer(result).text, answer(result).is_error) == (words, True)
    assert model.requests[1].messages[2].tool_results[0].text == words


@pytest.mark.parametrize("error", [SystemExit(2), Mute(), StopIteration("x"), asyncio.CancelledError()])
async def test_the_same_holds_on_the_loop_itself(error: BaseException) -> None:
    @tool
    async def give() -> Any:
        "Goes wrong."
        raise error

    result, _ = await run(give, ToolCall("give"), ToolCall("give"))
    assert [r.is_error for r in result.state.messages[2].tool_results] == [True, True]
    assert result.status == "completed"


async def tool_failures_stay_in_their_call() -> str:
    result, _ = await run(tool(name="give")(_cancels_itself))
    return result.status


async def test_a_tool_that_cancels_something_of_its_own_does_not_stop_the_run() -> None:
    assert await tool_failures_stay_in_their_call() == "completed"


async def test_without_asking_who_cancelled_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "stop_requests", lambda: 1)
    with pytest.raises(asyncio.CancelledError):
        await tool_failures_stay_in_their_call()


class HasNoForm:
    pass


RETURNED: list[tuple[Any, str, bool]] = [
    ({"half": "a\ud800"}, '{"half": "a\ufffd"}', False),
    ({1, 2}, "[1,2]", False),
    (b"bytes", "bytes", False),
    ([Text("  ")], "(no output)", False),
    (Text(""), "(no output)", False),
    (ToolResult("  \n"), "(no output)", False),
    (ToolResult(""), "(no output)", False),
    ((), "[]", False),
    ("x" * 300_000, "x" * 300_000, False),
    (b"\xff", "Tool give returned a bytes, which has no JSON form", True),
    ([HasNoForm()], "Tool give returned a list, which has no JSON form", True),
    (ToolResult("wait", is_interrupt=True), "says for what: return Interrupt(kind, message)", True),
    (ToolResult("x", update="nonsense"), "the update is a str; it is a StateUpdate(metadata={…}, …) or a State", True),
]


@pytest.mark.parametrize(("value", "text", "is_error"), RETURNED, ids=range(len(RETURNED)))
async def test_odd_values_become_text_or_an_error_in_words(value: Any, text: str, is_error: bool) -> None:
    @tool
    def give() -> Any:
        "Gives it."
        return value

    result, _ = await run(give)
    assert text in answer(result).text
    assert answer(result).is_error == is_error
    assert result.status == "completed"


async def test_a_value_that_contains_itself_is_an_error_in_words() -> None:
    @tool
    def give() -> Any:
        "Gives it."
        loop: list[Any] = []
        loop.append(loop)
        return loop

    result, _ = await run(give)
    assert "Tool give returned a list, which has no JSON form" in answer(result).text


async def test_a_def_that_returns_something_to_await_is_awaited() -> None:
    @tool
    async def inner() -> str:
        "Asks."
        await asyncio.sleep(0)
        print("said inside")
        return "inner"

    result, _ = await run(tool(name="give")(lambda: inner()))
    assert (answer(result).text, answer(result).is_error) == ("inner", False)
    assert [e.output for e in result.events if isinstance(e, ToolEnded)] == ["said inside\n"]


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [_generator, _async_generator])
def test_a_generator_is_refused_when_the_tool_is_made(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="is a generator, which has no one answer; collect and return a list"):
        tool(function)


async def test_a_tool_may_change_its_arguments_and_the_call_stays_as_it_was() -> None:
    @tool
    def give(data: dict[str, Any], anything: Any) -> str:
        "Sorts in place."
        data["items"].sort()
        anything["k"].append(3)
        return f"{data} {anything}"

    arguments = {"data": {"items": [2, 1]}, "anything": {"k": [1]}}
    result, _ = await run(give, ToolCall("give", arguments))
    assert answer(result).text == "{'items': [1, 2]} {'k': [1, 3]}"
    assert result.state.messages[1].tool_calls[0].arguments == {"data": {"items": [2, 1]}, "anything": {"k": [1]}}


async def test_events_that_a_tool_publishes_stand_before_its_end() -> None:
    @tool
    async def on_the_loop(context: ToolContext) -> str:
        "Publishes."
        context.publish("progress", {"done": 1})
        return "ok"

    @tool
    def in_a_thread(context: ToolContext) -> str:
        "Publishes."
        context.publish("progress", {"done": 2})
        return "ok"

    result, _ = await run([on_the_loop, in_a_thread], ToolCall("on_the_loop"), ToolCall("in_a_thread"))
    for name in ("on_the_loop", "in_a_thread"):
        kinds = [
            type(event).__name__
            for event in result.events
            if (isinstance(event, Published) and event.source == name)
            or (isinstance(event, ToolEnded) and event.call.name == name)
        ]
        assert kinds == ["Published", "ToolEnded"]


async def test_what_is_published_is_json_or_the_tool_is_told() -> None:
    @tool
    async def give(context: ToolContext) -> str:
        "Publishes."
        context.publish("progress", {"done": object()})
        return "ok"

    result, _ = await run(give)
    assert answer(result).text.startswith(
        "ERROR: (ValueError) data of 'progress'['done'] is a object, which is not JSON"
    )


async def late_tool() -> tuple[list[str], dict[str, Any]]:
    """What is recorded after a timed-out tool in a thread has really ended."""
    release, ended = threading.Event(), threading.Event()

    @tool(timeout=0.05)
    def give(context: ToolContext) -> tuple[str, StateUpdate]:
        "Too late."
        release.wait(5)
        context.publish("late", {})
        ended.set()
        return "late", StateUpdate(metadata={"late": True})

    result, _ = await run(give)
    release.set()
    await asyncio.to_thread(ended.wait, 5)
    await asyncio.sleep(0.02)
    kinds = [e.type for e in result.events if isinstance(e, (ToolAbandoned, ToolEnded, Published))]
    return [*kinds, answer(result).text], dict(result.state.metadata)


async def test_the_late_end_of_an_abandoned_tool_changes_nothing_and_is_seen() -> None:
    told = "Tool give did not answer within 0.05 s and was given up."
    assert await late_tool() == (["tool_abandoned", "tool_ended", told], {})


async def test_without_watching_for_the_end_nobody_would_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = threads.in_thread

    async def claims_to_have_ended(function: Any, *, name: str, on_end: Any = None) -> Any:
        on_end()
        return await real(function, name=name)

    monkeypatch.setattr(tool_calls, "in_thread", claims_to_have_ended)
    kinds, _ = await late_tool()
    assert "tool_abandoned" not in kinds


async def test_a_timeout_around_a_run_inside_a_tool_is_a_timeout_of_the_tool() -> None:
    """The inner run ends in a subclass of CancelledError, which asyncio.timeout leaves as it is."""
    inner = Agent(model=ScriptedModel(["x" * 1000], delay=0.05))

    @tool(timeout=0.1)
    async def give() -> str:
        "Runs an agent."
        return (await inner.execute("go")).text

    result, _ = await run(give)
    assert result.status == "completed"
    assert answer(result).text == "Tool give did not answer within 0.1 s and was given up."


async def test_where_threads_cannot_start_the_tool_runs_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_threads(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @tool
    def give() -> str:
        "Says where it runs."
        return threading.current_thread().name

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_threads)
        result, _ = await run(give)
    assert answer(result).text == "MainThread"


HOSTILE_RESULTS: list[tuple[Any, str]] = [
    (ToolResult("x", update=State()), "was not made from context.state"),
    (ToolResult("x", update=object()), "the update is a object; it is a StateUpdate"),
    (ToolResult("x", is_interrupt=True), "says for what: return Interrupt(kind, message)"),
    (ToolResult("x", update=StateUpdate(metadata={"who": ["ann", 7]})), "metadata['who'] holds the scope"),
    (
        ToolResult("x", is_interrupt=True, processed=Interrupt("q", "?", {"for": ["ann", 7]})),
        "data['for'] holds the scope",
    ),
]


@pytest.mark.parametrize(("made", "words"), HOSTILE_RESULTS)
async def test_what_a_wrap_hook_makes_of_a_result_is_checked_like_a_tools(made: ToolResult, words: str) -> None:
    class Makes(Middleware):
        async def wrap_tool_call(self, call: ToolCall, context: Any, call_next: Any) -> ToolResult:
            return made

    @tool
    def give() -> str:
        "Gives."
        return "ok"

    result, _ = await run(give, middleware=[Makes()], scope=("ann", 7))
    assert result.status == "completed"
    assert answer(result).is_error
    assert words in answer(result).text
    assert result.state.metadata == {}


async def test_an_interrupt_that_a_wrap_hook_answers_itself_stops_nobody() -> None:
    class Answers(Middleware):
        async def wrap_tool_call(self, call: ToolCall, context: Any, call_next: Any) -> ToolResult:
            result: ToolResult = await call_next(call)
            return ToolResult("PostgreSQL") if result.is_interrupt else result

    @tool
    def give() -> Interrupt:
        "Asks."
        return Interrupt("question", "Which database?")

    result, model = await run(give, middleware=[Answers()])
    assert result.status == "completed"
    assert model.requests[1].messages[2].tool_results[0].text == "PostgreSQL"


async def what_is_kept_when_one_of_two_is_stopped() -> tuple[dict[str, Any], list[str]]:
    done = asyncio.Event()

    @tool
    async def quick(context: ToolContext) -> tuple[str, StateUpdate]:
        "At once."
        done.set()
        return "quick", StateUpdate(metadata={"quick": True}, messages=[Message("user", "(note)")])

    @tool
    async def endless() -> str:
        "Never."
        await asyncio.sleep(60)
        return "?"

    agent = Agent(model=ScriptedModel([[ToolCall("quick"), ToolCall("endless")]]), tools=[quick, endless])
    task = asyncio.ensure_future(agent.execute("go"))
    await done.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    state = state_reached(caught.value)
    return dict(state.metadata), [m.text or m.tool_results[0].text for m in state.messages[2:]]


async def test_what_was_answered_before_a_stop_is_kept_whole_its_update_included() -> None:
    assert await what_is_kept_when_one_of_two_is_stopped() == ({"quick": True}, ["quick", "(note)"])


async def test_when_the_run_fails_the_unanswered_calls_do_not_blame_the_user() -> None:
    class Breaks(Middleware):
        async def wrap_tool_call(self, call: ToolCall, context: Any, call_next: Any) -> ToolResult:
            if call.name == "give":
                raise ValueError("broken hook")
            result: ToolResult = await call_next(call)
            return result

    @tool
    async def give() -> str:
        "Gives."
        return "ok"

    @tool
    async def other() -> str:
        "Waits."
        await asyncio.sleep(60)
        return "?"

    with pytest.raises(AgentError, match=r"Breaks.wrap_tool_call raised ValueError: broken hook") as caught:
        await run([give, other], ToolCall("give"), ToolCall("other"), middleware=[Breaks()])
    assert [r.text for r in caught.value.state.messages[2].tool_results] == [
        "Tool call give was not completed: the run failed.",
        "Tool call other was not completed: the run failed.",
    ]


async def test_a_call_whose_callback_fails_keeps_its_result() -> None:
    def broken(event: Any) -> None:
        raise RuntimeError("no")

    @tool
    async def give() -> str:
        "Gives."
        return "worth keeping"

    with pytest.raises(AgentError) as caught:
        await run(give, callbacks={"on_tool_execution_completed": broken})
    assert caught.value.type == "callback_error"
    assert caught.value.state.messages[2].tool_results[0].text == "worth keeping"
