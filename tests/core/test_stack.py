"""The stack: names, order, what is wrong with it, and how it tells what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sagents_nb import Agent, AgentError, ConfigurationError, Middleware, ScriptedModel, State, tool
from sagents_nb.stack import Stack


@tool
def note(text: str) -> str:
    "Note something."
    return text


class Tracer(Middleware):
    """Writes down who runs.

    More about it.
    """

    depth: int = 1

    def system_prompt(self) -> list[str]:
        return ["One.", "Two."]

    def tools(self) -> list[Any]:
        return [note]

    def before_model(self, state: State, run: Any) -> None: ...
    def after_model(self, state: State, run: Any) -> None: ...


class Quiet(Middleware):
    def after_model(self, state: State, run: Any) -> None: ...


NAMES: list[tuple[list[Middleware], list[str]]] = [
    ([], []),
    ([Quiet()], ["Quiet"]),
    ([Quiet(), Quiet(), Quiet()], ["Quiet", "Quiet-2", "Quiet-3"]),
    ([Quiet(name="mine"), Quiet()], ["mine", "Quiet"]),
    ([Quiet(name="Quiet-2"), Quiet(), Quiet()], ["Quiet-2", "Quiet", "Quiet-3"]),
    ([Quiet(name="")], ["Quiet"]),
]


@pytest.mark.parametrize(("stack", "names"), NAMES, ids=range(len(NAMES)))
def test_each_middleware_has_a_name_of_its_own(stack: list[Middleware], names: list[str]) -> None:
    assert list(Stack(stack).names) == names


def test_the_stack_knows_what_each_contributes() -> None:
    stack = Stack([Tracer(depth=3), Quiet()])
    first = stack.entries[0]
    assert (first.name, first.class_name, first.summary) == ("Tracer", "Tracer", "Writes down who runs.")
    assert first.hooks == ("system_prompt", "tools", "before_model", "after_model")
    assert (first.prompt, first.tools, first.config) == ("One.\n\nTwo.", ("note",), {"depth": "3"})
    assert (len(stack), [type(item).__name__ for item in stack]) == (2, ["Tracer", "Quiet"])
    assert stack.order("before_model") == ["Tracer"]
    assert stack.order("after_model") == ["Quiet", "Tracer"]
    assert stack.prompt("Base.") == "Base.\n\nOne.\n\nTwo."
    assert stack.prompt() == "One.\n\nTwo."
    assert Stack([Quiet()]).prompt("") == ""
    assert repr(stack) == (
        "Stack of 2: Tracer → Quiet\n"
        "  system_prompt    Tracer\n"
        "  tools            Tracer\n"
        "  before_model     Tracer\n"
        "  after_model      Quiet → Tracer"
    )
    assert repr(Stack()) == "Stack of 0: no middleware"


def test_the_loop_explains_itself() -> None:
    agent = Agent(model=ScriptedModel([]), middleware=[Tracer(), Quiet()], max_runs=7)
    assert agent.explain() == (
        "before_agent ↓ (once per leg): nobody\n"
        "  ┌─ Check limits [loop]\n"
        "  │  Repair the history: every tool call has exactly one result [loop, not middleware]\n"
        "  │  before_model ↓\n"
        "  │     before_model: Tracer\n"
        "  │  Model call, wrapped by wrap_model_call (first in the list is outermost)\n"
        "  │     wrap_model_call: nobody\n"
        "  │  after_model ↑\n"
        "  │     after_model: Quiet → Tracer\n"
        "  │  tools, each wrapped by wrap_tool_call; concurrent; results in call order; updates folded in call order\n"
        "  │     wrap_tool_call: nobody\n"
        "  └─ Again while there is something the model has not seen: tool results, or a message that a hook put in\n"
        "after_agent ↑ (once per leg, whatever the way out): nobody\n"
        "limits: 7 model calls; tools: note"
    )


def made(name: str, **attributes: Any) -> Middleware:
    middleware: Middleware = type(name, (Middleware,), attributes)()
    return middleware


WRONG: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: Stack([made("Gate", must_be_last=True), Quiet(), Tracer()]),
        "Gate must be the last middleware, but Quiet, Tracer comes after it; move it to the end of the list",
    ),
    (
        lambda: Stack([Quiet(), made("Early", before=("Quiet",))]),
        "Early must come before Quiet; move it up in the list",
    ),
    (lambda: Stack([made("Late", after=("Quiet",)), Quiet()]), "Late must come after Quiet; move it down in the list"),
    (lambda: Stack([made("Needs", requires=("Quiet",))]), "Needs needs Quiet in the stack; add Quiet() to the list"),
    (
        lambda: Stack([Quiet(name="x"), Quiet(name="x")]),
        "two middlewares are named 'x'; give one another name: Quiet(name='…')",
    ),
    (lambda: Stack([Quiet]), "Quiet is the class; put an instance in the list: Quiet()"),  # type: ignore[list-item]
    (lambda: Stack([None]), "None in middleware is a NoneType; a middleware is an instance of a subclass"),  # type: ignore[list-item]
    (
        lambda: Stack([made("P", system_prompt=lambda self: 3)]),
        "P.system_prompt() returned 3; it returns a str or a list of str",
    ),
    (
        lambda: Stack([made("T", tools=lambda self: None)]),
        "T.tools() returned None; it returns a list of functions or Tools",
    ),
    (lambda: Stack([made("T", tools=lambda self: [3])]), "3 is no tool"),
    (
        lambda: Agent(model=ScriptedModel([]), middleware=Quiet()),
        "Agent(middleware=…) takes a list of middlewares, got Quiet",
    ),
    (
        lambda: Agent(model=ScriptedModel([]), tools=note),
        "Agent(tools=…) takes a list of functions or Tools, got Tool(",
    ),
    (
        lambda: Agent(model=ScriptedModel([]), tools=[note], middleware=[Tracer()]),
        "two tools are named 'note'; rename one",
    ),
]


@pytest.mark.parametrize(("make", "words"), WRONG, ids=range(len(WRONG)))
def test_what_does_not_fit_together_is_refused_in_words(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert words in str(caught.value)


def test_an_unknown_hook_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(
        ValueError, match=r"there is no hook 'befor_model' \(did you mean 'before_model'\?\); the hooks are"
    ):
        Stack().order("befor_model")


def test_an_agent_is_changed_by_making_another() -> None:
    agent = Agent(model=ScriptedModel(["hi"]), middleware=[Quiet()], scope="ann", agent_id="a")
    other = agent.replace(middleware=[Tracer(), Quiet()])
    assert (agent.stack.names, other.stack.names) == (("Quiet",), ("Tracer", "Quiet"))
    assert (other.scope, other.agent_id, other.model) == ("ann", "a", agent.model)
    assert agent.with_middleware([]).stack.names == ()
    with pytest.raises(ValueError, match="frozen"):
        agent.scope = "bob"  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Agent has no option 'middlewares' \(did you mean 'middleware'\?\)"):
        agent.replace(middlewares=[])
    assert agent != agent.replace()
    assert len({agent, agent.replace()}) == 2


async def test_what_an_agent_runs_on_is_a_state_or_a_text() -> None:
    agent = Agent(model=ScriptedModel(["hi"]))
    with pytest.raises(TypeError, match="an agent runs on a State or on the user's text, got a list: \\[\\]"):
        await agent.execute([])  # type: ignore[arg-type]

    with pytest.raises(AgentError, match="the State has no messages, so there is nothing to answer") as caught:
        await agent.execute(State())
    assert caught.value.type == "no_messages"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_runs": 0}, "greater than or equal to 1"),
        ({"tool_timeout": 0}, "greater than 0"),
        ({"callbacks": [print]}, "or a list of such dicts; got a list with <built-in function print>"),
        ({"tool_context": {1: 2}}, "takes a dict with string keys, got a dict"),
        ({"model": ScriptedModel}, "Agent got the model <class"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigurationError, ValueError)) as caught:
        Agent(**{"model": ScriptedModel([])} | options)
    assert words in str(caught.value)
