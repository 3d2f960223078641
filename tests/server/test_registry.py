"""One owner per conversation, and nothing left behind by a cell that runs again."""

import contextlib
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from sagents_nb import Agent, ConfigurationError, Middleware, ScriptedModel, State, ToolCall, tool
from sagents_nb.server import session as session_module
from sagents_nb.server.cell import CellRun
from sagents_nb.server.persistence import MemoryPersistence, StoredConversation
from sagents_nb.server.registry import registry
from sagents_nb.server.session import Session, running_sessions

from .doubles import TIMEOUT, EchoModel, Unreliable, WaitingModel, in_threads, scripted, texts


def test_the_same_agent_gives_back_the_living_session() -> None:
    agent = scripted("x")
    session = agent.session(conversation_id="same")
    assert agent.session(conversation_id="same") is session
    assert agent.session() is not agent.session()
    session.stop()
    assert agent.session(conversation_id="same") is not session


def test_another_agent_takes_the_conversation_over_with_everything_in_it() -> None:
    model = WaitingModel()
    agent = Agent(model=model)
    first = agent.session(conversation_id="taken-over")
    first.send("hi")
    assert model.reached.wait(TIMEOUT)
    second = agent.replace(name="better").session(conversation_id="taken-over")
    assert first.stopped
    assert first.status == "cancelled"
    assert texts(second) == ["user: hi", "assistant: Half an "]
    assert second.state.messages[-1].status == "cancelled"
    assert second.state.agent_id == second.agent.agent_id
    assert running_sessions() == [second]


class SlowToLoad(MemoryPersistence):
    """Loading takes long enough for everybody to come in between."""

    def load_conversation(self, scope: Any, conversation_id: str) -> Future[StoredConversation | None]:
        time.sleep(0.02)
        return super().load_conversation(scope, conversation_id)


def one_living_session_per_conversation() -> None:
    """Rule: however many threads open a conversation, with one agent they share a session, with several one is left."""
    store = SlowToLoad()
    agent = Agent(model=EchoModel())
    sessions = in_threads(8, lambda _number: agent.session(store=store, conversation_id="one"))
    assert len(set(map(id, sessions))) == 1, sessions
    sessions = in_threads(
        4, lambda number: agent.replace(name=str(number)).session(store=store, conversation_id="several")
    )
    assert len([session for session in sessions if session.alive]) == 1
    assert len([session for session in running_sessions() if session.conversation_id == "several"]) == 1


def test_one_living_session_per_conversation() -> None:
    one_living_session_per_conversation()


def test_if_several_could_begin_at_once_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "starting", contextlib.nullcontext())
    with pytest.raises(AssertionError):
        one_living_session_per_conversation()


def opened_again_while_it_is_being_stopped_it_is_complete() -> None:
    """Rule: a session that is begun finds all of its predecessor, also while somebody else is stopping that one."""
    store = Unreliable(delay=0.05)
    agent = Agent(model=EchoModel())
    for number in range(3):
        session = agent.session(store=store, conversation_id=f"c{number}")
        session.send("hi")
        session.wait(TIMEOUT)
        session.send("and")
        stopping = threading.Thread(target=session.stop, daemon=True)
        stopping.start()
        while not session.stopped:
            time.sleep(0.001)
        again = agent.session(store=store, conversation_id=f"c{number}")
        assert again is not session
        stopping.join(TIMEOUT)
        assert again.display_messages == session.display_messages
        assert texts(again)[:3] == ["user: hi", "assistant: echo hi", "user: and"]
        again.stop()


def test_opened_again_while_it_is_being_stopped_it_is_complete() -> None:
    opened_again_while_it_is_being_stopped_it_is_complete()


def test_if_a_second_stop_did_not_wait_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Session.stop

    def hasty(session: Session, timeout: float = 10.0) -> None:
        if not session.stopped:
            stop(session, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "stop", hasty)
        with pytest.raises(AssertionError):
            opened_again_while_it_is_being_stopped_it_is_complete()


def the_runtime_never_waits_for_those_who_begin_a_session() -> float:
    """Rule: an agent that looks at the living sessions on its way out does not wait for the one that replaces it."""

    class Curious(Middleware):
        async def after_agent(self, state: State, run: Any) -> None:
            running_sessions()

    model = WaitingModel()
    agent = Agent(model=model, middleware=[Curious()])
    first = agent.session(conversation_id="curious")
    first.send("hi")
    assert model.reached.wait(TIMEOUT)
    started = time.monotonic()
    second = agent.replace(name="next").session(conversation_id="curious")
    assert first.status == "cancelled"
    assert second.alive
    return time.monotonic() - started


