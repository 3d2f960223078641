"""Who runs when, and what is recorded of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    Interrupt,
    Message,
    Middleware,
    ModelError,
    ScriptedModel,
    State,
    ToolCall,
    stack as stack_module,
    tool,
)
from sagents_nb.events import Event, HookEnded, HookSlow, HookStarted
from sagents_nb.execution import hooks as hooks_module, loop as loop_module


@tool
async def ping() -> str:
    "Answer pong."
    return "pong"


class Full(Middleware):
    """Implements everything; notes every hook."""

    log: list[str]

    def before_agent(self, state: State, run: Any) -> None:
        self.log.append(f"{self.name}.before_agent")

    def before_model(self, state: State, run: Any) -> None:
        self.log.append(f"{self.name}.before_model")

    async def wrap_model_call(self, request: Any, call_next: Any) -> Message:
        self.log.append(f"{self.name}.model(")
        message: Message = await call_next(request)
        self.log.append(f"{self.name}.model)")
        return message

    def after_model(self, state: State, run: Any) -> None:
        self.log.append(f"{self.name}.after_model")

    async def wrap_tool_call(self, call: Any, context: Any, call_next: Any) -> Any:
        self.log.append(f"{self.name}.tool(")
        result = await call_next(call)
        self.log.append(f"{self.name}.tool)")
        return result

    def after_agent(self, state: State, run: Any) -> None:
        self.log.append(f"{self.name}.after_agent")


TURN = [
    "A.before_model",
    "B.before_model",
    "A.model(",
    "B.model(",
    "B.model)",
    "A.model)",
    "B.after_model",
    "A.after_model",
]
WHOLE = [
    *("A.before_agent", "B.before_agent"),
    *TURN,
    *("A.tool(", "B.tool(", "B.tool)", "A.tool)"),
    *TURN,
    *("B.after_agent", "A.after_agent"),
]


async def whole_order() -> list[str]:
    log: list[str] = []
    agent = Agent(
        model=ScriptedModel([ToolCall("ping"), "done"]),
        tools=[ping],
        middleware=[Full(name="A", log=log), Full(name="B", log=log)],
    )
    result = await agent.execute("go")
    started = [f"{e.middleware}.{e.hook}" for e in result.events if isinstance(e, HookStarted)]
    assert [line.replace("(", "").replace(")", "") for line in log if not line.endswith(")")] == [
        line.replace("wrap_model_call", "model").replace("wrap_tool_call", "tool") for line in started
    ]
    return log


async def test_the_whole_order_of_two_middlewares() -> None:
    assert await whole_order() == WHOLE


async def test_without_the_upward_rule_the_order_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_module, "UPWARD_HOOKS", ())
    assert await whole_order() != WHOLE


async def test_each_hook_gets_what_the_one_before_it_left_and_changes_are_recorded() -> None:
    class Add(Middleware):
        def before_model(self, state: State, run: Any) -> State:
            return state.put_metadata("seen", [*state.get_metadata("seen", []), self.name])

        def after_model(self, state: State, run: Any) -> State:
            return state.put_metadata("seen", [*state.get_metadata("seen", []), self.name.lower()])

    agent = Agent(model=ScriptedModel(["hi"]), middleware=[Add(name="A"), Add(name="B"), Middleware(name="Idle")])
    result = await agent.execute("go")
    assert result.state.metadata == {"seen": ["A", "B", "b", "a"]}
    ended = [e for e in result.events if isinstance(e, HookEnded)]
    assert [(e.middleware, e.hook, e.changed, [str(c) for c in e.changes]) for e in ended] == [
        ("A", "before_model", True, ['+ metadata.seen: ["A"]']),
        ("B", "before_model", True, ['~ metadata.seen: ["A"] → ["A", "B"]']),
        ("B", "after_model", True, ['~ metadata.seen: ["A", "B"] → ["A", "B", "b"]']),
        ("A", "after_model", True, ['~ metadata.seen: ["A", "B", "b"] → ["A", "B", "b", "a"]']),
    ]
    assert all(e.duration >= 0 for e in ended)
    assert ended[0].before is not None
    assert ended[0].before.metadata == {}


async def test_events_are_numbered_densely_and_in_order() -> None:
    result = await Agent(model=ScriptedModel([ToolCall("ping"), "done"], chunk_size=100), tools=[ping]).execute("go")
    kinds = [(event.type) for event in result.events]
    assert kinds == [
        "run_started",
        *("cycle_started", "middleware_prepared", "model_started", "model_ended", "message_added"),
        *("tool_started", "tool_entered", "tool_ended", "message_added"),
        *("cycle_started", "middleware_prepared", "model_started", "model_ended", "message_added"),
        "run_ended",
    ]
    numbers = [event.seq for event in result.events]
    assert numbers == sorted(set(numbers))


class Fails(Middleware):
    where: str
    error: Any = ValueError("boom")

    def _maybe(self, hook: str) -> None:
        if hook == self.where:
            raise self.error

    def before_agent(self, state: State, run: Any) -> None:
        self._maybe("before_agent")

    def before_model(self, state: State, run: Any) -> None:
        self._maybe("before_model")

    async def wrap_model_call(self, request: Any, call_next: Any) -> Message:
        self._maybe("wrap_model_call")
        message: Message = await call_next(request)
        return message

    async def after_model(self, state: State, run: Any) -> None:
        self._maybe("after_model")

    async def wrap_tool_call(self, call: Any, context: Any, call_next: Any) -> Any:
        self._maybe("wrap_tool_call")
        return await call_next(call)

    def after_agent(self, state: State, run: Any) -> None:
        self._maybe("after_agent")


EVERY_HOOK = ["before_agent", "before_model", "wrap_model_call", "after_model", "wrap_tool_call", "after_agent"]


@pytest.mark.parametrize("hook", EVERY_HOOK)
async def test_an_error_names_middleware_and_hook_and_keeps_the_state(hook: str) -> None:
    agent = Agent(
        model=ScriptedModel([ToolCall("ping"), "done"]), tools=[ping], middleware=[Fails(name="Bad", where=hook)]
    )
    with pytest.raises(AgentError) as caught:
        await agent.execute("go")
    assert caught.value.type == "middleware_error"
    assert str(caught.value) == f"Bad.{hook} raised ValueError: boom"
    assert isinstance(caught.value.__cause__, Exception)
    assert caught.value.state.messages[0].text == "go"


async def leaves(hook: str) -> list[str]:
    """Which after_agent hooks ran when the middle one of three failed in a hook."""
    log: list[str] = []
    agent = Agent(
        model=ScriptedModel([ToolCall("ping"), "done"]),
        tools=[ping],
        middleware=[Full(name="A", log=log), Fails(name="Bad", where=hook), Full(name="C", log=log)],
    )
    with pytest.raises(AgentError):
        await agent.execute("go")
    return [line for line in log if "after_agent" in line]


@pytest.mark.parametrize(
    ("hook", "left"),
    [
        ("before_agent", ["A.after_agent"]),  # C was never entered
        *((hook, ["C.after_agent", "A.after_agent"]) for hook in EVERY_HOOK[1:]),
    ],
)
async def test_after_agent_runs_for_everybody_who_was_entered_whatever_the_way_out(hook: str, left: list[str]) -> None:
    assert await leaves(hook) == left


async def test_without_that_rule_the_hooks_would_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(run: Any) -> list[Exception]:
        return []

    monkeypatch.setattr(loop_module, "_after_agent", nothing)
    assert await leaves("after_model") != ["C.after_agent", "A.after_agent"]


async def test_after_agent_runs_when_the_model_fails_and_when_the_run_is_cancelled() -> None:
    log: list[str] = []
    failing = Agent(model=ScriptedModel([ModelError("down")]), middleware=[Full(name="A", log=log)])
    with pytest.raises(AgentError):
        await failing.execute("go")
    assert log[-1] == "A.after_agent"
    log.clear()
    slow = Agent(model=ScriptedModel(["x" * 1000], delay=0.01), middleware=[Full(name="A", log=log)])
    task = asyncio.ensure_future(slow.execute("go"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log[-1] == "A.after_agent"


async def test_a_hook_that_takes_long_is_announced_by_name_with_the_two_ways_out() -> None:
    class Slow(Middleware):
        def before_model(self, state: State, run: Any) -> None:
            time.sleep(0.08)

    class Apart(Slow):
        blocking = True

    agent = Agent(model=ScriptedModel([ToolCall("ping"), "hi"]), tools=[ping], middleware=[Slow(), Apart()])
    result = await agent.execute("go")
    slow = [event for event in result.events if isinstance(event, HookSlow)]
    assert [(event.middleware, event.hook) for event in slow] == [("Slow", "before_model")]
    assert "make it an `async def`, or set blocking = True" in slow[0].advice


async def test_blocking_hooks_leave_the_loop_free() -> None:
    class Apart(Middleware):
        blocking = True

        def before_model(self, state: State, run: Any) -> State:
            time.sleep(0.2)
            return state.put_metadata("slept", True)

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    result = await Agent(model=ScriptedModel(["hi"]), middleware=[Apart()]).execute("go")
    ticking.cancel()
    assert result.state.metadata == {"slept": True}
    assert ticks >= 5


@pytest.mark.parametrize("hook", ["before_agent", "before_model", "after_model", "after_agent"])
async def test_a_hook_returns_a_state_or_nothing(hook: str) -> None:
    bad = type("Bad", (Middleware,), {hook: lambda self, state, run: {"messages": []}})
    with pytest.raises(AgentError, match=f"Bad.{hook} raised TypeError: it returned a dict; a hook returns a State"):
        await Agent(model=ScriptedModel(["hi"]), middleware=[bad()]).execute("go")


async def test_an_interrupt_of_a_hook_lets_the_pass_finish_and_stops_the_run() -> None:
    log: list[str] = []

    class Asks(Middleware):
        def after_model(self, state: State, run: Any) -> Interrupt:
            return Interrupt("question", "Sure?", {"options": ["yes"]})

    agent = Agent(
        model=ScriptedModel([ToolCall("ping"), "done"]), tools=[ping], middleware=[Full(name="A", log=log), Asks()]
    )
    result = await agent.execute("go")
    assert result.status == "interrupted"
    assert result.interrupt is not None
    assert (result.interrupt.kind, result.interrupt.message, result.interrupt.source) == ("question", "Sure?", "Asks")
    assert log[-2:] == ["A.after_model", "A.after_agent"]  # the pass went on, no tool ran
    with pytest.raises(AgentError, match="the State waits for a person") as caught:
        await agent.execute(result.state)
    assert caught.value.type == "pending_interrupt"
    again = await Agent(model=ScriptedModel(["fine"])).execute(result.state.add_message("never mind"))
    assert again.status == "completed"
    assert again.state.interrupt is None


async def scope_kept_out(write: Callable[[State], State]) -> None:
    class Leaks(Middleware):
        def before_model(self, state: State, run: Any) -> State:
            return write(state)

    agent = Agent(model=ScriptedModel(["hi"]), middleware=[Leaks()], scope={"user": 42, "token": "t"})
    with pytest.raises(AgentError, match=r"metadata\['who'\].* holds the scope, which is never saved"):
        await agent.execute("go")


SCOPE = {"user": 42, "token": "t"}


@pytest.mark.parametrize(
    "write", [lambda s: s.put_metadata("who", SCOPE), lambda s: s.put_metadata("who", {"deep": [1, SCOPE]})]
)
async def test_the_scope_does_not_get_into_metadata(write: Callable[[State], State]) -> None:
    await scope_kept_out(write)


async def test_without_the_guard_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks_module, "check_scope", lambda *_: None)
    with pytest.raises(pytest.fail.Exception):
        await scope_kept_out(lambda s: s.put_metadata("who", SCOPE))


async def test_run_local_belongs_to_one_middleware_and_one_conversation() -> None:
    class Counts(Middleware):
        def before_model(self, state: State, run: Any) -> State:
            run.local["n"] = run.local.get("n", 0) + 1
            return state.put_metadata(self.name, run.local["n"])

    shared = Counts(name="S")
    one = Agent(model=ScriptedModel(["x"], repeat=True), middleware=[shared, Counts(name="T")])
    two = Agent(model=ScriptedModel(["x"], repeat=True), middleware=[shared])

    async def go(agent: Agent, conversation: str) -> dict[str, Any]:
        result = await agent.execute(State.from_text("go", conversation_id=conversation))
        return dict(result.state.metadata)

    assert list(await asyncio.gather(go(one, "a"), go(two, "a"), go(one, "b"))) == [
        {"S": 1, "T": 1},
        {"S": 1},
        {"S": 1, "T": 1},
    ]
    assert await go(one, "a") == {"S": 2, "T": 2}


async def test_what_hooks_publish_is_an_event() -> None:
    class Says(Middleware):
        def before_model(self, state: State, run: Any) -> None:
            run.publish("progress", {"done": 1})

    result = await Agent(model=ScriptedModel(["hi"]), middleware=[Says()]).execute("go")
    published = [event.to_json() for event in result.events if event.type == "published"]
    assert [(p["source"], p["name"], p["data"]) for p in published] == [("Says", "progress", {"done": 1})]


async def test_callbacks_are_called_in_order_and_what_they_raise_fails_the_run() -> None:
    log: list[str] = []

    class Listens(Middleware):
        def callbacks(self) -> dict[str, Callable[[Event], object]]:
            return {"on_message_processed": lambda event: log.append("middleware")}

    agent = Agent(
        model=ScriptedModel(["hi"], repeat=True),
        middleware=[Listens()],
        callbacks={"on_message_processed": lambda event: log.append("agent")},
    )
    await agent.execute("go", callbacks={"on_message_processed": lambda event: log.append("call")})
    assert log == ["call", "agent", "middleware"]

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    with pytest.raises(AgentError, match="Callback handler for on_message_processed raised an exception") as caught:
        await agent.execute("go", callbacks={"on_message_processed": broken})
    assert caught.value.type == "callback_error"


@pytest.mark.parametrize(
    ("middleware", "words"),
    [
        (lambda: [Last(), Middleware()], "Last must be the last middleware, but Middleware comes after it"),
        (lambda: [After(), Last()], "After must come after Last; move it down in the list"),
        (lambda: [Needs()], "Needs needs Last in the stack; add Last() to the list"),
        (lambda: [Middleware(name="x"), Middleware(name="x")], "two middlewares are named 'x'"),
    ],
)
def test_a_wrong_order_is_refused_in_words(middleware: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        Agent(model=ScriptedModel([]), middleware=middleware())
    assert words in str(caught.value)


class Last(Middleware):
    must_be_last = True


class After(Middleware):
    after = ("Last",)


class Needs(Middleware):
    requires = ("Last",)


def test_a_list_handed_to_a_middleware_is_kept_and_its_fields_cannot_be_set() -> None:
    log: list[str] = []
    item = Full(log=log)
    assert item.log is log
    with pytest.raises(ValueError, match="frozen"):
        item.log = []  # type: ignore[misc]
    assert Full(log=log) != item
    assert len({item, Full(log=log)}) == 2
    with pytest.raises(TypeError, match="Full has no option 'logg' \\(did you mean 'log'\\?\\)"):
        Full(logg=log)  # type: ignore[call-arg]
    words = "Wrong.tools is declared as a field, but tools is a hook"
    with pytest.warns(UserWarning, match="shadows"), pytest.raises(TypeError, match=words):
        type("Wrong", (Middleware,), {"__annotations__": {"tools": list}, "tools": []})
