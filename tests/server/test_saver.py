"""Saving: nothing lost when it fails, nothing twice, and durable before the session says that it is done."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from sagents_nb import Agent, Message, ScriptedModel, StoreError, ToolCall, tool
from sagents_nb.events import Event, Published, Saved, SaveFailed, StatusChanged
from sagents_nb.server.display import rows_of
from sagents_nb.server.persistence import MemoryPersistence, Turn
from sagents_nb.server.saver import Saver
from sagents_nb.server.session import Session
from sagents_nb.state import State

from .doubles import TIMEOUT, Unreliable, WaitingModel, eventually, recorded, scripted, texts


@tool
async def look() -> str:
    """Look."""
    return "seen"


def looking() -> Agent:
    return Agent(model=ScriptedModel([["Let me. ", ToolCall("look")], "Done."] * 2), tools=[look])


def all_is_stored(session: Session, store: Unreliable) -> None:
    """What the store has is what the session has: nothing missing, nothing twice, everything in order."""
    stored = store.stored(session)
    assert stored is not None
    assert stored.display_messages == session.display_messages
    assert stored.state == session.state
    added = [row.id for turn in store.turns for row in turn.added]
    assert len(added) == len(set(added)) == len(session.display_messages)
    events = [event.seq for turn in store.turns for event in turn.events]
    assert events == sorted(set(events))
    kept = [event.seq for event in session.snapshot().events if _is_stored(event)]
    assert events == [seq for seq in kept if seq <= (events or [0])[-1]]


def _is_stored(event: Event) -> bool:
    return event.type not in (
        "hook_started",
        "tool_started",
        "tool_entered",
        "tools_interrupted",
        "display_changed",
        "queue_changed",
        "saved",
        "status_changed",
        "session_stopped",
    )


FAILURES: dict[str, Callable[[int], bool]] = {
    "never": lambda _number: False,
    "at the beginning": lambda number: number == 1,
    "in the middle": lambda number: number in (2, 3),
    "every second time": lambda number: number % 2 == 0,
    "at the end of the first run": lambda number: 2 < number < 6,
    "all through the first run": lambda number: number < 4,
}


def nothing_is_lost_and_nothing_twice(fails: Callable[[int], bool], delay: float = 0.001) -> list[Event]:
    """Rule: whenever saving fails, what was to be saved goes with a later turn, once."""
    store = Unreliable(delay)
    store.fails = fails
    session = looking().session(store=store)
    with recorded(session) as events:
        for text in ("a", "b"):
            session.send(text)
            assert session.wait(TIMEOUT) == "idle"
        store.fails = lambda _number: False
        session.stop()
    assert len(session.display_messages) == 10
    all_is_stored(session, store)
    return events


@pytest.mark.parametrize("delay", [0.0, 0.003])
@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
def test_nothing_is_lost_and_nothing_twice(fails: Callable[[int], bool], delay: float) -> None:
    events = nothing_is_lost_and_nothing_twice(fails, delay)
    failures = [event for event in events if isinstance(event, SaveFailed)]
    assert all(event.error == "the disk is full" for event in failures)
    assert bool(failures) == (fails is not FAILURES["never"])


def test_if_a_failed_turn_were_dropped_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Saver, "_put_back", lambda *_args: None)
    with pytest.raises(AssertionError):
        nothing_is_lost_and_nothing_twice(FAILURES["in the middle"])


def test_if_a_saved_turn_were_kept_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    save_one = Saver._save_one
    kept: list[Turn] = []

    async def twice(saver: Saver, turn: Turn) -> int:
        revision = await save_one(saver, turn)
        if not kept:
            kept.append(turn)
            saver._put_back(turn)
        return revision

    monkeypatch.setattr(Saver, "_save_one", twice)
    with pytest.raises(AssertionError):
        nothing_is_lost_and_nothing_twice(FAILURES["never"])


def durable_before_it_is_idle() -> None:
    """Rule: whoever hears that a session is idle finds everything of the run in the store."""
    store = Unreliable(delay=0.01)
    session = looking().session(store=store)
    at_idle: list[Any] = []

    def look_at(event: Event) -> None:
        if isinstance(event, StatusChanged) and event.status != "running":
            at_idle.append((store.stored(session), session.display_messages, session.state))

    session.subscribe_callback(look_at)
    for text in ("a", "b"):
        session.send(text)
        session.wait(TIMEOUT)
        stored = store.stored(session)
        assert stored is not None
        assert stored.display_messages == session.display_messages
    assert len(at_idle) == 2
    for stored, rows, state in at_idle:
        assert stored is not None
        assert stored.display_messages == rows
        assert stored.state == state


def test_durable_before_it_is_idle() -> None:
    durable_before_it_is_idle()


def test_if_nobody_waited_for_the_store_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flush(saver: Saver) -> None:
        saver.save()

    with monkeypatch.context() as patch:
        patch.setattr(Saver, "flush", flush)
        with pytest.raises(AssertionError):
            durable_before_it_is_idle()


def test_the_users_message_is_durable_before_the_answer_comes() -> None:
    store, model = Unreliable(), WaitingModel()
    session = Agent(model=model).session(store=store)
    session.send("hi")
    assert model.reached.wait(TIMEOUT)
    eventually(lambda: store.turns)
    stored = store.stored(session)
    assert stored is not None
    assert [row.text for row in stored.display_messages] == ["hi"]
    assert [message.text for message in stored.state.messages] == ["hi"]


def test_while_saving_fails_the_session_says_so_and_goes_on() -> None:
    store = Unreliable()
    store.fails = lambda _number: True
    session = scripted("one", "two", "three").session(store=store)
    with recorded(session) as events:
        session.send("a")
        assert session.wait(TIMEOUT) == "idle"
        assert session.error == "not saved: the disk is full"
        assert texts(session) == ["user: a", "assistant: one"]
        store.fails = lambda _number: False
        session.send("b")
        assert session.wait(TIMEOUT) == "idle"
        assert session.error is None
    assert {event.error for event in events if isinstance(event, SaveFailed)} == {"the disk is full"}
    assert [event.revision for event in events if isinstance(event, Saved)][-1] == session_revision(store, session)
    all_is_stored(session, store)


def session_revision(store: Unreliable, session: Session) -> int:
    stored = store.stored(session)
    assert stored is not None
    return stored.revision


def test_a_failed_run_is_not_hidden_by_a_failed_save() -> None:
    store = Unreliable()
    store.fails = lambda _number: True
    session = scripted(RuntimeError("no answer")).session(store=store)
    session.send("a")
    assert session.wait(TIMEOUT) == "error"
    assert session.error == "ScriptedModel(1 turns, 1 used) raised RuntimeError: no answer"
    with pytest.raises(StoreError):
        session.stop()


def test_stopping_with_something_unsaved_says_so_once() -> None:
    store = Unreliable()
    session = scripted("one").session(store=store, conversation_id="unsaved")
    session.send("a")
    session.wait(TIMEOUT)
    store.fails = lambda _number: True
    session.send("b")
    session.wait(TIMEOUT)
    with pytest.raises(StoreError) as caught:
        session.stop()
    assert str(caught.value) == (
        "conversation unsaved was stopped, but its end could not be saved: the disk is full. "
        "session.state and session.display_messages still have it"
    )
    assert session.stopped
    session.stop()


def test_the_last_turn_gets_a_try_of_its_own_when_the_one_before_it_fails_late() -> None:
    """The store is busy with a turn that will fail when the run ends."""
    store = Unreliable(delay=0.05)
    store.fails = lambda number: number == 1
    session = scripted("one").session(store=store)
    session.send("a")
    assert session.wait(TIMEOUT) == "idle"
    assert session.error is None
    all_is_stored(session, store)


class Odd(MemoryPersistence):
    """Fails in ways of its own."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def save_turn(self, scope: Any, turn: Turn) -> Future[int]:
        answer: Future[int] = Future()
        match self.way:
            case "raises at once":
                raise OSError("no such disk")
            case "gives no future":
                return 5  # type: ignore[return-value]
            case "cancels":
                answer.cancel()
                answer.set_running_or_notify_cancel()
                return answer
        return super().save_turn(scope, turn)


