"""ProcessContext: what was ambient where the agent was made is ambient where it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context, ContextVar
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Middleware,
    Pause,
    ProcessContext,
    ScriptedModel,
    State,
    ToolCall,
    tool,
)
from sagents_nb.hooks import HookRun
from sagents_nb.server.session import running_sessions

tenant: ContextVar[str | None] = ContextVar("tenant")
trace: ContextVar[str] = ContextVar("trace", default="none")

seen: list[tuple[str, Any, str]] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    seen.clear()
    yield
    for session in running_sessions():
        session.stop()


def note(who: str) -> None:
    seen.append((who, tenant.get("?"), trace.get()))


@tool
def in_thread() -> str:
    "Runs in a thread."
    assert threading.current_thread() is not threading.main_thread()
    note("thread")
    return "ok"


@tool
async def in_task() -> str:
    "Runs in a task."
    await asyncio.sleep(0)
    note("task")
    return "ok"


class Looks(Middleware):
    def before_model(self, state: State, run: Any) -> None:
        note("hook")


def agent_with(context: ProcessContext, **options: Any) -> Agent:
    turns = [[ToolCall("in_thread"), ToolCall("in_task")], ToolCall("in_thread"), ToolCall("in_task"), "done"]

    def answer(request: Any) -> Any:
        note("model")
        turn = len([message for message in request.messages if message.role == "assistant"])
        return turns[turn % 4]

    model = ScriptedModel([answer], repeat=True)
    return Agent(model=model, tools=[in_thread, in_task], middleware=[context, Looks()], **options)


EVERYWHERE = {"hook", "model", "thread", "task"}


def everywhere() -> set[tuple[str, Any, str]]:
    assert {who for who, _, _ in seen} == EVERYWHERE
    return {(value, other) for _, value, other in seen}  # type: ignore[misc]


def made_where_set(value: str = "acme", **options: Any) -> ProcessContext:
    """A ProcessContext made in a context where both variables are set."""

    def make() -> ProcessContext:
        tenant.set(value)
        trace.set(f"trace of {value}")
        return ProcessContext(**{"keys": [tenant, trace]} | options)

    return Context().run(make)


async def tools_of_a_session_see_what_was_set_where_the_agent_was_made() -> None:
    context = made_where_set()
    session = agent_with(context).session()  # its thread is there already, or is made here, where nothing is set
    for _ in range(2):
        seen.clear()
        Context().run(session.send, "hi")
        assert await session.idle(20) == "idle"
        assert everywhere() == {("acme", "trace of acme")}


def nothing_is_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProcessContext, "before_agent", lambda self, state, run: None)


async def a_run_begun_after_an_update_sees_the_new_value_and_one_that_runs_the_old() -> None:
    context = made_where_set()

    def update() -> None:
        tenant.set("newer")
        trace.set("newer trace")
        context.update()

    class Updates(Middleware):
        def after_model(self, state: State, run: Any) -> None:
            Context().run(update)

    agent = agent_with(context)
    agent = agent.with_middleware([*agent.middleware, Updates()])
    await agent.execute("hi")
    assert everywhere() == {("acme", "trace of acme")}
    seen.clear()
    await agent.execute("hi")
    assert everywhere() == {("newer", "newer trace")}


def set_before_every_model_call(patch: pytest.MonkeyPatch) -> None:
    from contextlib import ExitStack

    patch.setattr(ProcessContext, "before_model", lambda self, state, run: self._apply(ExitStack()))


async def the_caller_keeps_its_own_values() -> None:
    tenant.set("mine")
    trace.set("my trace")
    await agent_with(made_where_set()).execute("hi")
    assert everywhere() == {("acme", "trace of acme")}
    assert (tenant.get(), trace.get()) == ("mine", "my trace")

    applied: list[str] = []
    broken = made_where_set(keys=[tenant], propagators=[(trace.get, _refuses(applied))])
    with pytest.raises(AgentError, match=r"ProcessContext.before_agent raised ValueError: no trace of acme"):
        await agent_with(broken).execute("hi")
    assert applied == ["trace of acme", "my trace"]  # what had been there is set back
    assert (tenant.get(), trace.get()) == ("mine", "my trace")


def _refuses(applied: list[str]) -> Callable[[str], None]:
    def apply(value: str) -> None:
        applied.append(value)
        if value == "trace of acme":
            raise ValueError(f"no {value}")

    return apply


def nothing_is_set_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProcessContext, "after_agent", lambda self, state, run: None)


async def two_runs_of_one_conversation_are_kept_apart() -> None:
    agent = agent_with(made_where_set())
    state = State.from_text("hi").model_copy(update={"conversation_id": "c"})
    tenant.set("mine")

    async def one() -> tuple[Any, Any]:
        await agent.execute(state)
        return tenant.get(), trace.get()

    assert await asyncio.gather(one(), one()) == [("mine", "none")] * 2
    assert agent.locals_of("c")["ProcessContext"] == {}
    assert everywhere() == {("acme", "trace of acme")}


def one_note_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HookRun, "run_id", property(lambda self: "one", lambda self, value: None))


RULES: list[tuple[Callable[[], Awaitable[None]], Callable[[pytest.MonkeyPatch], None]]] = [
    (tools_of_a_session_see_what_was_set_where_the_agent_was_made, nothing_is_set),
    (a_run_begun_after_an_update_sees_the_new_value_and_one_that_runs_the_old, set_before_every_model_call),
    (the_caller_keeps_its_own_values, nothing_is_set_back),
    (two_runs_of_one_conversation_are_kept_apart, one_note_for_all),
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
    with pytest.raises((AssertionError, AgentError)):
        await rule()


def test_a_session_made_before_the_variable_was_set_runs_with_what_an_update_captured() -> None:
    context = ProcessContext(keys=[tenant, trace])
    session = agent_with(context).session()
    session.send("hi")
    assert session.wait(20) == "idle"
    assert everywhere() == {("?", "none")}
    seen.clear()

    def cell() -> None:
        tenant.set("acme")
        trace.set("later")
        context.update()

    Context().run(cell)
    session.send("again")
    assert session.wait(20) == "idle"
    assert everywhere() == {("acme", "later")}


async def test_a_run_that_goes_on_elsewhere_after_a_pause_sees_it_too() -> None:
    class Pauses(Middleware):
        def before_model(self, state: State, run: Any) -> Pause | None:
            return None if run.resumed else Pause("later")

    agent = agent_with(made_where_set())
    agent = agent.with_middleware([*agent.middleware, Pauses()])
    paused = await agent.execute("hi")
    assert (paused.status, {who for who, _, _ in seen}) == ("paused", {"hook"})
    await asyncio.create_task(agent.resume(paused.state), context=Context())
    assert everywhere() == {("acme", "trace of acme")}


async def test_what_is_unset_or_none_where_it_is_captured_is_left_alone() -> None:
    tenant.set("mine")
    await agent_with(ProcessContext(keys=[trace])).execute("hi")
    assert everywhere() == {("mine", "none")}
    seen.clear()
    await agent_with(Context().run(lambda: ProcessContext(keys=[tenant, trace]))).execute("hi")
    assert everywhere() == {("mine", "none")}
    seen.clear()
    await agent_with(Context().run(lambda: (tenant.set(None), ProcessContext(keys=[tenant]))[1])).execute("hi")
    assert everywhere() == {("mine", "none")}


async def test_a_propagator_captures_and_applies_whatever_the_value_and_sets_back_what_was_there() -> None:
    applied: list[Any] = []
    ambient: dict[str, Any] = {"value": None}

    def apply(value: Any) -> None:
        applied.append(value)
        ambient["value"] = value

    context = ProcessContext(propagators=[(lambda: ambient["value"], apply)])
    ambient["value"] = "other"
    await agent_with(context).execute("hi")
    assert applied == [None, "other"]
    context.update()
    ambient["value"] = None
    await agent_with(context).execute("hi")
    assert applied == [None, "other", "other", None]


async def test_it_is_set_for_those_who_settle_an_answer_and_where_the_server_starts() -> None:
    context: Any = made_where_set()
    run = HookRun(
        agent=None,
        middleware="ProcessContext",
        local={},
        run_id="r",
        resumed=True,
        cycle=lambda: 0,
        publish=lambda *event: None,
    )

    async def resume() -> None:
        assert context.handle_resume(State(), None, "yes", run) is None
        context.before_agent(State(), run)  # of the same leg: once is enough
        assert (tenant.get(), trace.get()) == ("acme", "trace of acme")
        context.after_agent(State(), run)
        assert (tenant.get("?"), trace.get(), run.local) == ("?", "none", {})

    async def start() -> str | None:
        assert context.on_server_start(State(), None) is None
        return tenant.get()

    await asyncio.create_task(resume(), context=Context())
    assert await asyncio.create_task(start(), context=Context()) == "acme"


async def test_what_was_captured_is_never_saved_or_shown() -> None:
    context = made_where_set("SECRET")
    agent = agent_with(context, agent_id="a")
    result = await agent.execute("hi")
    assert "SECRET" not in str(result.state.to_json())
    assert "SECRET" not in str([event.to_json() for event in result.events])
    assert "SECRET" not in repr(context) + repr(agent.stack.entries) + str(context.model_dump())


def fails() -> None:
    raise OSError("no span")


async def later() -> None: ...


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"keys": ["tenant"]}, "keys must be a list of ContextVar objects, got ['tenant']; tenant = ContextVar('tenant')"),
    ({"keys": tenant}, "keys must be a list of ContextVar objects, got <ContextVar name='tenant'"),
    ({"keys": "tenant"}, "keys must be a list of ContextVar objects, got 'tenant'"),
    ({"keys": None}, "keys must be a list of ContextVar objects, got None"),
    ({"propagators": [print]}, "propagators must be a list of (capture, apply) pairs of plain functions"),
    ({"propagators": (tenant.get, tenant.set)}, "propagators must be a list of (capture, apply) pairs"),
    ({"propagators": [(trace.get, 3)]}, "propagators must be a list of (capture, apply) pairs"),
    ({"propagators": [(trace.get, trace.set, 3)]}, "propagators must be a list of (capture, apply) pairs"),
    ({"propagators": [(lambda x: x, trace.set)]}, "propagators must be a list of (capture, apply) pairs"),
    ({"propagators": [(trace.get, lambda: None)]}, "capture() without arguments and apply(value) with one"),
    ({"propagators": [(later, trace.set)]}, "pairs of plain functions"),
    ({"propagators": [(fails, trace.set)]}, "ProcessContext: the capture fails raised OSError: no span"),
    ({"key": [tenant]}, "ProcessContext has no option 'key' (did you mean 'keys'?)"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_captured_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigurationError, TypeError)) as caught:
        ProcessContext(**options)
    assert words in str(caught.value)
