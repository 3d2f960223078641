"""The store's twin in memory, and conversations that are opened again."""

import dataclasses
from typing import Any

import pytest

from sagents_nb import Agent, Halt, Message, Middleware, ScriptedModel, State, ToolCall, tool
from sagents_nb.events import CycleStarted
from sagents_nb.server.display import DisplayMessage, rows_of
from sagents_nb.server.persistence import MemoryPersistence, StoredConversation, Turn

from .doubles import TIMEOUT, EchoModel, Unreliable, scripted, texts


def rows(*said: str, start: int = 1) -> tuple[DisplayMessage, ...]:
    return tuple(
        rows_of(Message("user", text), conversation_id="c", sequence=start + number)[0]
        for number, text in enumerate(said)
    )


def load(store: MemoryPersistence, conversation_id: str = "c", scope: Any = None) -> StoredConversation | None:
    return store.load_conversation(scope, conversation_id).result()


def test_what_was_never_saved_does_not_exist() -> None:
    assert load(MemoryPersistence()) is None


def test_turns_add_up() -> None:
    store = MemoryPersistence()
    first, second = rows("a", "b")
    assert store.save_turn(None, Turn("c", state=State.from_text("a"), added=(first,), title="T")).result() == 1
    assert store.save_turn(None, Turn("c", added=(second,), events=(CycleStarted(cycle=1, seq=9),))).result() == 1
    assert store.save_turn(None, Turn("c", state=State.from_text("b"))).result() == 2
    assert load(store) == StoredConversation("c", "T", 2, State.from_text("b"), (first, second), 9)


def test_rows_change_in_their_place() -> None:
    store = MemoryPersistence()
    first, second, third = rows("a", "b", "c")
    store.save_turn(None, Turn("c", added=(first, second)))
    store.save_turn(None, Turn("c", added=(third,), changed=(first.replace(status="failed"),)))
    stored = load(store)
    assert stored is not None
    assert [(row.text, row.status) for row in stored.display_messages] == [
        ("a", "failed"),
        ("b", "completed"),
        ("c", "completed"),
    ]


@dataclasses.dataclass(frozen=True)
class Scope:
    user_id: int


def owners_do_not_see_each_other() -> None:
    """Rule: a conversation of another owner does not exist, even with the same id."""
    store = MemoryPersistence(owner=lambda scope: scope.user_id)
    ann, bob = (Agent(model=EchoModel(), scope=Scope(number)) for number in (1, 2))
    session = ann.session(store=store, conversation_id="c")
    session.send("secret of Ann")
    session.wait(TIMEOUT)
    other = bob.session(store=store, conversation_id="c")
    assert other is not session
    assert not session.stopped
    assert other.display_messages == ()
    assert other.state.messages == ()
    other.send("secret of Bob")
    other.wait(TIMEOUT)
    for each in (session, other):
        each.stop()
    for number, name in ((1, "Ann"), (2, "Bob")):
        stored = load(store, "c", Scope(number))
        assert stored is not None
        assert [row.text for row in stored.display_messages] == [f"secret of {name}", f"echo secret of {name}"]
    assert load(store, "c", Scope(3)) is None


def test_owners_do_not_see_each_other() -> None:
    owners_do_not_see_each_other()


def test_with_one_owner_for_all_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryPersistence, "owner_key", lambda _store, _scope: "everybody")
    with pytest.raises(AssertionError):
        owners_do_not_see_each_other()


def test_without_a_store_equal_scopes_are_one_owner_and_others_are_not() -> None:
    def session_of(scope: Any) -> Any:
        return Agent(model=EchoModel(), scope=scope).session(conversation_id="by-scope")

    first = session_of(Scope(1))
    first.send("hi")
    first.wait(TIMEOUT)
    again = session_of(Scope(1))
    assert first.stopped  # another agent on the same conversation
    assert texts(again) == ["user: hi", "assistant: echo hi"]
    for stranger in (Scope(2), 1, True, None, {"user_id": 1}):
        assert texts(session_of(stranger)) == []
    assert not again.stopped