@pytest.mark.parametrize("way", ["raises at once", "gives no future", "cancels"])
def test_whatever_a_store_does_the_session_settles(way: str) -> None:
    store = Odd(way)
    session = scripted("one", "two").session(store=store)
    session.send("a")
    assert session.wait(TIMEOUT) == "idle"
    assert session.error is not None
    assert session.error.startswith("not saved: ")
    store.way = "well"
    session.send("b")
    assert session.wait(TIMEOUT) == "idle"
    assert session.error is None
    stored = store.load_conversation(None, session.conversation_id).result()
    assert stored is not None
    assert stored.display_messages == session.display_messages


def test_a_turn_that_changed_no_state_is_no_new_revision() -> None:
    store = Unreliable()
    session = scripted("one").session(store=store)
    session.send("a")
    session.wait(TIMEOUT)
    states = [turn.state for turn in store.turns if turn.state is not None]
    assert [len(state.messages) for state in states] == sorted({len(state.messages) for state in states})
    assert session_revision(store, session) == len(states) <= 2


# The saver alone.


def run_saver(job: Callable[[Saver, Unreliable], Any], fails: Callable[[int], bool] = lambda _number: False) -> None:
    async def main() -> None:
        store = Unreliable()
        store.fails = fails
        await job(Saver(store, None, "c", on_saved=lambda _r: None, on_failed=lambda _e: None), store)

    asyncio.run(main())


