"""Stop: at once, wherever the run is, and nothing that was said is lost."""

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from sagents_nb import Agent, Message, Middleware, ModelError, ScriptedModel, State, ToolCall, ToolContext, tool
from sagents_nb.server.agent_server import AgentServer
from sagents_nb.server.persistence import MemoryPersistence, Turn
from sagents_nb.server.session import Session

from .doubles import TIMEOUT, EchoModel, WaitingModel, eventually, recorded, scripted, texts


def rows(session: Session) -> list[tuple[str, str, str]]:
    return [(row.content_type, row.text, row.status) for row in session.display_messages]


def test_in_the_middle_of_an_answer_the_part_that_came_is_kept() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    with recorded(session) as events:
        session.send("hello")
        assert model.reached.wait(TIMEOUT)
        session.cancel()
        assert session.wait(TIMEOUT) == "cancelled"
        assert model.chunks == 0
        last = session.state.messages[-1]
        assert (last.text, last.status) == ("Half an ", "cancelled")
        assert session.display_messages[-1].content == {"text": "Half an ", "stop_reason": "cancelled"}
        assert session.error is None
        assert [event.status for event in events if event.type == "run_ended"] == ["cancelled"]
        assert session.snapshot().streaming_text == ""
        model.go.set()
        session.send("again")
        assert session.wait(TIMEOUT) == "idle"
    assert texts(session)[-2:] == ["user: again", "assistant: Half an answer."]


def test_before_the_first_word_there_is_a_note_instead() -> None:
    model = WaitingModel(before="")
    session = Agent(model=model).session()
    session.send("hello")
    assert model.reached.wait(TIMEOUT)
    session.cancel()
    assert session.wait(TIMEOUT) == "cancelled"
    note = session.display_messages[-1]
    assert (note.message_type, note.content_type) == ("system", "notification")
    assert note.content == {"text": "Stopped.", "stop_reason": "cancelled"}
    assert [message.role for message in session.state.messages] == ["user"]


def test_before_the_run_began_the_model_is_never_asked() -> None:
    agent = scripted("one", "two")
    session = agent.session()

    def send_and_cancel() -> None:
        session.send("hello")
        session.cancel()

    with recorded(session) as events:
        session._runtime.call(send_and_cancel)
        eventually(lambda: session.status == "cancelled")
        assert session.wait(TIMEOUT) == "cancelled"
    assert agent.model.requests == []
    assert texts(session) == ["user: hello", "system: Stopped."]
    assert [event.status for event in events if event.type == "status_changed"] == ["running", "cancelled"]
    session.send("again")
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session)[-1] == "assistant: one"


def test_a_tool_in_a_thread_is_given_up_and_is_told() -> None:
    began, told = threading.Event(), threading.Event()

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        began.set()
        while not context.cancelled:
            time.sleep(0.002)
        told.set()
        return "too late"

    session = Agent(model=ScriptedModel([ToolCall("work"), "next"]), tools=[work]).session()
    with recorded(session) as events:
        session.send("go")
        assert began.wait(TIMEOUT)
        session.cancel()
        assert session.wait(TIMEOUT) == "cancelled"
    assert told.wait(TIMEOUT)
    stopped = "Tool call work was stopped by the user before it was completed."
    assert rows(session) == [
        ("text", "go", "completed"),
        ("tool_call", "work {}", "cancelled"),
        ("tool_result", stopped, "completed"),
        ("notification", "Stopped.", "completed"),
    ]
    assert [event.type for event in events if event.type.startswith("tool_")] == [
        "tool_started",
        "tool_entered",
        "tool_abandoned",
        "tool_ended",
    ]
    assert session.state.messages[-1].tool_results[0].text == stopped
    session.send("again")
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session)[-1] == "assistant: next"


