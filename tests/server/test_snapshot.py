"""Joining at any moment: snapshot plus the events after it are everything, once."""

import threading
from typing import Any

import pytest

from sagents_nb import Agent, Message, Middleware, ScriptedModel, State, ToolCall, tool
from sagents_nb.events import DisplayChanged, Event, ModelDelta, ModelEnded, ModelStarted, QueueChanged, StatusChanged
from sagents_nb.execution.recorder import RING_SIZE
from sagents_nb.messages import Thinking
from sagents_nb.server.agent_server import AgentServer
from sagents_nb.server.display import DisplayMessage
from sagents_nb.server.session import Session
from sagents_nb.server.snapshot import SessionSnapshot

from .doubles import TIMEOUT, EchoModel, WaitingModel, in_threads, scripted


class View:
    """What a widget does: a snapshot, then the events after it."""

    def __init__(self, session: Session) -> None:
        self.waiting: list[Event] = []
        self.end = session.subscribe_callback(self.waiting.append)
        snapshot = session.snapshot()
        self.seq = snapshot.seq
        self.rows: dict[str, DisplayMessage] = {row.id: row for row in snapshot.display_messages}
        self.text = snapshot.streaming_text
        self.status: str = snapshot.status
        self.queue = snapshot.queue
        self.deltas = 0

    def catch_up(self) -> None:
        for event in self.waiting:
            if event.seq <= self.seq:
                continue
            assert event.seq == self.seq + 1, f"event {self.seq + 1} is missing"
            self.seq = event.seq
            match event:
                case DisplayChanged():
                    self.rows |= {row.id: row for row in event.rows}
                case ModelDelta():
                    self.text += event.text
                    self.deltas += 1
                case ModelStarted() | ModelEnded():
                    self.text = ""
                case StatusChanged():
                    self.status = event.status
                case QueueChanged():
                    self.queue = event.texts
        self.waiting.clear()

    def check(self, snapshot: SessionSnapshot) -> None:
        """What it shows is what is."""
        assert self.seq == snapshot.seq
        assert list(self.rows.values()) == list(snapshot.display_messages)
        assert self.text == snapshot.streaming_text
        assert self.status == snapshot.status
        assert self.queue == snapshot.queue


@tool
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


TURNS: list[Any] = [
    ["Let me see. ", ToolCall("look", {"what": "a"}), ToolCall("look", {"what": "b"})],
    "Two things.",
    "Bye.",
]


def a_view_that_joins_at_any_moment_shows_everything_once() -> None:
    """Rule: for every event of two runs, a view that joins right there shows the same as one that was there before."""
    session = Agent(model=ScriptedModel(TURNS, chunk_size=5), tools=[look]).session()
    views: list[View] = []

    def join(_event: Event) -> None:
        views.append(View(session))

    session.subscribe_callback(join)
    session.send("go")
    session.send("bye")
    assert session.wait(TIMEOUT) == "idle"
    assert len(views) > 40
    last = session.snapshot()
    assert [row.sequence for row in last.display_messages] == list(range(1, 10))
    for view in views:
        view.end()
        view.catch_up()
        view.check(last)


def test_a_view_that_joins_at_any_moment_shows_everything_once() -> None:
    a_view_that_joins_at_any_moment_shows_everything_once()


def test_if_rows_and_deltas_followed_the_event_outside_the_lock_that_would_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fold = AgentServer._fold

    def late(server: AgentServer, event: Event) -> None:
        server.publisher.publish(event)
        fold(server, event)
        rows, server._folded = server._folded, []
        if rows:
            server._show(rows)

    monkeypatch.setattr(AgentServer, "_fold", lambda *_args: None)
    monkeypatch.setattr(AgentServer, "_react", late)
    with pytest.raises(AssertionError):
        a_view_that_joins_at_any_moment_shows_everything_once()


def test_views_that_join_from_other_threads_show_everything_once() -> None:
    session = Agent(model=EchoModel(delay=0.0003)).session()
    ready = threading.Event()

    def join(number: int) -> list[View]:
        if number == 0:
            for step in range(25):
                session.send(f"message {step}")
            session.wait(TIMEOUT)
            ready.set()
            return []
        views = []
        while not ready.is_set():
            view = View(session)
            views.append(view)
            if len(views) > 40:
                views.pop(0).end()
        return views

    results = in_threads(4, join)
    last = session.snapshot()
    for view in (view for views in results for view in views):
        view.end()
        view.catch_up()
        view.check(last)


def test_the_answer_so_far_is_in_it_exactly_once() -> None:
    model = WaitingModel(before="Half ", after="done.")
    session = Agent(model=model).session()
    session.send("hi")
    assert model.reached.wait(TIMEOUT)
    view = View(session)
    assert view.text == "Half "
    model.go.set()
    session.wait(TIMEOUT)
    view.catch_up()
    assert view.deltas == 2  # the rest of the text, and the end
    view.check(session.snapshot())


def test_everything_about_a_session_is_in_it() -> None:
    class Note(Middleware):
        def before_model(self, state: State, run: Any) -> State:
            return state.put_metadata("seen", True)

    session = scripted("one").replace(middleware=[Note()]).session(conversation_id="all-of-it")
    session.send("hi")
    session.wait(TIMEOUT)
    snapshot = session.snapshot()
    assert (snapshot.status, snapshot.error, snapshot.conversation_id) == ("idle", None, "all-of-it")
    assert snapshot.agent_id == session.agent_id
    assert snapshot.state is session.state
    assert snapshot.state.metadata == {"seen": True}
    assert [row.text for row in snapshot.display_messages] == ["hi", "one"]
    assert snapshot.events[-1].seq == snapshot.seq
    assert not any(isinstance(event, ModelDelta) for event in snapshot.events)


def test_a_thought_is_streamed_apart_from_the_text() -> None:
    thoughts: list[tuple[str, str]] = []
    model = ScriptedModel([Message("assistant", [Thinking(text="hmm"), "ah"])])
    session = Agent(model=model).session()

    def look_at(event: Event) -> None:
        if isinstance(event, ModelDelta):
            snapshot = session.snapshot()
            thoughts.append((snapshot.streaming_thinking, snapshot.streaming_text))

    session.subscribe_callback(look_at)
    session.send("hi")
    session.wait(TIMEOUT)
    assert thoughts == [("hmm", ""), ("hmm", "ah"), ("hmm", "ah")]
    assert session.snapshot().streaming_thinking == ""


def test_the_state_never_goes_back() -> None:
    session = Agent(model=EchoModel(delay=0)).session()
    done = threading.Event()

    def watch(number: int) -> int:
        if number == 0:
            for step in range(60):
                session.send(str(step))
            session.wait(TIMEOUT)
            done.set()
            return 0
        most = 0
        while not done.is_set():
            count = len(session.state.messages)
            assert count >= most, f"{most} messages became {count}"
            most = count
        return most

    results = in_threads(3, watch)
    assert all(isinstance(result, int) for result in results), results


def test_events_kept_for_it_are_bounded() -> None:
    session = scripted("one").session()
    assert session._server._recorder.events.maxlen == RING_SIZE == 5_000