def test_a_row_that_changes_before_it_is_saved_is_saved_as_it_is_now() -> None:
    row, other = (
        rows_of(Message("assistant", tool_calls=(ToolCall("x"),)), conversation_id="c", sequence=number)[0]
        for number in (1, 2)
    )
    executing, completed = row.replace(status="executing"), row.replace(status="completed")

    async def job(saver: Saver, store: Unreliable) -> None:
        saver.add(added=(row,))
        saver.add(changed=(executing, other))
        await saver.flush()  # fails
        saver.add(changed=(completed,))
        await saver.flush()
        assert store.turns[0].added == (completed,)
        assert store.turns[0].changed == (other,)
        saver.add(changed=(row,))
        await saver.flush()
        assert (store.turns[1].added, store.turns[1].changed) == ((), (row,))

    run_saver(job, fails=lambda number: number == 1)


def test_the_newest_state_and_title_win_over_those_that_failed() -> None:
    old, new = State.from_text("old"), State.from_text("new")

    async def job(saver: Saver, store: Unreliable) -> None:
        saver.add(state=old, title="first")
        saver.save()
        await asyncio.sleep(0)
        saver.add(state=new)  # while the old one is being saved, in vain
        await saver.flush()
        assert [(turn.state, turn.title) for turn in store.turns] == [(new, "first")]
        assert not saver.has_unsaved
        saver.add(state=new)
        assert not saver.has_unsaved

    run_saver(job, fails=lambda number: number == 1)


def test_noting_an_event_costs_the_same_however_much_is_unsaved() -> None:
    """20,000 events on top of 5,000 unsaved rows: 0.02 s; copying what waits for each of them took a minute."""
    store = MemoryPersistence()
    saver = Saver(store, None, "c", on_saved=lambda _revision: None, on_failed=lambda _error: None)
    for number in range(5_000):
        saver.add(added=tuple(rows_of(Message("user", str(number)), conversation_id="c", sequence=number)))
    event = Published(source="", name="")
    started = time.perf_counter()
    for _ in range(20_000):
        saver.add(events=(event,))
    assert time.perf_counter() - started < 2
