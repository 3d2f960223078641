"""What a session promises to those who talk to it."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    Image,
    Middleware,
    ModelError,
    ScriptedModel,
    SessionError,
    State,
    ToolCall,
    ToolContext,
    tool,
)
from sagents_nb.execution import hooks
from sagents_nb.server import agent_server
from sagents_nb.server.session import running_sessions

from .doubles import TIMEOUT, EchoModel, WaitingModel, eventually, in_threads, recorded, scripted, texts


def test_send_returns_at_once_and_the_session_is_running_from_that_moment() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    assert session.status == "idle"
    session.send("hello")
    assert session.status == "running"
    model.go.set()
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session) == ["user: hello", "assistant: Half an answer."]
    assert session.state.last_text == "Half an answer."


def test_a_conversation_goes_on_from_its_state() -> None:
    agent = scripted("one", "two")
    session = agent.session()
    for text in ("a", "b"):
        session.send(text)
        session.wait(TIMEOUT)
    assert [message.text for message in agent.model.requests[1].messages] == ["a", "one", "b"]
    assert session.state.conversation_id == session.conversation_id
    assert session.state.agent_id == agent.agent_id


def test_wait_gives_up_in_time_and_the_run_goes_on() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    session.send("hello")
    with pytest.raises(TimeoutError) as caught:
        session.wait(0.01)
    assert str(caught.value) == (
        f"conversation {session.conversation_id} still runs after 0.01 s and goes on; wait again, or session.cancel()"
    )
    assert session.status == "running"
    model.go.set()
    assert session.wait(TIMEOUT) == "idle"


def test_waiting_when_nothing_runs_returns_at_once() -> None:
    session = scripted("x").session()
    assert session.wait(0) == "idle"
    assert session.wait() == "idle"


async def test_a_session_can_be_awaited_in_three_ways() -> None:
    session = scripted("one", "two", "three").session()
    session.send("a")
    assert await session == "idle"
    session.send("b")
    assert await session.idle() == "idle"
    session.send("c")
    assert await asyncio.to_thread(session.wait, TIMEOUT) == "idle"
    assert await session == "idle"


async def test_idle_gives_up_in_time_and_the_run_goes_on() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    session.send("hello")
    with pytest.raises(TimeoutError, match=r"still runs after 0\.01 s and goes on"):
        await session.idle(timeout=0.01)
    assert session.status == "running"
    model.go.set()
    assert await session.idle(timeout=TIMEOUT) == "idle"


async def test_cancelling_the_one_who_waits_cancels_the_run() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    session.send("hello")
    waiting = asyncio.ensure_future(session.idle())
    await asyncio.to_thread(model.reached.wait, TIMEOUT)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await session == "cancelled"
    assert session.state.messages[-1].status == "cancelled"


def test_those_who_gave_up_waiting_are_forgotten() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    session.send("hello")
    for _ in range(50):
        with pytest.raises(TimeoutError):
            session.wait(0)
    assert len(session._server._waiters) < 3
    model.go.set()
    session.wait(TIMEOUT)


@pytest.mark.parametrize("nothing", ["", "   \n", [], ["", " "]])
def test_an_empty_message_is_refused(nothing: Any) -> None:
    session = scripted("x").session()
    with pytest.raises(ValueError, match=r"the message is empty; send some text: session\.send\('…'\)"):
        session.send(nothing)
    assert session.status == "idle"


def test_an_image_alone_is_a_message() -> None:
    session = scripted("a cat").session()
    session.send(Image(data="aGk=", media_type="image/png"))
    assert session.wait(TIMEOUT) == "idle"
    assert session.display_messages[0].content == {"data": "aGk=", "mime_type": "image/png"}


# What goes wrong in a run is never silent, and never the end of the conversation.


class Broken(Middleware):
    def before_model(self, state: State, run: Any) -> State | None:
        if state.messages[-1].text == "break":
            raise ZeroDivisionError("division by zero")
        return None


class Leaving(Middleware):
    def before_model(self, state: State, run: Any) -> State | None:
        if state.messages[-1].text == "break":
            raise SystemExit(3)
        return None


@pytest.mark.parametrize(
    ("agent", "error", "error_type"),
    [
        (
            Agent(model=ScriptedModel([ModelError("no such key", type="authentication_error"), "fine"])),
            "no such key",
            "authentication_error",
        ),
        (
            Agent(model=ScriptedModel(["fine"]), middleware=[Broken()]),
            "Broken.before_model raised ZeroDivisionError: division by zero",
            "middleware_error",
        ),
        (
            Agent(model=ScriptedModel(["fine"]), middleware=[Leaving()]),
            "Leaving.before_model raised SystemExit: 3",
            "middleware_error",
        ),
    ],
    ids=["model", "middleware", "sys.exit"],
)
def test_a_failed_run_is_shown_and_the_next_message_works(agent: Agent, error: str, error_type: str) -> None:
    session = agent.session()
    with recorded(session) as events:
        session.send("break")
        assert session.wait(TIMEOUT) == "error"
        assert session.error == error
        row = session.display_messages[-1]
        assert (row.content_type, row.content) == ("error", {"text": error, "error_type": error_type})
        ends = [(event.status, event.error) for event in events if event.type in ("run_ended", "status_changed")]
        assert ends == [("running", None), ("error", error), ("error", error)]
        session.send("go on")
        assert session.wait(TIMEOUT) == "idle"
        assert session.error is None
    assert texts(session)[-2:] == ["user: go on", "assistant: fine"]


def test_a_mistake_of_the_toolkit_itself_is_shown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    session = scripted("fine", "fine").session()
    with monkeypatch.context() as patch:

        async def run_hooks(*_arguments: object) -> None:
            raise LookupError("a bug")

        patch.setattr("sagents_nb.execution.steps.run_hooks", run_hooks)
        session.send("break")
        assert session.wait(TIMEOUT) == "error"
    assert session.error == "LookupError: a bug"
    assert session.display_messages[-1].content == {"text": "LookupError: a bug", "error_type": None}
    session.send("go on")
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session)[-1] == "assistant: fine"


def test_a_mistake_before_the_run_began_is_shown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    session = scripted("fine").session()
    with monkeypatch.context() as patch:
        patch.setattr(Agent, "begin", lambda *_args, **_options: 1 / 0)
        session.send("break")
        assert session.wait(TIMEOUT) == "error"
    assert texts(session) == ["user: break", "system: ZeroDivisionError: division by zero"]
    session.send("go on")
    assert session.wait(TIMEOUT) == "idle"


@pytest.mark.parametrize("broken", ["rows_of", "run_leg"])
def test_a_mistake_in_what_people_see_does_not_leave_the_session_running_for_ever(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    session = scripted("fine", "fine").session()
    home = "sagents_nb.server.transcript" if broken == "rows_of" else agent_server.__name__
    with monkeypatch.context() as patch:
        patch.setattr(f"{home}.{broken}", lambda *_args, **_options: 1 / 0)
        session.send("break")
        assert session.wait(TIMEOUT) == "error"
    session.send("go on")
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session)[-1] == "assistant: fine"


def test_a_tool_that_ends_the_process_ends_only_itself() -> None:
    @tool
    def leave() -> str:
        """Leave."""
        raise SystemExit(2)

    @tool
    async def leave_too() -> str:
        """Leave."""
        raise SystemExit(2)

    model = ScriptedModel([[ToolCall("leave"), ToolCall("leave_too")], "still here"])
    session = Agent(model=model, tools=[leave, leave_too]).session()
    other = scripted("and I").session()
    session.send("go")
    assert session.wait(TIMEOUT) == "idle"
    assert [result.text for result in session.state.messages[2].tool_results] == ["ERROR: (SystemExit) 2"] * 2
    assert texts(session)[-1] == "assistant: still here"
    other.send("hi")
    assert other.wait(TIMEOUT) == "idle"


# Stopping.


def test_stop_ends_the_run_keeps_what_was_said_and_is_final() -> None:
    model = WaitingModel()
    agent = Agent(model=model)
    session = agent.session()
    session.send("hello")
    assert model.reached.wait(TIMEOUT)
    with recorded(session) as events:
        session.stop()
    assert session.stopped
    assert session.status == "cancelled"
    assert texts(session) == ["user: hello", "assistant: Half an "]
    assert events[-1].type == "session_stopped"
    assert session not in running_sessions()
    with pytest.raises(SessionError) as caught:
        session.send("more")
    assert str(caught.value) == (
        f"the session of conversation {session.conversation_id} was stopped, so it cannot send; "
        "start it again with agent.session(store=…, conversation_id=…)"
    )
    session.cancel()
    session.stop()
    assert session.wait(TIMEOUT) == "cancelled"
    assert len(events) == events[-1].seq - events[0].seq + 1


def test_a_session_is_a_context_manager() -> None:
    with scripted("x").session() as session:
        session.send("hi")
        session.wait(TIMEOUT)
    assert session.stopped


def test_no_event_follows_the_end_not_even_of_a_tool_that_still_runs() -> None:
    began, release, done = threading.Event(), threading.Event(), threading.Event()

    @tool
    def stubborn(context: ToolContext) -> str:
        """Go on whatever happens."""
        began.set()
        release.wait(TIMEOUT)
        context.publish("late", {"cancelled": context.cancelled})
        done.set()
        return "late"

    session = Agent(model=ScriptedModel([ToolCall("stubborn")]), tools=[stubborn]).session()
    with recorded(session) as events:
        session.send("go")
        assert began.wait(TIMEOUT)
        session.stop()
        release.set()
        assert done.wait(TIMEOUT)
        time.sleep(0.05)
    assert events[-1].type == "session_stopped"
    assert [event.type for event in events].count("tool_abandoned") == 1


def test_stopping_from_many_threads_comes_to_one_end() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    with recorded(session) as events:
        session.send("hello")
        model.reached.wait(TIMEOUT)
        assert in_threads(8, lambda _number: session.stop()) == [None] * 8
        assert session._server.ended
    assert [event.type for event in events].count("session_stopped") == 1


async def test_a_tool_may_stop_its_own_session() -> None:
    session = None

    @tool
    async def goodbye() -> str:
        """End it."""
        assert session is not None
        await session.aclose()
        return "never"

    session = Agent(model=ScriptedModel([ToolCall("goodbye")]), tools=[goodbye]).session()
    session.send("go")
    await asyncio.to_thread(eventually, lambda: session._server.ended)
    assert session.status == "cancelled"


def test_synchronous_calls_on_the_thread_of_the_agents_are_refused_and_name_their_twin() -> None:
    said: dict[str, str] = {}
    session = scripted("hi", "x").session()

    class Waits(Middleware):
        def before_model(self, state: State, run: Any) -> None:
            calls: dict[str, Callable[[], object]] = {
                "wait": session.wait,
                "stop": session.stop,
                "subscribe": lambda: session.subscribe().__enter__(),
                "run": lambda: session.agent.run("x"),
                "session": lambda: session.agent.session(),
            }
            for name, call in calls.items():
                try:
                    call()
                except SessionError as error:
                    said[name] = str(error)

    other = Agent(model=ScriptedModel(["x"]), middleware=[Waits()]).session()
    other.send("hi")
    assert other.wait(TIMEOUT) == "idle"
    where = "waits, which cannot be done on the thread where agents run; use"
    assert said == {
        "wait": f"session.wait {where} `await session.idle()`",
        "stop": f"session.stop {where} `await session.aclose()`",
        "subscribe": f"session.subscribe {where} `async for event in session.events()`",
        "run": f"agent.run {where} `await agent.execute(…)`",
        "session": f"agent.session {where} another thread, such as a notebook cell",
    }
    assert not session.stopped
    session.send("still here")
    assert session.wait(TIMEOUT) == "idle"


def test_a_stop_that_does_not_come_to_its_end_says_so() -> None:
    release = threading.Event()

    class Deaf(Middleware):
        async def before_model(self, state: State, run: Any) -> None:
            while not release.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue

    session = Agent(model=ScriptedModel(["x"]), middleware=[Deaf()]).session()
    session.send("hi")
    time.sleep(0.05)
    with pytest.raises(TimeoutError, match="did not come to an end within 0.05 s: a hook or an async tool"):
        session.stop(0.05)
    release.set()
    session.stop(TIMEOUT)
    assert session._server.ended


# What lives as long as the conversation.


class Counting(Middleware):
    def before_model(self, state: State, run: Any) -> State:
        run.local["count"] = run.local.get("count", 0) + 1
        return state.put_metadata("count", run.local["count"])


def local_lives_as_long_as_its_conversation() -> None:
    agent = Agent(model=EchoModel(), middleware=[Counting()])
    first, second = agent.session(conversation_id="first"), agent.session(conversation_id="second")
    for session, expected in ((first, 1), (first, 2), (second, 1), (first, 3)):
        session.send("hi")
        session.wait(TIMEOUT)
        assert session.state.metadata == {"count": expected}
    first.stop()
    again = agent.session(conversation_id="first")
    again.send("hi")
    again.wait(TIMEOUT)
    assert again.state.metadata == {"count": 1}
    for session in (again, second):
        session.stop()
    assert agent._locals == {}


def test_run_local_lives_as_long_as_its_conversation() -> None:
    local_lives_as_long_as_its_conversation()


def test_without_forgetting_run_local_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agent, "forget", lambda *_args: None)
    with pytest.raises(AssertionError):
        local_lives_as_long_as_its_conversation()


def test_a_repr_says_what_it_is() -> None:
    session = scripted("x").session(conversation_id="the-repr")
    session.send("hi")
    session.wait(TIMEOUT)
    assert repr(session) == "Session('the-repr', idle, 2 rows)"
    session.stop()
    assert repr(session) == "Session('the-repr', stopped, 2 rows)"


# From many threads at once.


def test_send_cancel_snapshot_and_stop_from_many_threads_leave_a_settled_session() -> None:
    session = Agent(model=EchoModel()).session()

    def job(number: int) -> str:
        for step in range(15):
            match (number + step) % 4:
                case 0 | 1:
                    session.send(f"{number}.{step}")
                case 2:
                    session.cancel()
                case _:
                    snapshot = session.snapshot()
                    assert snapshot.seq >= 0
                    assert session.status in ("idle", "running", "cancelled")
        return "done"

    assert in_threads(8, job) == ["done"] * 8
    assert session.wait(TIMEOUT) in ("idle", "cancelled")
    rows = session.display_messages
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    asked = [row.text for row in rows if row.message_type == "user"]
    assert len(asked) == 60
    assert len(set(asked)) == 60
    assert all(row.status in ("completed", "cancelled") for row in rows)
    assert not session._server._waiters


def test_what_is_sent_while_another_thread_stops_is_answered_kept_or_refused() -> None:
    for _ in range(20):
        agent = Agent(model=EchoModel(delay=0))
        session = agent.session()

        def job(number: int, session: Any = session) -> str:
            if number == 0:
                session.stop()
                return "stopped"
            session.send(str(number))
            return str(number)

        results = in_threads(6, job)
        accepted = sorted(result for result in results[1:] if isinstance(result, str))
        assert all(isinstance(result, (str, SessionError)) for result in results)
        assert sorted(row.text for row in session.display_messages if row.message_type == "user") == accepted
        assert session.wait(TIMEOUT) != "running"


def test_slow_hooks_are_announced_to_those_who_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "SLOW", 0.0)
    session = Agent(model=EchoModel(), middleware=[Counting()]).session()
    with recorded(session) as events:
        session.send("hi")
        session.wait(TIMEOUT)
    assert [event.hook for event in events if event.type == "hook_slow"] == ["before_model"]
