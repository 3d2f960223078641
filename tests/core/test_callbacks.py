"""Handlers by event name: which are called when, with what, and what becomes of what they raise."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Halt,
    Interrupt,
    Message,
    Middleware,
    ModelError,
    ScriptedModel,
    Text,
    Thinking,
    ToolCall,
    Usage,
    tool,
)
from sagents_nb.events import MessageAdded
from sagents_nb.execution.callbacks import CALLBACKS
from sagents_nb.execution.loop import run_leg
from sagents_nb.execution.recorder import Recorder


@tool
async def ping() -> str:
    "Answer pong."
    return "pong"


@tool
async def bad() -> str:
    "Fails."
    raise ValueError("x")


@tool
async def stop_here() -> Halt:
    "Halts."
    return Halt("enough")


@tool
def ask() -> Interrupt:
    "Asks."
    return Interrupt("question", "Which?")


async def heard(turns: list[Any], **options: Any) -> list[str]:
    """Names of the callbacks, in the order in which they were called."""
    log: list[str] = []
    handlers = {name: functools.partial(lambda name, event: log.append(name), name) for name in CALLBACKS}
    agent = Agent(
        model=ScriptedModel(turns, chunk_size=1000), tools=[ping, bad, stop_here, ask], callbacks=handlers, **options
    )
    try:
        await agent.execute("go")
    except AgentError:
        log.append("raised")
    return [name for name in log if name != "on_llm_new_delta"]


ANSWERED = ["on_after_middleware", "on_llm_new_message", "on_message_processed"]
CALLED = ["on_after_middleware", "on_tool_call_identified", "on_llm_new_message", "on_message_processed"]
TOOL_MESSAGE = ["on_message_processed", "on_tool_response_created"]

RUNS = ["on_tool_execution_started", "on_tool_pre_execution"]

HEARD: list[tuple[str, list[Any], list[str]]] = [
    ("a text", ["hi"], ANSWERED),
    (
        "a text with usage",
        [Message("assistant", "hi", usage=Usage(input_tokens=1))],
        ["on_after_middleware", "on_llm_new_message", "on_llm_token_usage", "on_message_processed"],
    ),
    (
        "a thought",
        [Message("assistant", [Thinking(text="hm"), Text("hi")])],
        ["on_after_middleware", "on_llm_reasoning_delta", "on_llm_new_message", "on_message_processed"],
    ),
    (
        "a tool that answers",
        [ToolCall("ping"), "done"],
        [*CALLED, *RUNS, "on_tool_execution_completed", *TOOL_MESSAGE, *ANSWERED],
    ),
    (
        "a tool that fails",
        [ToolCall("bad"), "done"],
        [*CALLED, *RUNS, "on_tool_execution_failed", *TOOL_MESSAGE, *ANSWERED],
    ),
    (
        "a tool called wrongly",
        [ToolCall("ping", {"x": 1}), "done"],
        [*CALLED, "on_tool_execution_started", "on_tool_execution_failed", *TOOL_MESSAGE, *ANSWERED],
    ),
    (
        "a tool there is not",
        [ToolCall("nope"), "done"],
        [*ANSWERED, "on_tool_execution_failed", *TOOL_MESSAGE, *ANSWERED],
    ),
    (
        "a tool that halts",
        [ToolCall("stop_here")],
        [*CALLED, *RUNS, "on_tool_interrupted", *TOOL_MESSAGE],
    ),
    (
        "a model that fails",
        [ModelError("down")],
        ["on_after_middleware", "on_llm_error", "on_error", "raised"],
    ),
    (
        "a model that fails once",
        [ModelError("down", retryable=True, retry_after=0), "hi"],
        ["on_after_middleware", "on_llm_error", "on_llm_new_message", "on_message_processed"],
    ),
    (
        "tools that keep failing",
        [ToolCall("bad")] * 3,
        [
            *[*CALLED, *RUNS, "on_tool_execution_failed", *TOOL_MESSAGE] * 3,
            *("on_retries_exceeded", "on_error", "raised"),
        ],
    ),
]


@pytest.mark.parametrize(("turns", "names"), [row[1:] for row in HEARD], ids=[row[0] for row in HEARD])
async def test_which_callbacks_are_called(turns: list[Any], names: list[str]) -> None:
    assert await heard(turns) == names


async def test_handlers_of_the_call_come_first_then_the_agents_then_the_middlewares() -> None:
    log: list[str] = []

    class Listens(Middleware):
        def callbacks(self) -> dict[str, Any]:
            return {"on_message_processed": lambda event: log.append(self.name)}

    class Silent(Middleware):
        def callbacks(self) -> dict[str, Any]:
            return None  # type: ignore[return-value]

    agent = Agent(
        model=ScriptedModel(["hi"]),
        middleware=[Listens(name="first"), Silent(), Listens(name="second")],
        callbacks={"on_message_processed": lambda event: log.append("agent")},
    )
    await agent.execute("go", callbacks={"on_message_processed": lambda event: log.append("call")})
    assert log == ["call", "agent", "first", "second"]


class Hears(Middleware):
    """Brings a handler, as a map or in a list."""

    log: list[str]

    def callbacks(self) -> Any:
        return [None, {"on_message_processed": lambda event: self.log.append(self.name)}]


MAPS: list[tuple[Any, list[str]]] = [
    (None, ["middleware"]),
    ([], ["middleware"]),
    ([{}], ["middleware"]),
    ([None, {}, None], ["middleware"]),
    ({"on_message_processed": "a"}, ["a", "middleware"]),
    ([{"on_message_processed": "a"}], ["a", "middleware"]),
    (({"on_message_processed": "a"}, None, {"on_message_processed": "b"}), ["a", "b", "middleware"]),
]


@pytest.mark.parametrize(("given", "heard"), MAPS)
@pytest.mark.parametrize("where", ["agent", "call"])
async def test_one_map_and_lists_of_maps_are_taken_and_all_of_them_are_called(
    given: Any, heard: list[str], where: str
) -> None:
    log: list[str] = []

    def speaking(maps: Any) -> Any:
        if isinstance(maps, dict):
            return {name: lambda event, word=word: log.append(word) for name, word in maps.items()}
        return maps if maps is None else type(maps)(speaking(each) for each in maps)

    own: dict[str, Any] = {"callbacks": speaking(given)}
    agent = Agent(
        model=ScriptedModel(["hi"]), middleware=[Hears(name="middleware", log=log)], **own if where == "agent" else {}
    )
    await agent.execute("go", **own if where == "call" else {})
    assert log == heard


async def test_tools_that_wait_are_told_once_for_all_of_a_message_before_the_message_itself() -> None:
    heard: list[Any] = []
    agent = Agent(
        model=ScriptedModel([[ToolCall("ask", id="q1"), ToolCall("ping", id="p"), ToolCall("ask", id="q2")]]),
        tools=[ask, ping],
        callbacks={"on_tool_interrupted": heard.append, "on_tool_response_created": heard.append},
    )
    await agent.execute("go")
    told, answered = heard
    assert [(each.tool_call_id, each.text, each.is_interrupt) for each in told.results] == [
        ("q1", "Which?", True),
        ("q2", "Which?", True),
    ]
    assert [each.tool_call_id for each in answered.message.tool_results] == ["q1", "p", "q2"]


@pytest.mark.parametrize("name", ["on_tool_interrupted", "on_tool_pre_execution"])
async def test_a_callback_that_fails_among_the_tools_leaves_every_call_with_a_result(name: str) -> None:
    def broken(event: Any) -> None:
        raise RuntimeError("no")

    recorder = Recorder()
    agent = Agent(
        model=ScriptedModel([[ToolCall("ask"), ToolCall("ping")]]), tools=[ask, ping], callbacks={name: broken}
    )
    run = agent.begin("go", recorder=recorder)
    with pytest.raises(AgentError, match=f"Callback handler for {name} raised an exception: RuntimeError: no"):
        await run_leg(run)
    assert [message.role for message in run.state.messages] == ["user", "assistant", "tool"]
    assert len(run.state.messages[-1].tool_results) == 2
    added = [event.message.role for event in recorder.events if isinstance(event, MessageAdded)]
    assert added == ["assistant", "tool"]


# The one that is called where the tool runs.

who: ContextVar[str] = ContextVar("who", default="nobody")


@tool
async def aloud() -> str:
    "Says who."
    await asyncio.sleep(0)
    return who.get()


@tool
def in_a_thread() -> str:
    "Says who."
    return who.get()


@tool(thread="main")
def on_main() -> str:
    "Says who."
    return who.get()


async def said(calls: list[ToolCall], handler: Callable[[Any], object]) -> list[str]:
    agent = Agent(
        model=ScriptedModel([calls, "done"]),
        tools=[aloud, in_a_thread, on_main],
        callbacks={"on_tool_pre_execution": handler},
    )
    result = await agent.execute("go")
    return [each.text for each in result.state.messages[2].tool_results]


@pytest.mark.parametrize("name", ["aloud", "in_a_thread", "on_main"])
async def test_a_tool_sees_the_context_variables_that_are_set_right_before_it(name: str) -> None:
    assert await said([ToolCall(name)], lambda event: who.set(event.call.id)) != ["nobody"]
    calls = [ToolCall(name, id=letter) for letter in "abc"]
    assert await said(calls, lambda event: who.set(event.call.id)) == ["a", "b", "c"]


async def test_it_is_called_in_the_task_of_its_tool() -> None:
    tasks: dict[str, Any] = {}

    @tool
    async def own(number: int) -> str:
        "Notes its task."
        tasks[f"body {number}"] = asyncio.current_task()
        return "ok"

    def handler(event: Any) -> None:
        tasks[f"handler {event.call.arguments['number']}"] = asyncio.current_task()

    model = ScriptedModel([[ToolCall("own", {"number": 1}), ToolCall("own", {"number": 2})], "done"])
    await Agent(model=model, tools=[own], callbacks={"on_tool_pre_execution": handler}).execute("go")
    assert tasks["handler 1"] is tasks["body 1"]
    assert tasks["handler 2"] is tasks["body 2"]
    assert tasks["body 1"] is not tasks["body 2"]


async def no_body_runs_when_the_callback_before_it_fails() -> None:
    ran: list[str] = []

    @tool
    async def act() -> str:
        "Acts."
        ran.append("act")
        return "ok"

    def broken(event: Any) -> None:
        raise ValueError("no")

    agent = Agent(
        model=ScriptedModel([ToolCall("act"), "done"]), tools=[act], callbacks={"on_tool_pre_execution": broken}
    )
    with pytest.raises(AgentError, match="Callback handler for on_tool_pre_execution raised an exception"):
        await agent.execute("go")
    assert ran == []


async def test_a_callback_that_fails_before_a_tool_keeps_it_from_running_and_ends_the_run() -> None:
    await no_body_runs_when_the_callback_before_it_fails()


async def test_were_it_taken_for_a_failure_of_the_tool_the_run_would_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.execution.tool_calls.CallbackFailed", ZeroDivisionError)
    with pytest.raises(pytest.fail.Exception):
        await no_body_runs_when_the_callback_before_it_fails()


@pytest.mark.parametrize("name", ["on_after_middleware", "on_tool_execution_started", "on_tool_response_created"])
async def test_what_a_callback_raises_fails_the_run_in_words(name: str) -> None:
    def broken(event: Any) -> None:
        raise KeyError("k")

    agent = Agent(model=ScriptedModel([ToolCall("ping"), "done"]), tools=[ping], callbacks={name: broken})
    with pytest.raises(AgentError) as caught:
        await agent.execute("go")
    assert caught.value.type == "callback_error"
    assert caught.value.message == f"Callback handler for {name} raised an exception: KeyError: 'k'"
    # A later `except` block may execute the State again: it is a whole one.
    fresh = ScriptedModel(["fine"])
    again = await Agent(model=fresh, tools=[ping]).execute(caught.value.state.add_message("again"))
    assert again.text == "fine"


async def test_a_callback_for_errors_that_fails_itself_does_not_hide_the_error() -> None:
    def broken(event: Any) -> None:
        raise RuntimeError("and this too")

    agent = Agent(model=ScriptedModel([ModelError("down", type="overloaded")]), callbacks={"on_error": broken})
    with pytest.raises(AgentError) as caught:
        await agent.execute("go")
    assert (caught.value.type, caught.value.message) == ("overloaded", "down")
    assert caught.value.__notes__ == ["Callback handler for on_error raised an exception: RuntimeError: and this too"]


async def fails_when_a_callback_fails() -> None:
    def broken(event: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(AgentError):
        await Agent(model=ScriptedModel(["hi"]), callbacks={"on_message_processed": broken}).execute("go")


async def test_a_run_whose_callback_fails_fails() -> None:
    await fails_when_a_callback_fails()


async def test_without_calling_back_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.execution.run.fan_out", lambda maps, tools: None)
    with pytest.raises(pytest.fail.Exception):
        await fails_when_a_callback_fails()


async def _async_handler(event: Any) -> None: ...


WRONG: list[tuple[Any, str]] = [
    (
        {"on_llm_delta": print},
        "there is no callback 'on_llm_delta' (did you mean 'on_llm_new_delta'?); there are on_after_m",
    ),
    ({"on_error": "x"}, "the callback 'on_error' is 'x', which cannot be called"),
    (
        {"on_error": _async_handler},
        "the callback 'on_error' is an `async def`; callbacks are called in the middle of the run",
    ),
    (
        [print],
        "callbacks are a dict of event name to function, or a list of such dicts; got a list with <built-in function",
    ),
    (print, "or a list of such dicts; got <built-in function print>, a builtin_function_or_method"),
    ([{}, {"on_error": 3}], "the callback 'on_error' is 3, which cannot be called"),
    ({"on_subagent_resolved": print}, "there is no callback 'on_subagent_resolved'"),
    ({3: print}, "there is no callback 3; there are"),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
async def test_wrong_callbacks_are_refused_where_they_are_given(given: Any, words: str) -> None:
    class Brings(Middleware):
        def callbacks(self) -> Any:
            return given

    with pytest.raises(ConfigurationError) as caught:
        Agent(model=ScriptedModel([]), callbacks=given)
    assert str(caught.value).startswith("Agent(callbacks=…): ")
    assert words in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        Agent(model=ScriptedModel([]), middleware=[Brings()])
    assert "initialization failed: Brings.callbacks(): " in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        await Agent(model=ScriptedModel([])).execute("go", callbacks=given)
    assert str(caught.value).startswith("execute(callbacks=…): ")


async def test_a_failing_callback_beside_a_running_tool_ends_the_tool() -> None:
    ended: list[str] = []

    @tool
    async def slow() -> str:
        "Slow."
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")
        return "?"

    def broken(event: Any) -> None:
        raise RuntimeError("no")

    agent = Agent(
        model=ScriptedModel([[ToolCall("slow"), ToolCall("ping")]]),
        tools=[slow, ping],
        callbacks={"on_tool_execution_completed": broken},
    )
    with pytest.raises(AgentError) as caught:
        await agent.execute("go")
    assert ended == ["slow"]
    assert [r.text for r in caught.value.state.messages[2].tool_results] == [
        "Tool call slow was not completed: the run failed.",
        "pong",
    ]
