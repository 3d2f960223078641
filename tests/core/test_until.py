"""Runs that end with a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sagents_nb import Agent, AgentError, ConfigurationError, Interrupt, ScriptedModel, State, ToolCall, tool
from sagents_nb.execution import steps
from sagents_nb.execution.result import RunResult


@tool
def search(query: str = "") -> str:
    """Search."""
    return f"found {query}"


@tool
def submit(text: str = "", fail: bool = False) -> tuple[str, dict[str, str]]:
    """Submit."""
    if fail:
        raise ValueError("not good enough")
    return "submitted", {"text": text}


@tool
def publish() -> str:
    """Publish."""
    return "published"


@tool
def ask() -> Interrupt:
    """Ask a person."""
    return Interrupt("question", "Which?")


TOOLS = [search, submit, publish, ask]


def agent(*turns: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(turns)
    return Agent(model=model, tools=TOOLS), model


def call(name: str, id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, id=id)


ENDS: list[tuple[str, list[Any], dict[str, Any], int, str, str, bool]] = [
    # what, turns, options, model calls, name of the tool, id of the call, whether its result is an error
    ("called at once", [call("submit")], {"until_tool": "submit"}, 1, "submit", "c1", False),
    (
        "called after another",
        [call("search"), call("submit", "c2")],
        {"until_tool": "submit"},
        2,
        "submit",
        "c2",
        False,
    ),
    ("the second of two targets", [call("publish")], {"until_tool": ["submit", "publish"]}, 1, "publish", "c1", False),
    ("an error ends it too", [call("submit", fail=True)], {"until_tool": "submit"}, 1, "submit", "c1", True),
    (
        "but not where success is wanted",
        [call("submit", fail=True), call("submit", "c2", text="x")],
        {"until_tool_success": "submit"},
        2,
        "submit",
        "c2",
        False,
    ),
    (
        "the good one of a batch",
        [[call("submit", "c1", fail=True), call("submit", "c2")]],
        {"until_tool_success": ["submit"]},
        1,
        "submit",
        "c2",
        False,
    ),
    (
        "the first one of a batch in the order of the calls",
        [[call("search", "c0"), call("publish", "c1"), call("submit", "c2")]],
        {"until_tool": ["submit", "publish"]},
        1,
        "publish",
        "c1",
        False,
    ),
]


@pytest.mark.parametrize(
    ("turns", "options", "calls", "name", "id", "bad"), [e[1:] for e in ENDS], ids=[e[0] for e in ENDS]
)
async def test_the_first_result_of_a_target_ends_the_run(
    turns: list[Any], options: dict[str, Any], calls: int, name: str, id: str, bad: bool
) -> None:
    agent_, model = agent(*turns, "never said")
    result = await agent_.execute("go", **options)
    assert result.status == "completed"
    assert result.tool_result is not None
    assert (result.tool_result.name, result.tool_result.tool_call_id, result.tool_result.is_error) == (name, id, bad)
    assert len(model.requests) == calls
    assert result.state.messages[-1].role == "tool"
    assert len(result.state.messages) == 1 + 2 * calls


async def test_the_value_for_the_program_is_on_the_result() -> None:
    agent_, _ = agent(call("submit", text="done"))
    result = await agent_.execute("go", until_tool="submit")
    assert result.tool_result is not None
    assert result.tool_result.processed == {"text": "done"}


async def test_without_the_option_no_tool_ends_the_run() -> None:
    agent_, _ = agent(call("submit"), "said")
    for nothing in (None, list[str]()):
        agent_, _ = agent(call("submit"), "said")
        result = await agent_.execute("go", until_tool=nothing)
        assert (result.text, result.tool_result) == ("said", None)


async def test_a_result_of_an_earlier_run_does_not_end_this_one() -> None:
    agent_, model = agent(call("submit"), "said", call("search", "c2"), call("submit", "c3"), "never")
    first = await agent_.execute("go")
    second = await agent_.execute(first.state.add_message("again"), until_tool="submit")
    assert second.tool_result is not None
    assert second.tool_result.tool_call_id == "c3"
    assert len(model.requests) == 4


NOT_CALLED: list[tuple[list[Any], dict[str, Any], str]] = [
    (["I would rather talk."], {"until_tool": "submit"}, "Agent completed without calling target tool(s) submit;"),
    (["No."], {"until_tool": ["submit", "publish"]}, "without calling target tool(s) submit, publish;"),
    (
        [call("submit", fail=True), "I give up."],
        {"until_tool_success": "submit"},
        "Agent completed without calling target tool(s) submit successfully;",
    ),
]


@pytest.mark.parametrize(("turns", "options", "words"), NOT_CALLED)
async def test_a_run_that_ends_in_words_instead_is_an_error(
    turns: list[Any], options: dict[str, Any], words: str
) -> None:
    agent_, _ = agent(*turns)
    with pytest.raises(AgentError) as caught:
        await agent_.execute("go", **options)
    assert caught.value.type == "until_tool_not_called"
    assert words in caught.value.message
    assert caught.value.state.last_text == turns[-1]


async def test_without_the_check_it_would_pass_as_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_run: object) -> None:
        pass

    monkeypatch.setattr(steps.check_until, "__code__", nothing.__code__)
    agent_, _ = agent("I would rather talk.")
    assert (await agent_.execute("go", until_tool="submit")).status == "completed"


async def test_failures_end_it_before_success_comes() -> None:
    agent_, model = agent(*[call("submit", f"c{n}", fail=True) for n in range(5)])
    with pytest.raises(AgentError) as caught:
        await agent_.execute("go", until_tool_success="submit")
    assert caught.value.type == "exceeded_failure_count"
    assert len(model.requests) == 3


async def test_the_limit_counts_the_call_that_ends_it() -> None:
    agent_, _ = agent(call("search"), call("submit", "c2"))
    assert (await agent_.execute("go", until_tool="submit", max_runs=2)).tool_result is not None
    agent_, _ = agent(call("search"), call("submit", "c2"))
    with pytest.raises(AgentError) as caught:
        await agent_.execute("go", until_tool="submit", max_runs=1)
    assert caught.value.type == "exceeded_max_runs"
    assert caught.value.message == "Max number of automated turns reached. You may continue if desired."


async def test_a_tool_that_asks_a_person_wins_over_the_target() -> None:
    agent_, model = agent([call("submit"), call("ask", "c2")], "never")
    result = await agent_.execute("go", until_tool="submit")
    assert (result.status, result.tool_result) == ("interrupted", None)
    assert result.interrupt is not None
    assert result.interrupt.kind == "question"
    assert len(model.requests) == 1


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"until_tool": "nonexistent"}, ["until_tool: tool(s) ['nonexistent'] not found", "Available: ['ask', 'publish', 'search', 'submit']"]),
    ({"until_tool": ["search", "nonexistent"]}, ["until_tool: tool(s) ['nonexistent'] not found"]),
    ({"until_tool_success": "submitt"}, ["until_tool_success: tool(s) ['submitt'] not found (did you mean 'submit'?)"]),
    ({"until_tool": "submit", "until_tool_success": "submit"}, ["mutually exclusive"]),
    ({"until_tool": 3}, ["until_tool is the name of a tool or a list of names, got 3"]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words"), WRONG)
async def test_what_does_not_fit_is_refused_before_any_hook_runs(options: dict[str, Any], words: list[str]) -> None:
    agent_, model = agent("x")
    with pytest.raises(ConfigurationError) as caught:
        await agent_.execute("go", **options)
    assert all(word in str(caught.value) for word in words)
    assert "search" not in str(caught.value).partition("not found")[0]
    assert model.requests == []


VERBS: list[Callable[..., Any]] = [Agent.execute, Agent.run]


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_takes_the_option(verb: Callable[..., Any]) -> None:
    agent_, _ = agent(call("submit"), "never")
    result = verb(agent_, State.from_text("go"), until_tool="submit")
    result = result if isinstance(result, RunResult) else await result
    assert result.tool_result is not None
    assert result.tool_result.name == "submit"