# Opened again.


class Notes(Middleware):
    def before_model(self, state: State, run: Any) -> State:
        return state.put_metadata("asked", state.get_metadata("asked", 0) + 1)


@tool
async def look() -> str:
    """Look."""
    return "seen"


def test_a_conversation_opened_again_is_the_same_and_goes_on() -> None:
    store = Unreliable()

    def agent(*turns: Any) -> Agent:
        return Agent(model=ScriptedModel(turns), tools=[look], middleware=[Notes()])

    first = agent(["Let me. ", ToolCall("look")], "Done.").session(store=store, conversation_id="c", title="The title")
    first.send("a")
    first.wait(TIMEOUT)
    first.stop()
    stored = load(store)
    assert stored is not None
    assert stored.title == "The title"
    second = agent("Again.").session(store=store, conversation_id="c")
    assert second.display_messages == first.display_messages
    assert second.state.messages == first.state.messages
    assert second.state.metadata == {"asked": 2}
    assert second.status == "idle"
    second.send("b")
    second.wait(TIMEOUT)
    assert second.state.metadata == {"asked": 3}
    assert [row.sequence for row in second.display_messages] == [1, 2, 3, 4, 5, 6, 7]
    assert [message.role for message in second.agent.model.requests[0].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    events = [event.seq for turn in store.turns for event in turn.events]
    assert events == sorted(set(events))


def test_calls_open_at_a_crash_are_shown_cancelled_and_answered_for_the_model() -> None:
    store = MemoryPersistence()
    message = Message("assistant", "Let me. ", tool_calls=(ToolCall("look", id="c1"), ToolCall("look", id="c2")))
    state = State.from_text("a").add_message(message)
    shown = [*rows("a"), *rows_of(message, conversation_id="c", sequence=2)]
    shown[2] = shown[2].replace(status="executing")
    store.save_turn(None, Turn("c", state=state, added=tuple(shown)))

    agent = Agent(model=ScriptedModel(["Sorry."]), tools=[look])
    session = agent.session(store=store, conversation_id="c")
    assert [row.status for row in session.display_messages] == ["completed", "completed", "cancelled", "cancelled"]
    session.send("and?")
    assert session.wait(TIMEOUT) == "idle"
    asked = agent.model.requests[0].messages
    assert [message.role for message in asked] == ["user", "assistant", "tool", "user"]
    assert [(result.tool_call_id, result.is_error) for result in asked[2].tool_results] == [("c1", True), ("c2", True)]
    stored = load(store)
    assert stored is not None
    assert [row.status for row in stored.display_messages[:4]] == ["completed", "completed", "cancelled", "cancelled"]


def test_looking_alone_saves_what_a_crash_left_open_when_it_stops() -> None:
    store = MemoryPersistence()
    (call,) = rows_of(Message("assistant", tool_calls=(ToolCall("look"),)), conversation_id="c", sequence=1)
    store.save_turn(None, Turn("c", added=(call,)))
    scripted("x").session(store=store, conversation_id="c").stop()
    stored = load(store)
    assert stored is not None
    assert stored.display_messages[0].status == "cancelled"
    assert stored.revision == 0


def test_an_interrupt_survives() -> None:
    @tool
    def stop_here() -> Any:
        """Stop."""
        return Halt("Look at this first.")

    def agent() -> Agent:
        return Agent(model=ScriptedModel([ToolCall("stop_here"), "going on"]), tools=[stop_here])

    store = MemoryPersistence()
    first = agent().session(store=store, conversation_id="c")
    first.send("go")
    assert first.wait(TIMEOUT) == "interrupted"
    first.stop()
    second = agent().session(store=store, conversation_id="c")
    assert second.status == "interrupted"
    assert second.state.interrupt is not None
    assert second.state.interrupt.message == "Look at this first."
