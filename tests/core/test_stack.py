"""The stack: names, order, what is wrong with it, and how it tells what it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Middleware,
    RunResult,
    ScriptedModel,
    State,
    ToolCall,
    ToolContext,
    tool,
)
from sagents_nb.events import Published
from sagents_nb.hooks import HOOKS, LOOP_HOOKS
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


def test_a_middleware_without_hooks_contributes_nothing() -> None:
    [entry] = Stack([made("Bare")]).entries
    assert (entry.name, entry.hooks, entry.prompt, entry.tools, entry.config, entry.constraints) == (
        *("Bare", (), "", ()),
        *({}, ()),
    )
    brings = [None, {"on_error": print}, {}]
    stack = [made("Bare"), *(made(f"M{i}", callbacks=lambda self, it=it: it) for i, it in enumerate(brings))]
    [own, *others] = Agent(model=ScriptedModel([]), middleware=stack).all_callbacks
    assert (own, [each for each in others if each]) == ({}, [{"on_error": print}])


PROMPTS: list[tuple[str | None, list[Any], str]] = [
    ("Base.", ["One.", "Two."], "Base.\n\nOne.\n\nTwo."),
    (None, [["First prompt", "Second prompt"]], "First prompt\n\nSecond prompt"),
    ("Base.", ["", "Two."], "Base.\n\nTwo."),  # empty ones are left out whole
    (None, [["", "x"], "y\n"], "\n\nx\n\ny\n"),  # parts are joined as they are, and nothing is trimmed
    ("", [], ""),
]


@pytest.mark.parametrize(("base", "parts", "prompt"), PROMPTS, ids=range(len(PROMPTS)))
def test_the_system_prompt_is_the_base_then_the_middlewares_in_order(
    base: str | None, parts: list[Any], prompt: str
) -> None:
    stack = [made(f"M{i}", system_prompt=lambda self, part=part: part) for i, part in enumerate(parts)]
    assert Agent(model=ScriptedModel([]), base_system_prompt=base, middleware=stack).system_prompt == prompt


async def test_what_a_middleware_contributes_may_be_awaited_also_inside_a_running_loop() -> None:
    house: ContextVar[str] = ContextVar("house")
    house.set("Be slow.")

    class Slow(Middleware):
        async def system_prompt(self) -> str:
            await asyncio.sleep(0.001)
            return house.get()

        async def tools(self) -> list[Any]:
            return [note]

        async def callbacks(self) -> Any:
            return {"on_error": print}

    agent = Agent(model=ScriptedModel([]), middleware=[Slow()])
    assert (agent.system_prompt, list(agent.all_tools)) == ("Be slow.", ["note"])
    assert agent.all_callbacks == ({}, {"on_error": print})


def test_a_tool_is_given_the_middlewares_and_the_tools_of_its_agent() -> None:
    seen = []

    @tool
    def look(context: ToolContext) -> str:
        "Looks."
        seen.append((context.parent_middleware, context.parent_tools, context.user_id, dict(context.tool_context)))
        return "ok"

    stack = [Tracer(), Quiet()]
    extras = {"user_id": 42, "tenant": "acme"}
    Agent(model=ScriptedModel([ToolCall("look"), "done"]), tools=[look], middleware=stack, tool_context=extras).run(
        "go"
    )
    [(middleware, tools, user, context)] = seen
    assert middleware == tuple(stack)
    assert [each.name for each in tools] == ["look", "note"]
    assert (user, context) == (42, extras)


def test_the_loop_explains_itself() -> None:
    agent = Agent(model=ScriptedModel([]), middleware=[Tracer(), Quiet()], max_runs=7)
    assert agent.explain() == (
        "before_agent ↓ (once per leg): nobody\n"
        "  ┌─ Pause, if somebody asked for it and something is left to do [loop]\n"
        "  │  Check limits [loop]\n"
        "  │  Repair the history: every tool call has exactly one result [loop, not middleware]\n"
        "  │  before_model ↓\n"
        "  │     before_model: Tracer\n"
        "  │  Model call, wrapped by wrap_model_call (first in the list is outermost)\n"
        "  │     wrap_model_call: nobody\n"
        "  │  after_model ↑\n"
        "  │     after_model: Quiet → Tracer\n"
        "  │  Pause, if somebody asked for it and something is left to do [loop]\n"
        "  │  Interrupt gate: calls that a person has to approve stop the run before any of the message runs [loop]\n"
        "  │     needs_approval: nobody\n"
        "  │  tools, each wrapped by wrap_tool_call; concurrent; results in call order; updates folded in call order\n"
        "  │     wrap_tool_call: nobody\n"
        "  │  End the run with the tool it was to run until, if that was called [loop]\n"
        "  └─ Again while there is something the model has not seen: tool results, or a message of a hook\n"
        "after_agent ↑ (once per leg, whatever the way out): nobody\n"
        "limits: 7 model calls; tools: note"
    )


def made(name: str, **attributes: Any) -> Middleware:
    middleware: Middleware = type(name, (Middleware,), attributes)()
    return middleware


WRONG: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: Stack([made("Gate", must_be_last=True), Quiet(), Tracer()]),
        "Gate must be the last middleware, but Quiet, Tracer come after it; move it to the end of the list",
    ),
    (
        lambda: Stack([made("Gate", must_be_last=True), made("Door", must_be_last=True)]),
        "Gate must be the last middleware, but Door comes after it; move it to the end of the list",
    ),
    (
        lambda: Stack([Quiet(name="calm"), made("Early", before=("Quiet", "Tracer"))]),
        "Early must come before Quiet; move it up in the list",
    ),
    (
        lambda: Stack([type("Calm", (Quiet,), {})(), made("Early", before=("Quiet",))]),
        "Early must come before Quiet; move it up in the list",
    ),
    (
        lambda: Stack([made("Late", after=("Quiet",)), type("Calm", (Quiet,), {})()]),
        "Late must come after Quiet; move it down in the list",
    ),
    (
        lambda: Stack([made("Gate", must_be_last=True, requires=("Tracer",)), Quiet()]),
        (
            "Gate must be the last middleware, but Quiet comes after it; move it to the end of the list; "
            "Gate needs Tracer in the stack; add Tracer() to the list"
        ),
    ),
    (
        lambda: Stack([made("Wrong", before="Quiet")]),
        "Wrong.before is 'Quiet'; it is a tuple of class names: before = ('HumanInTheLoop',)",
    ),
    (
        lambda: Stack([made("Wrong", requires=(Quiet,))]),
        "it is a tuple of class names: requires = ('HumanInTheLoop',)",
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
        (
            "two tools are named 'note'; rename one with @tool(name='…') or leave one out. They come from the agent itself: "
            "Agent(tools=[…]) and from Tracer"
        ),
    ),
    (
        lambda: Stack([Tracer(), Quiet(), Tracer()]),
        (
            "two tools are named 'note'; rename one with @tool(name='…') or leave one out. They come from Tracer and from "
            "Tracer-2"
        ),
    ),
    (
        lambda: Stack([made("Twice", tools=lambda self: [note, note])]),
        "two tools are named 'note'; rename one with @tool(name='…') or leave one out. Both come from Twice",
    ),
]


@pytest.mark.parametrize(("make", "words"), WRONG, ids=range(len(WRONG)))
def test_what_does_not_fit_together_is_refused_in_words(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert words in str(caught.value)


FITTING: list[list[Callable[[], Middleware]]] = [
    [Quiet, lambda: made("Gate", must_be_last=True)],
    [lambda: made("Early", before=("Quiet", "NotHere")), Quiet],
    [Quiet, lambda: made("Late", after=("Quiet", "NotHere"))],
    [lambda: made("Needs", requires=("Quiet",)), lambda: type("Calm", (Quiet,), {})()],
    [lambda: made("Needs", requires=("Quiet",)), Quiet],
]


@pytest.mark.parametrize("makers", FITTING, ids=range(len(FITTING)))
def test_an_order_that_keeps_the_constraints_is_fine(makers: list[Callable[[], Middleware]]) -> None:
    assert Stack([make() for make in makers]).lint() == []


def test_the_constraints_are_shown_where_the_stack_is_shown() -> None:
    gate = made("Gate", must_be_last=True, before=("A",), after=("B",), requires=("Quiet",))
    stack = Stack([Quiet(), gate])
    assert stack.entries[1].constraints == ("last", "before A", "after B", "with Quiet")
    assert repr(stack) == (
        "Stack of 2: Quiet → Gate\n  after_model      Quiet\n  Gate must stand last, before A, after B, with Quiet"
    )
    assert "must stand last, before A, after B, with Quiet" in stack._repr_mimebundle_()["text/html"]


def test_the_order_is_wrong_only_because_the_stack_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stack, "lint", lambda self: [])
    assert Stack([made("Gate", must_be_last=True), Quiet()]).names == ("Gate", "Quiet")


def explode(self: Any) -> Any:
    raise ValueError("there is no tool bogus_tool_name")


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"tools": explode}, "M.tools() raised ValueError: there is no tool bogus_tool_name"),
    ({"system_prompt": explode}, "M.system_prompt() raised ValueError: there is no tool bogus_tool_name"),
    ({"callbacks": explode}, "M.callbacks() raised ValueError: there is no tool bogus_tool_name"),
    ({"tools": lambda self: None}, "M.tools() returned None; it returns a list of functions or Tools"),
    ({"tools": lambda self: [3]}, "M.tools(): 3 is no tool"),
    (
        {"system_prompt": lambda self: ["a", 3]},
        "M.system_prompt() returned ['a', 3]; it returns a str or a list of str",
    ),
    ({"callbacks": lambda self: {"on_eror": print}}, "M.callbacks(): there is no callback 'on_eror' (did you mean"),
    (
        {"callbacks": lambda self: {"on_error": 3}},
        "M.callbacks(): the callback 'on_error' is 3, which cannot be called",
    ),
]


@pytest.mark.parametrize(("hooks", "words"), BROKEN, ids=range(len(BROKEN)))
def test_a_middleware_that_fails_while_the_agent_is_built_is_named_with_its_hook(
    hooks: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Agent(model=ScriptedModel([]), middleware=[Quiet(), made("M", **hooks)])
    assert f"Failed to initialize M; middleware initialization failed: {words}" in str(caught.value)
    assert isinstance(caught.value.__cause__, (ValueError, ConfigurationError))
    [record] = caplog.records
    assert (record.name, record.levelno) == ("sagents_nb", logging.ERROR)
    assert f"Middleware initialization failed: {words}" in record.getMessage()


def test_what_ends_the_process_is_no_failure_of_the_middleware() -> None:
    def leave(self: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stack([made("M", tools=leave)])


LATER_HOOKS = [
    "handle_resume",
    "restorable_interrupt",
    "on_server_start",
    "handle_message",
    "transform_display_message",
]


@pytest.mark.filterwarnings("ignore:Field name:UserWarning")  # pydantic warns of it too
@pytest.mark.parametrize("hook", HOOKS)
def test_the_name_of_a_hook_is_no_field(hook: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Wrong.{hook} is declared as a field, but {hook} is a hook; rename"):
        type("Wrong", (Middleware,), {"__annotations__": {hook: str}})


@pytest.mark.parametrize("hook", LATER_HOOKS)
def test_hooks_of_servers_and_of_resume_run_first_to_last_and_show_only_where_implemented(hook: str) -> None:
    function = lambda *arguments: None  # noqa: E731
    stack = Stack([made("A", **{hook: function}), Quiet(), made("B", **{hook: function})])
    assert stack.order(hook) == ["A", "B"]
    assert stack.entries[0].hooks == (hook,)
    assert f"  {hook}" in repr(stack)
    picture = stack._repr_mimebundle_()["text/html"]
    assert f"<td>{hook}</td>" in picture  # in the list of layers
    assert f'data-phase="{hook}"' not in picture  # no part of the loop
    silent = Stack([Quiet(), Tracer()])
    assert hook not in repr(silent)
    assert hook not in silent._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("hook", "in_thread"),
    [(hook, True) for hook in ("before_model", "handle_resume", "on_server_start", "handle_message")]
    + [(hook, False) for hook in ("wrap_model_call", "restorable_interrupt", "transform_display_message")],
)
def test_hooks_of_a_blocking_class_that_are_given_the_state_belong_in_a_thread(hook: str, in_thread: bool) -> None:
    async def awaited(*arguments: Any) -> None: ...

    blocking = made("B", blocking=True, **{hook: lambda *arguments: None})
    assert [bound.in_thread for bound in Stack([blocking]).hooks(hook)] == [in_thread]
    assert [bound.in_thread for bound in Stack([made("B", blocking=True, **{hook: awaited})]).hooks(hook)] == [False]


def test_what_a_middleware_does_by_default_changes_nothing() -> None:
    bare: Any = Middleware()
    state: Any = State()
    assert [bare.handle_resume(state, None, None, None), bare.on_server_start(state, None)] == [None, None]
    assert [bare.handle_message("x", state, None), bare.transform_display_message("x")] == [None, None]
    assert bare.restorable_interrupt(SimpleNamespace(kind="question")) is False
    assert set(LOOP_HOOKS) < set(HOOKS)


async def published(*arguments: Any) -> RunResult:
    class Speaks(Middleware):
        def before_model(self, state: State, run: Any) -> None:
            run.publish(*arguments)

    return await Agent(model=ScriptedModel(["hi"]), middleware=[Speaks()]).execute("go")


EVENTS: list[tuple[tuple[Any, ...], str, dict[str, Any]]] = [
    (("progress",), "progress", {}),
    (("progress", {"done": 3}), "progress", {"done": 3}),
    (("progress", None), "progress", {}),
    (({"name": "progress", "done": 3},), "progress", {"done": 3}),
    (({"name": "progress", "data": {"done": 3}},), "progress", {"done": 3}),
    (({"name": "progress", "data": 1, "done": 3},), "progress", {"data": 1, "done": 3}),
    (({"name": "progress"},), "progress", {}),
    (({"k": 1},), "event", {"k": 1}),
    ((Published(source="forged", name="progress", data={"done": 3}),), "progress", {"done": 3}),
]


@pytest.mark.parametrize(("arguments", "name", "data"), EVENTS, ids=range(len(EVENTS)))
async def test_a_hook_publishes_a_name_with_data_or_all_in_one(
    arguments: tuple[Any, ...], name: str, data: dict[str, Any]
) -> None:
    result = await published(*arguments)
    [event] = [event for event in result.events if isinstance(event, Published)]
    assert (event.source, event.name, event.data) == ("Speaks", name, data)


NO_EVENTS: list[tuple[tuple[Any, ...], str]] = [
    ((3,), "the name of an event is a non-empty str, got 3, a int; publish('progress', {'done': 3})"),
    (("  ",), "the name of an event is a non-empty str, got '  ', a str"),
    ((None, {"k": 1}), "the name of an event is a non-empty str, got None, a NoneType"),
    (({"name": 3},), "the name of an event is a non-empty str, got 3, a int"),
    (
        ("progress", 3),
        "publish('progress', …): the data of an event are a dict, got a int; publish('progress', {'value'",
    ),
    (({"name": "progress", "data": [3]},), "the data of an event are a dict, got a list"),
    (({"name": "progress"}, {"done": 3}), "the event brings its data along; leave out the second argument"),
]


@pytest.mark.parametrize(("arguments", "words"), NO_EVENTS, ids=range(len(NO_EVENTS)))
async def test_what_is_no_event_is_refused_in_words(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(AgentError) as caught:
        await published(*arguments)
    assert caught.value.message.startswith("Speaks.before_model raised TypeError: publish(")
    assert words in caught.value.message


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


def test_limits_are_kept_as_they_are_given() -> None:
    agent = Agent(model=ScriptedModel([]))
    assert (agent.max_runs, agent.tool_timeout, agent.otel_attributes) == (None, None, {})
    agent = Agent(model=ScriptedModel([]), max_runs=100, tool_timeout=600)
    assert (agent.max_runs, agent.tool_timeout) == (100, 600)


def test_span_attributes_are_overlaid_in_a_new_agent() -> None:
    agent = Agent(model=ScriptedModel([]), otel_attributes={"user": "1", "stage": "init"}, agent_id="a")
    other = agent.put_otel_attributes({"stage": "ready", "ws": "9"})
    assert other.otel_attributes == {"user": "1", "stage": "ready", "ws": "9"}
    assert (agent.otel_attributes, other.agent_id) == ({"user": "1", "stage": "init"}, "a")
    assert other.put_otel_attributes(None).otel_attributes == other.otel_attributes
    assert Agent(model=ScriptedModel([]), otel_attributes=None).otel_attributes == {}
    assert "stage" not in repr(agent)
    with pytest.raises(TypeError):
        agent.otel_attributes["stage"] = "x"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"otel_attributes": {1: 2}}, "Agent(otel_attributes=…) takes a dict with string keys, got a dict"),
        ({"otel_attributes": "x"}, "Agent(otel_attributes=…) takes a dict with string keys, got a str"),
        ({"max_runs": 0}, "greater than or equal to 1"),
        ({"tool_timeout": 0}, "greater than 0"),
        ({"callbacks": [print]}, "callbacks are a dict of event name to function, got a list"),
        ({"tool_context": {1: 2}}, "takes a dict with string keys, got a dict"),
        ({"model": ScriptedModel}, "Agent got the model <class"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigurationError, ValueError)) as caught:
        Agent(**{"model": ScriptedModel([])} | options)
    assert words in str(caught.value)