def test_an_async_tool_ends_and_those_beside_it_keep_their_answers() -> None:
    began, quick_done = threading.Event(), threading.Event()
    left: list[str] = []

    @tool
    async def slow() -> str:
        """Wait."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            left.append("slow")
        return "never"

    @tool
    async def quick() -> str:
        """Answer."""
        quick_done.set()
        return "done"

    @tool(sequential=True)
    async def later() -> str:
        """Never begins."""
        left.append("later")
        return "never"

    model = ScriptedModel([[ToolCall("slow"), ToolCall("quick"), ToolCall("later")], "next"])
    session = Agent(model=model, tools=[slow, quick, later]).session()
    with recorded(session) as events:
        session.send("go")
        assert began.wait(TIMEOUT)
        assert quick_done.wait(TIMEOUT)
        eventually(lambda: [event.type for event in events].count("tool_ended") == 1)
        session.cancel()
        assert session.wait(TIMEOUT) == "cancelled"
    assert left == ["slow"]
    calls = {row.content["name"]: row.status for row in session.display_messages if row.content_type == "tool_call"}
    assert calls == {"slow": "cancelled", "quick": "completed", "later": "cancelled"}
    answers = {result.name: (result.text, result.is_error) for result in session.state.messages[-1].tool_results}
    assert answers == {
        "slow": ("Tool call slow was stopped by the user before it was completed.", True),
        "quick": ("done", False),
        "later": ("Tool call later was stopped by the user before it was completed.", True),
    }


def test_while_a_retry_is_waited_for() -> None:
    busy = ModelError("busy", retryable=True, retry_after=30)
    session = Agent(model=ScriptedModel([busy, "next"])).session()
    with recorded(session) as events:
        session.send("go")
        eventually(lambda: any(event.type == "model_failed" for event in events))
        session.cancel()
        assert session.wait(TIMEOUT) == "cancelled"
    assert texts(session) == ["user: go", "system: Stopped."]
    session.send("again")
    assert session.wait(TIMEOUT) == "idle"


def test_while_a_blocking_hook_runs_in_its_thread() -> None:
    began, release = threading.Event(), threading.Event()

    class Slow(Middleware):
        blocking = True

        def before_model(self, state: State, run: Any) -> None:
            run.publish("begins", {"in": threading.current_thread().name})
            began.set()
            release.wait(TIMEOUT)

    session = Agent(model=ScriptedModel(["next"]), middleware=[Slow()]).session()
    with recorded(session) as events:
        session.send("go")
        assert began.wait(TIMEOUT)
        session.cancel()
        assert session.wait(TIMEOUT) == "cancelled"
        release.set()
    (published,) = [event for event in events if event.type == "published"]
    assert published.data["in"].startswith("sagents-Slow.before_model")
    session.send("again")
    assert session.wait(TIMEOUT) == "idle"


def test_what_a_blocking_hook_publishes_is_recorded_in_order_by_the_loop_alone() -> None:
    threads: set[str] = set()

    class Chatty(Middleware):
        blocking = True

        def before_model(self, state: State, run: Any) -> None:
            for number in range(200):
                run.publish("step", {"number": number})

    session = Agent(model=EchoModel(), middleware=[Chatty(name="A"), Chatty(name="B")]).session()
    session.subscribe_callback(lambda _event: threads.add(threading.current_thread().name))
    with recorded(session) as events:
        session.send("go")
        assert session.wait(TIMEOUT) == "idle"
    assert threads == {"sagents-runtime"}
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    for name in "AB":
        steps = [event.data["number"] for event in events if event.type == "published" and event.source == name]
        assert steps == list(range(200))


def test_twice_is_as_good_as_once() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    for expected in (1, 2, 3):
        session.send("hello")
        assert model.reached.wait(TIMEOUT)
        model.reached.clear()
        for _ in range(expected):
            session.cancel()
        assert session.wait(TIMEOUT) == "cancelled"
        assert session.state.messages[-1].status == "cancelled"
    assert texts(session) == ["user: hello", "assistant: Half an "] * 3


class Leaving(Middleware):
    """Its way out takes long."""

    began: Any = None

    async def after_agent(self, state: State, run: Any) -> None:
        self.began.set()
        await asyncio.sleep(60)


def test_a_second_one_does_not_wait_for_hooks_on_the_way_out() -> None:
    leaving = Leaving(began=threading.Event())
    model = WaitingModel()
    session = Agent(model=model, middleware=[leaving]).session()
    session.send("hello")
    assert model.reached.wait(TIMEOUT)
    session.cancel()
    assert leaving.began.wait(TIMEOUT)
    started = time.monotonic()
    session.cancel()
    assert session.wait(TIMEOUT) == "cancelled"
    assert time.monotonic() - started < 4  # the limit of a single one is 5 s
    assert texts(session) == ["user: hello", "assistant: Half an "]


def test_when_nothing_runs_it_does_nothing() -> None:
    session = scripted("one").session()
    session.cancel()
    assert session.status == "idle"
    session.send("hello")
    assert session.wait(TIMEOUT) == "idle"
    session.cancel()
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session) == ["user: hello", "assistant: one"]


class Late(MemoryPersistence):
    """Saves when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Future[int]] = []
        self.held = False

    def save_turn(self, scope: Any, turn: Turn) -> Future[int]:
        saved = super().save_turn(scope, turn)
        if not self.held or not any(event.type == "run_ended" for event in turn.events):
            return saved
        late: Future[int] = Future()
        self.waiting.append(late)
        return late


