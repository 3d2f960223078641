"""Middlewares that raise, return rubbish, swallow a Stop or never end: the run says who it was, and leaves in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
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
    tool,
)
from sagents_nb.events import HookEnded
from sagents_nb.execution import hooks as hooks_module, loop as loop_module, run as run_module
from tests.support.cancelled import state_reached

STATE_HOOKS = ["before_agent", "before_model", "after_model", "after_agent"]


@tool
async def ping() -> str:
    "Answer pong."
    return "pong"


def with_hook(name: str, function: Any, **attributes: Any) -> Middleware:
    made: Middleware = type("Bad", (Middleware,), {name: function, **attributes})()
    return made


async def fail(middleware: Middleware, **options: Any) -> AgentError:
    model = ScriptedModel([ToolCall("ping"), "done"])
    with pytest.raises(AgentError) as caught:
        await Agent(model=model, tools=[ping], middleware=[middleware], **options).execute("go")
    return caught.value


class Leaves(Middleware):
    """Notes that it was left."""

    left: list[str]

    async def after_agent(self, state: State, run: Any) -> None:
        await asyncio.sleep(0)
        self.left.append(self.name)


async def _cancels_itself() -> None:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raise(error: BaseException) -> Any:
    raise error


RAISED: list[tuple[Callable[[], Any], str]] = [
    (lambda: _raise(SystemExit(3)), "SystemExit: 3"),
    (lambda: _raise(StopIteration("x")), "StopIteration"),
    (lambda: _raise(Mute()), "Mute: (an error whose text cannot be made: its class Mute has a broken __str__)"),
    (lambda: _raise(ExceptionGroup("two", [ValueError("a")])), "ExceptionGroup: two (1 sub-exception)"),
    (_cancels_itself, "CancelledError, though nobody stopped the run"),
]


@pytest.mark.parametrize("hook", STATE_HOOKS)
@pytest.mark.parametrize(("body", "words"), RAISED)
async def test_what_a_hook_raises_names_it(hook: str, body: Callable[[], Any], words: str) -> None:
    error = await fail(with_hook(hook, lambda self, state, run: body()))
    assert error.type == "middleware_error"
    assert f"Bad.{hook} raised " in error.message
    assert words in error.message
    assert error.state.messages[0].text == "go"


@pytest.mark.parametrize("hook", STATE_HOOKS)
async def test_hooks_that_run_in_a_thread_fail_in_the_same_words(hook: str) -> None:
    error = await fail(with_hook(hook, lambda self, state, run: _raise(KeyboardInterrupt("x")), blocking=True))
    assert error.message == f"Bad.{hook} raised RuntimeError: KeyboardInterrupt raised: x"


async def _generates(self: Any, state: State, run: Any) -> AsyncIterator[State]:
    yield state


RUBBISH: list[tuple[str, Any, str]] = [
    ("before_model", _generates, "it returned a async_generator; a hook returns a State, None for 'unchanged'"),
    ("before_model", lambda self, state, run: [state], "it returned a list; a hook returns a State"),
    ("after_agent", lambda self, state, run: True, "it returned a bool; a hook returns a State"),
    ("before_model", lambda self: None, "TypeError"),
    (
        "wrap_model_call",
        lambda self, request, call_next: None,
        "it returned a NoneType; a wrap hook returns the Message that `await call_next(…)` gave, or one of its own",
    ),
    (
        "wrap_model_call",
        lambda self, request, call_next: Message("user", "me"),
        "it returned a Message of the role 'user'; the model's is Message('assistant', …)",
    ),
    ("wrap_model_call", lambda self, request, call_next: call_next(None), "AttributeError"),
    ("wrap_model_call", lambda self, request, call_next: call_next(request.replace(messages=["x"])), "AttributeError"),
    (
        "wrap_model_call",
        lambda self, request, call_next: call_next(request.replace(model="gpt")),
        "a ChatModel is needed",
    ),
    (
        "wrap_tool_call",
        lambda self, call, context, call_next: "text",
        "it returned a str; a wrap hook returns the ToolResult",
    ),
    ("wrap_tool_call", lambda self, call, context, call_next: call_next("ping"), "AttributeError"),
]


@pytest.mark.parametrize(("hook", "function", "words"), RUBBISH, ids=range(len(RUBBISH)))
async def test_what_a_hook_returns_is_checked_where_it_returns(hook: str, function: Any, words: str) -> None:
    error = await fail(with_hook(hook, function))
    assert error.type == "middleware_error"
    assert error.message.startswith(f"Bad.{hook} raised ")
    assert words in error.message


async def test_a_model_error_of_a_wrap_hook_is_the_models() -> None:
    async def limits(self: Any, request: Any, call_next: Any) -> Message:
        raise ModelError("budget spent", type="budget")

    error = await fail(with_hook("wrap_model_call", limits))
    assert (error.type, error.message) == ("budget", "budget spent")


async def test_an_answer_of_a_wrap_hook_needs_no_model() -> None:
    async def remembers(self: Any, request: Any, call_next: Any) -> Message:
        return Message("assistant", "from the cache")

    model = ScriptedModel([])
    result = await Agent(model=model, middleware=[with_hook("wrap_model_call", remembers)]).execute("go")
    assert (result.text, model.requests) == ("from the cache", [])


@pytest.mark.parametrize("error", [ValueError("x"), ModelError("x"), SystemExit(1)])
async def test_an_after_agent_that_fails_keeps_nobody_from_leaving(error: BaseException) -> None:
    left: list[str] = []
    bad = with_hook("after_agent", lambda self, state, run: _raise(error))
    agent = Agent(
        model=ScriptedModel(["hi"]), middleware=[Leaves(name="A", left=left), bad, Leaves(name="C", left=left)]
    )
    with pytest.raises(AgentError) as caught:
        await agent.execute("go")
    assert left == ["C", "A"]
    assert caught.value.state.messages[-1].text == "hi"


async def who_leaves_when_stopped_while_leaving() -> list[str]:
    left: list[str] = []
    reached = asyncio.Event()

    class Slow(Middleware):
        async def after_agent(self, state: State, run: Any) -> None:
            reached.set()
            await asyncio.sleep(60)

    stack = [Leaves(name="A", left=left), Slow(), Leaves(name="C", left=left)]
    task = asyncio.ensure_future(Agent(model=ScriptedModel(["hi"]), middleware=stack).execute("go"))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert state_reached(caught.value).messages[-1].text == "hi"
    return left


async def test_a_stop_in_the_middle_of_leaving_leaves_the_others_once() -> None:
    assert await who_leaves_when_stopped_while_leaving() == ["C", "A"]


async def test_a_hook_that_never_leaves_holds_up_stop_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "LEAVE_TIMEOUT", 0.1)
    reached = asyncio.Event()

    class Stays(Middleware):
        async def before_model(self, state: State, run: Any) -> None:
            reached.set()
            await asyncio.sleep(60)

        async def after_agent(self, state: State, run: Any) -> None:
            await asyncio.sleep(60)

    task = asyncio.ensure_future(Agent(model=ScriptedModel(["hi"]), middleware=[Stays()]).execute("go"))
    await reached.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=5)
    assert done
    with pytest.raises(asyncio.CancelledError):
        task.result()


SWALLOWED_IN = ["before_agent", "before_model", "wrap_model_call", "after_model", "wrap_tool_call", "tool"]


async def swallow(where: str) -> int:
    """Stop a run while something in it swallows every cancellation; the model calls that were still made."""
    reached = asyncio.Event()

    async def swallows() -> None:
        reached.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return

    async def state_hook(self: Any, state: State, run: Any) -> None:
        if not reached.is_set():
            await swallows()

    async def model_hook(self: Any, request: Any, call_next: Any) -> Message:
        message: Message = await call_next(request)
        await swallows()
        return message

    async def tool_hook(self: Any, call: Any, context: Any, call_next: Any) -> Any:
        result = await call_next(call)
        await swallows()
        return result

    @tool(name="ping")
    async def stubborn() -> str:
        "Does not stop."
        await swallows()
        return "pong"

    body: Any = {"wrap_model_call": model_hook, "wrap_tool_call": tool_hook}.get(where, state_hook)
    model = ScriptedModel([ToolCall("ping")] * 9 + ["done"])
    agent = Agent(
        model=model,
        tools=[stubborn if where == "tool" else ping],
        middleware=[] if where == "tool" else [with_hook(where, body)],
    )
    task = asyncio.ensure_future(agent.execute("go"))
    await reached.wait()
    before = len(model.requests)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=5)
    assert done
    with pytest.raises(asyncio.CancelledError) as caught:
        task.result()
    assert state_reached(caught.value).messages[0].text == "go"
    return len(model.requests) - before


@pytest.mark.parametrize("where", SWALLOWED_IN[1:])
async def test_stop_is_stop_whoever_swallows_it(where: str) -> None:
    assert await swallow(where) == 0


async def test_a_stop_swallowed_before_the_first_cycle_is_seen_after_its_first_step() -> None:
    assert await swallow("before_agent") == 0


async def test_without_looking_after_each_step_the_run_would_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module.Run, "asked_to_stop", False)
    with pytest.raises(pytest.fail.Exception):
        await swallow("after_model")


async def test_a_run_in_a_task_that_was_cancelled_before_it_began_is_not_stopped() -> None:
    """Somebody cleans up with an agent in a ``finally``."""
    done: list[str] = []

    async def cleans_up() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            done.append((await Agent(model=ScriptedModel([ToolCall("ping"), "tidy"]), tools=[ping]).execute("go")).text)

    task = asyncio.ensure_future(cleans_up())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["tidy"]


def ticks(log: list[str]) -> Agent:
    class Waits(Middleware):
        async def before_agent(self, state: State, run: Any) -> None:
            log.append("in")
            await asyncio.sleep(0)

        async def before_model(self, state: State, run: Any) -> None:
            await asyncio.sleep(0)

        async def wrap_model_call(self, request: Any, call_next: Any) -> Message:
            await asyncio.sleep(0)
            message: Message = await call_next(request)
            await asyncio.sleep(0)
            return message

        async def after_model(self, state: State, run: Any) -> None:
            await asyncio.sleep(0)

        async def wrap_tool_call(self, call: Any, context: Any, call_next: Any) -> Any:
            await asyncio.sleep(0)
            return await call_next(call)

        async def after_agent(self, state: State, run: Any) -> None:
            log.append("out")
            await asyncio.sleep(0)

    @tool
    async def wait() -> str:
        "Waits."
        await asyncio.sleep(0)
        return "waited"

    model = ScriptedModel([[ToolCall("wait"), ToolCall("wait")], "done"], delay=1e-9)
    return Agent(model=model, tools=[wait], middleware=[Waits()])


async def test_stopped_at_any_await_the_state_is_whole_and_can_go_on() -> None:
    stopped = 0
    for moment in range(200):
        log: list[str] = []
        agent = ticks(log)
        task = asyncio.ensure_future(agent.execute("go"))
        for _ in range(moment):
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        try:
            await task
        except asyncio.CancelledError as cancelled:
            if moment == 0:  # it had not begun
                assert log == []
                continue
            stopped += 1
            assert log.count("in") == log.count("out")
            state = state_reached(cancelled)
            assert state.messages[0].text == "go"
            roles = [m.role for m in state.messages]
            assert roles == ["user", "assistant", "tool", "assistant"][: len(roles)]
            for message in state.messages:
                if message.role == "assistant" and message.status == "cancelled":
                    assert message is state.messages[-1]
            fresh = ScriptedModel(["went on"])
            again = await agent.replace(model=fresh).execute(state.add_message("and?"))
            assert again.text == "went on"
            calls = [call.id for m in fresh.requests[0].messages for call in m.tool_calls]
            assert [r.tool_call_id for m in fresh.requests[0].messages for r in m.tool_results] == calls
    assert stopped > 20


async def test_one_agent_runs_many_conversations_at_once_and_none_sees_another() -> None:
    class Marks(Middleware):
        async def before_model(self, state: State, run: Any) -> State:
            await asyncio.sleep(0)
            run.local["seen"] = state.messages[0].text
            await asyncio.sleep(0)
            return state.put_metadata("mine", run.local["seen"])

    shared = Marks()
    model = ScriptedModel([lambda request: request.messages[0].text.upper()], repeat=True)
    one, two = (Agent(model=model, middleware=[shared]) for _ in range(2))
    results = await asyncio.gather(*((one, two)[n % 2].execute(f"talk {n}") for n in range(20)))
    assert [r.text for r in results] == [f"TALK {n}" for n in range(20)]
    assert [r.state.metadata["mine"] for r in results] == [f"talk {n}" for n in range(20)]


async def scope_in_an_interrupt() -> None:
    ask = with_hook("after_model", lambda self, state, run: Interrupt("q", "?", {"for": [1, {"user": [7]}]}))
    error = await fail(ask, scope={"user": (7,)})
    assert "the interrupt's data['for'][1] holds the scope, which is never saved" in error.message


async def test_the_scope_does_not_get_into_an_interrupt_a_tuple_in_it_notwithstanding() -> None:
    await scope_in_an_interrupt()


async def test_without_the_guard_it_would_get_into_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "refuse_scope", lambda *_: None)
    with pytest.raises(pytest.fail.Exception):
        await scope_in_an_interrupt()


async def test_the_record_tells_a_stop_from_a_failure() -> None:
    class Waits(Middleware):
        async def before_model(self, state: State, run: Any) -> None:
            await asyncio.sleep(60)

    events: list[Any] = []
    agent = Agent(model=ScriptedModel(["hi"]), middleware=[Waits()])
    run = agent.begin("go")
    run.recorder.listeners.append(events.append)
    task = asyncio.ensure_future(loop_module.run_leg(run))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    told = [(e.cancelled, e.error) for e in events if isinstance(e, HookEnded)]
    assert told == [(True, None)]

    own = Agent(
        model=ScriptedModel(["hi"]), middleware=[with_hook("before_model", lambda s, state, run: _cancels_itself())]
    )
    run = own.begin("go")
    run.recorder.listeners.append(events.append)
    with pytest.raises(AgentError):
        await loop_module.run_leg(run)
    told = [(e.cancelled, e.error) for e in events if isinstance(e, HookEnded)]
    assert told[1:] == [(False, "CancelledError, though nobody stopped the run")]


async def test_without_asking_who_cancelled_a_hooks_own_cancellation_would_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks_module, "stop_requests", lambda: 1)
    agent = Agent(
        model=ScriptedModel(["hi"]), middleware=[with_hook("before_model", lambda s, state, run: _cancels_itself())]
    )
    with pytest.raises(asyncio.CancelledError):
        await agent.execute("go")


def test_one_agent_runs_on_several_loops_at_once() -> None:
    """A cell's loop, the runtime's and a script's may all use one agent."""

    class Counts(Middleware):
        async def before_model(self, state: State, run: Any) -> State:
            run.local["n"] = run.local.get("n", 0) + 1
            await asyncio.sleep(0)
            return state.put_metadata("n", run.local["n"])

    model = ScriptedModel([lambda request: request.messages[-1].text.upper()], repeat=True)
    agent = Agent(model=model, middleware=[Counts()])

    def talk(number: int) -> list[tuple[str, int]]:
        async def turns() -> list[tuple[str, int]]:
            found = []
            for turn in range(5):
                state = State.from_text(f"{number} {turn}", conversation_id=f"talk {number}")
                result = await agent.execute(state)
                found.append((result.text, result.state.metadata["n"]))
            return found

        return asyncio.run(turns())

    with ThreadPoolExecutor(4) as pool:
        talks = list(pool.map(talk, range(4)))
    assert talks == [[(f"{number} {turn}", turn + 1) for turn in range(5)] for number in range(4)]
    assert len(model.requests) == 20


async def test_the_error_of_a_run_inside_a_hook_comes_with_the_state_of_the_outer_run() -> None:
    inner = Agent(model=ScriptedModel([ModelError("down", type="overloaded")]))

    async def asks_inside(self: Any, state: State, run: Any) -> None:
        await inner.execute("inner question")

    error = await fail(with_hook("before_model", asks_inside))
    assert (error.type, error.message) == ("overloaded", "down")
    assert [m.text for m in error.state.messages] == ["go"]
