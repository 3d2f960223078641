"""Handlers by event name: which are called when, with what, and what becomes of what they raise."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Halt,
    Message,
    Middleware,
    ModelError,
    ScriptedModel,
    ToolCall,
    Usage,
    tool,
)
from sagents_nb.execution.callbacks import CALLBACKS


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


async def heard(turns: list[Any], **options: Any) -> list[str]:
    """Names of the callbacks, in the order in which they were called."""
    log: list[str] = []
    handlers = {name: functools.partial(lambda name, event: log.append(name), name) for name in CALLBACKS}
    agent = Agent(
        model=ScriptedModel(turns, chunk_size=1000), tools=[ping, bad, stop_here], callbacks=handlers, **options
    )
    try:
        await agent.execute("go")
    except AgentError:
        log.append("raised")
    return [name for name in log if name != "on_llm_new_delta"]


ANSWERED = ["on_after_middleware", "on_llm_new_message", "on_message_processed"]
CALLED = ["on_after_middleware", "on_tool_call_identified", "on_llm_new_message", "on_message_processed"]
TOOL_MESSAGE = ["on_message_processed", "on_tool_response_created"]

HEARD: list[tuple[str, list[Any], list[str]]] = [
    ("a text", ["hi"], ANSWERED),
    (
        "a text with usage",
        [Message("assistant", "hi", usage=Usage(input_tokens=1))],
        ["on_after_middleware", "on_llm_new_message", "on_llm_token_usage", "on_message_processed"],
    ),
    (
        "a tool that answers",
        [ToolCall("ping"), "done"],
        [*CALLED, "on_tool_execution_started", "on_tool_execution_completed", *TOOL_MESSAGE, *ANSWERED],
    ),
    (
        "a tool that fails",
        [ToolCall("bad"), "done"],
        [*CALLED, "on_tool_execution_started", "on_tool_execution_failed", *TOOL_MESSAGE, *ANSWERED],
    ),
    (
        "a tool there is not",
        [ToolCall("nope"), "done"],
        [*CALLED, "on_tool_execution_started", "on_tool_execution_failed", *TOOL_MESSAGE, *ANSWERED],
    ),
    (
        "a tool that halts",
        [ToolCall("stop_here")],
        [*CALLED, "on_tool_execution_started", "on_tool_execution_completed", *TOOL_MESSAGE, "on_tool_interrupted"],
    ),
    (
        "a model that fails",
        [ModelError("down")],
        ["on_after_middleware", "on_llm_new_message", "on_llm_error", "on_error", "raised"],
    ),
    (
        "tools that keep failing",
        [ToolCall("bad")] * 3,
        [
            *[*CALLED, "on_tool_execution_started", "on_tool_execution_failed", *TOOL_MESSAGE] * 3,
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
    monkeypatch.setattr("sagents_nb.execution.run.fan_out", lambda maps: None)
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
    ([print], "callbacks are a dict of event name to function, got a list"),
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