def test_the_runtime_never_waits_for_those_who_begin_a_session() -> None:
    assert the_runtime_never_waits_for_those_who_begin_a_session() < 4


def test_with_one_lock_for_both_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, one = Session.stop, threading.RLock()
    with monkeypatch.context() as patch:
        patch.setattr(registry, "starting", one)
        patch.setattr(registry, "_lock", one)
        patch.setattr(Session, "stop", lambda session, _timeout=0.5: stop(session, 0.5))
        with pytest.raises(TimeoutError):
            the_runtime_never_waits_for_those_who_begin_a_session()


def test_two_stores_are_two_worlds() -> None:
    agent = scripted("x")
    one, two = MemoryPersistence(), MemoryPersistence()
    first = agent.session(store=one, conversation_id="c")
    second = agent.session(store=two, conversation_id="c")
    assert first is not second
    assert first.alive
    assert second.alive


def test_a_tool_in_a_thread_may_begin_a_session_while_its_own_is_replaced() -> None:
    began, release = threading.Event(), threading.Event()
    begun: list[Session] = []

    @tool
    def spawn() -> str:
        """Begin a session."""
        began.set()
        release.wait(TIMEOUT)
        begun.append(scripted("x").session())
        return "begun"

    agent = Agent(model=ScriptedModel([ToolCall("spawn"), "ok"]), tools=[spawn])
    session = agent.session(conversation_id="spawning")
    session.send("go")
    assert began.wait(TIMEOUT)
    release.set()
    agent.replace(name="next").session(conversation_id="spawning")
    deadline = time.monotonic() + TIMEOUT
    while not begun:
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Cells.


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say which cell runs."""

    def run(cell_id: str, execution: str) -> None:
        monkeypatch.setattr(session_module, "executing_cell", lambda: CellRun(cell_id, execution))

    return run


def test_a_cell_that_runs_again_ends_the_sessions_it_began(cell: Any) -> None:
    agent = scripted("x")
    cell("A", "1")
    first = [agent.session(), agent.session()]
    cell("B", "2")
    other = agent.session()
    cell("A", "3")
    again = [agent.session(), agent.session()]
    assert [session.stopped for session in (*first, other, *again)] == [True, True, False, False, False]
    assert running_sessions() == [other, *again]


def test_a_conversation_that_was_named_is_not_the_cells(cell: Any) -> None:
    agent = scripted("x")
    cell("A", "1")
    named = agent.session(conversation_id="named")
    cell("A", "2")
    agent.session()
    assert agent.session(conversation_id="named") is named
    assert named.alive


def test_a_cell_that_runs_twenty_times_leaves_one_session_and_no_thread(cell: Any) -> None:
    agent = scripted("x", repeat=True)
    cell("A", "0")
    agent.session()
    threads = threading.active_count()
    for number in range(20):
        cell("A", str(number + 1))
        session = agent.session()
        session.send("hi")
        session.wait(TIMEOUT)
    assert running_sessions() == [session]
    assert threading.active_count() <= threads
    assert len(registry._by_cell) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"store": "agents.duckdb"}, r"session\(store=…\) takes a Store, got 'agents.duckdb', a str: Store\("),
        ({"conversation_id": ""}, "a conversation_id is a non-empty str, got ''"),
        ({"conversation_id": 7}, "a conversation_id is a non-empty str, got 7"),
    ],
)
def test_what_is_no_store_or_no_id_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        scripted("x").session(**options)
    assert running_sessions() == []


def test_when_loading_fails_there_is_no_session_and_the_next_try_works() -> None:
    class Broken(MemoryPersistence):
        broken = True

        def load_conversation(self, scope: Any, conversation_id: str) -> Future[StoredConversation | None]:
            if self.broken:
                failed: Future[StoredConversation | None] = Future()
                failed.set_exception(OSError("no such file"))
                return failed
            return super().load_conversation(scope, conversation_id)

    store = Broken()
    agent = scripted("x")
    with pytest.raises(OSError, match="no such file"):
        agent.session(store=store, conversation_id="c")
    assert running_sessions() == []
    store.broken = False
    assert agent.session(store=store, conversation_id="c").status == "idle"
