"""Structured results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

from sagents_nb import Agent, AgentError, Halt, ScriptedModel, State, ToolCall, tool
from sagents_nb.execution import extract as extract_module


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int = Field(ge=0)


@dataclass
class Point:
    """A place."""

    x: float
    y: float


@tool
def search(query: str) -> str:
    """Search."""
    return f"about {query}"


@tool
def submit(name: str) -> tuple[str, str] | str:
    """Submit."""
    return ("ok", name.upper()) if name != "plain" else "ok"


@tool
def stop() -> Halt:
    """Stop."""
    return Halt("no")


def give(**arguments: Any) -> ToolCall:
    return ToolCall("give_result", arguments)


GOOD: list[tuple[Any, list[Any], Any, int]] = [
    # the form, what the model does, what comes back, model calls
    (Person, [give(name="Ann", age=42)], Person(name="Ann", age=42), 1),
    (Person, [give(name="Ann", age=-1), give(name="Ann", age=42)], Person(name="Ann", age=42), 2),
    (Person, [give(name="Ann"), give(), give(name="Ann", age="42")], Person(name="Ann", age=42), 3),
    (Point, [give(x=1, y=2.5)], Point(1.0, 2.5), 1),
    (list[int], [give(value=[1, 2])], [1, 2], 1),
    (bool, [give(value=False)], False, 1),
    (int | None, [give(value=None)], None, 1),
    (dict[str, int], [give(value={"a": 1})], {"a": 1}, 1),
    (list[Person], [give(value=[{"name": "Ann", "age": 1}])], [Person(name="Ann", age=1)], 1),
]


@pytest.mark.parametrize(("kind", "turns", "value", "calls"), GOOD)
async def test_the_value_comes_back_as_its_type(kind: Any, turns: list[Any], value: Any, calls: int) -> None:
    model = ScriptedModel([*turns, "never"])
    got = await Agent(model=model).extract("Ann is 42", kind)
    assert got == value
    assert type(got) is type(value)
    assert len(model.requests) == calls
    assert {request.tool_choice for request in model.requests} == {"give_result"}
    assert [offered.name for offered in model.requests[0].tools] == ["give_result"]


async def test_what_does_not_fit_goes_back_to_the_model_in_words() -> None:
    model = ScriptedModel([give(name="Ann", age=-1), give(name="Ann", age=42)])
    await Agent(model=model).extract("Ann is 42", Person)
    (result,) = model.requests[1].messages[-1].tool_results
    assert result.is_error
    assert "age: Input should be greater than or equal to 0. Call the tool again with values that fit." in result.text
    assert "http" not in result.text


async def test_the_model_may_use_the_agents_tools_first() -> None:
    model = ScriptedModel([ToolCall("search", {"query": "Ann"}), give(name="Ann", age=42)])
    agent = Agent(model=model, tools=[search])
    assert await agent.extract(State.from_text("How old is Ann?"), Person) == Person(name="Ann", age=42)
    assert {request.tool_choice for request in model.requests} == {"any"}
    assert list(agent.all_tools) == ["search"]


async def test_a_tool_of_the_agent_gives_its_value_or_its_arguments() -> None:
    for name, value in (("ann", "ANN"), ("plain", {"name": "plain"})):
        agent = Agent(model=ScriptedModel([ToolCall("submit", {"name": name})]), tools=[submit])
        assert await agent.extract("x", tool="submit") == value


WRONG: list[tuple[list[Any], dict[str, Any], str, str]] = [
    ([], {}, "extract_invalid_opts", "extract needs what to give: a type, as in agent.extract(text, Person)"),
    ([], {"kind": Person, "tool": "submit"}, "extract_invalid_opts", "extract needs what to give"),
    ([], {"tool": "submitt"}, "extract_tool_not_found", "has no tool 'submitt' (did you mean 'submit'?)"),
    (["I would rather talk."], {"kind": Person, "max_runs": 2}, "until_tool_not_called", "without calling target tool"),
    ([give(name="A")] * 5, {"kind": Person}, "exceeded_failure_count", "3 turns in a row"),
    (
        [ToolCall("search", {"query": "x"})] * 9,
        {"kind": Person},
        "exceeded_max_runs",
        "Max number of automated turns reached",
    ),
    ([ToolCall("stop")], {"kind": Person}, "interrupted", "the run is interrupted, so there is no result yet"),
]


@pytest.mark.parametrize(("turns", "options", "kind", "words"), WRONG)
async def test_what_goes_wrong_is_told(turns: list[Any], options: dict[str, Any], kind: str, words: str) -> None:
    model = ScriptedModel(turns)
    agent = Agent(model=model, tools=[search, submit, stop])
    with pytest.raises(AgentError) as caught:
        await agent.extract("Ann", **options)
    assert caught.value.type == kind
    assert words in caught.value.message
    if kind == "exceeded_max_runs":
        assert len(model.requests) == extract_module.MAX_RUNS == 5


async def test_the_readers_of_a_result() -> None:
    turns: list[Any] = [[ToolCall("submit", {"name": "ann"}, id="c1"), ToolCall("search", {}, id="c2")], "done"]
    result = await Agent(model=ScriptedModel(turns), tools=[submit, search]).execute("x")
    assert result.require_tool_result().tool_call_id == "c1"
    assert result.processed() == "ANN"
    assert result.tool_arguments() == {"name": "ann"}

    none = await Agent(model=ScriptedModel(["done"])).execute("x")
    failed = await Agent(model=ScriptedModel([ToolCall("search", {}, id="c1"), "done"]), tools=[search]).execute("x")
    stopped = await Agent(model=ScriptedModel([ToolCall("stop")]), tools=[stop]).execute("x")
    paused = await Agent(model=ScriptedModel([])).execute("x", should_pause=lambda: True)
    assert failed.require_tool_result().is_error
    for read, kind in (
        (none.require_tool_result, "no_tool_result"),
        (none.tool_arguments, "no_tool_result"),
        (failed.processed, "no_processed_content"),
        (stopped.processed, "interrupted"),
        (paused.require_tool_result, "paused"),
    ):
        with pytest.raises(AgentError) as caught:
            read()
        assert caught.value.type == kind