def a_late_stop_is_not_for_the_next_message() -> None:
    """Rule: a cancel that comes when the run is over, while its turn is saved, hits nothing."""
    store = Late()
    session = scripted("one", "two").session(store=store)
    store.held = True
    session.send("a")
    eventually(lambda: store.waiting)
    session.cancel()
    store.held = False
    threading.Timer(0.05, store.waiting[0].set_result, [1]).start()
    assert session.wait(TIMEOUT) == "idle"
    session.send("b")
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session) == ["user: a", "assistant: one", "user: b", "assistant: two"]


def test_a_late_stop_is_not_for_the_next_message() -> None:
    a_late_stop_is_not_for_the_next_message()


def test_if_it_were_remembered_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def remember(server: Any, asked: bool) -> None:
        server.__dict__["asked"] = asked or server.__dict__.get("asked", False)

    monkeypatch.setattr(
        AgentServer, "_cancel_asked", property(lambda server: server.__dict__["asked"], remember), raising=False
    )
    with pytest.raises(AssertionError):
        a_late_stop_is_not_for_the_next_message()


def test_only_the_present_run_is_stopped_the_next_message_is_answered() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    session.send("a")
    assert model.reached.wait(TIMEOUT)
    session.send("b")
    session.cancel()
    eventually(lambda: len(model.requests) == 2)
    model.go.set()
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session) == ["user: a", "assistant: Half an ", "user: b", "assistant: Half an answer."]
    assert [message.status for message in model.requests[1].messages] == ["complete", "cancelled", "complete"]


def test_the_model_is_never_shown_calls_that_never_ran() -> None:
    began = threading.Event()

    @tool
    async def slow() -> str:
        """Wait."""
        began.set()
        await asyncio.sleep(60)
        return ""

    agent = Agent(model=ScriptedModel([ToolCall("slow"), "next"]), tools=[slow])
    session = agent.session()
    session.send("a")
    assert began.wait(TIMEOUT)
    session.cancel()
    session.wait(TIMEOUT)
    session.send("b")
    assert session.wait(TIMEOUT) == "idle"
    asked = agent.model.requests[1].messages
    assert [message.role for message in asked] == ["user", "assistant", "tool", "user"]
    assert [result.tool_call_id for result in asked[2].tool_results] == [asked[1].tool_calls[0].id]


def test_at_any_moment_the_history_stays_whole() -> None:
    """Stop after each event of a run in turn: whatever is left can be gone on from."""

    @tool
    async def think() -> str:
        """Think."""
        await asyncio.sleep(0)
        return "thought"

    for moment in range(1, 40):
        agent = Agent(model=ScriptedModel([["I ", ToolCall("think")], "done", "next"]), tools=[think])
        session = agent.session()
        seen = 0

        def stop_here(_event: Any, session: Session = session, moment: int = moment) -> None:
            nonlocal seen
            seen += 1
            if seen == moment:
                session.cancel()

        end = session.subscribe_callback(stop_here)
        session.send("go")
        first = session.wait(TIMEOUT)
        end()
        assert first in ("idle", "cancelled")
        assert not [row for row in session.display_messages if row.status in ("pending", "executing")]
        agent.model._next = 2
        session.send("on")
        assert session.wait(TIMEOUT) == "idle"
        answered = {
            result.tool_call_id for message in agent.model.requests[-1].messages for result in message.tool_results
        }
        called = {call.id for message in agent.model.requests[-1].messages for call in message.tool_calls}
        assert answered == called
        assert texts(session)[-2:] == ["user: on", "assistant: next"]
        session.stop()
        if seen < moment:
            assert moment > 20, "the run had fewer events than it should"
            return


def test_a_message_of_the_model_is_never_empty_after_a_stop() -> None:
    model = WaitingModel(before="")
    session = Agent(model=model).session()
    session.send("a")
    assert model.reached.wait(TIMEOUT)
    session.cancel()
    session.wait(TIMEOUT)
    assert session.state.messages == (Message("user", "a"),)
