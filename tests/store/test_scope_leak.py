from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from sagents_nb.errors import StoreError
from sagents_nb.events import ModelEnded, ToolStarted
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.messages import Message, ToolCall
from sagents_nb.server.display import rows_of
from sagents_nb.state import State
from sagents_nb.store import Store, Turn, leaks
from tests.store.support import published, row, state, texts


@dataclasses.dataclass(frozen=True)
class Firm:
    id: int


@dataclasses.dataclass(frozen=True)
class Person:
    user: str
    firm: Firm


# What an integrator may have as a scope, and what becomes of it in JSON.
SCOPES: list[tuple[Any, Any]] = [
    ({"user": "anna", "roles": ["a", "b"]}, {"user": "anna", "roles": ["a", "b"]}),
    ({"user": "anna", "roles": ("a", "b")}, {"user": "anna", "roles": ["a", "b"]}),
    (["anna", 7], ["anna", 7]),
    (("anna", 7), ["anna", 7]),
    (Person("anna", Firm(7)), {"user": "anna", "firm": {"id": 7}}),
]

Place = Callable[[Any], Turn]
PLACES: list[tuple[str, Place]] = [
    ("state.metadata['deep'][0]", lambda it: Turn("c", state=State(metadata={"deep": [it]}))),
    (
        "state.messages[1].metadata['x']",
        lambda it: Turn("c", state=State(messages=(Message("user", "a"), Message("user", "b", metadata={"x": it})))),
    ),
    (
        "state.interrupt.data['x']",
        lambda it: Turn("c", state=State(interrupt=PendingInterrupt(kind="k", data={"x": it}))),
    ),
    (
        "state.interrupt.members[0].data['x']",
        lambda it: Turn(
            "c",
            state=State(
                interrupt=PendingInterrupt(kind="multiple", members=(PendingInterrupt(kind="k", data={"x": it}),))
            ),
        ),
    ),
    ("display row 3.content['x']", lambda it: Turn("c", added=(row("c", 3, content={"x": it}),))),
    ("display row 4.metadata['x']", lambda it: Turn("c", changed=(row("c", 4, metadata={"x": it}),))),
    ("event 5.data['x']", lambda it: Turn("c", events=(published(5, x=it),))),
    ("event 5.data['x'][0]", lambda it: Turn("c", events=(published(5, x=(it,)),))),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[Store]:
    """One for all turns that are refused: there is never anything in it."""
    with Store.memory() as opened:
        yield opened


@pytest.mark.parametrize(("named", "turn"), PLACES, ids=[named for named, _ in PLACES])
@pytest.mark.parametrize(("scope", "written"), SCOPES, ids=[str(type(scope).__name__) for scope, _ in SCOPES])
def test_a_turn_that_holds_the_scope_is_refused(
    shared: Store, scope: Any, written: Any, named: str, turn: Place
) -> None:
    saving = shared.save_turn(scope, turn(written))
    with pytest.raises(StoreError) as caught:
        saving.result()
    assert str(caught.value).startswith(
        f"{named} holds the scope, which is never saved; nothing of this turn was written"
    )
    assert shared.conversations() == []


@pytest.mark.parametrize(("named", "turn"), PLACES, ids=[named for named, _ in PLACES])
def test_without_the_rule_it_would_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch, named: str, turn: Place
) -> None:
    monkeypatch.setattr(leaks, "forms_of", lambda _scope: [])
    scope = {"user": "anna"}
    store.save_turn(scope, turn(scope)).result()
    assert len(store.conversations()) == 1


def test_the_turns_before_and_after_are_written(store: Store) -> None:
    scope = {"user": "anna"}
    store.save_turn(scope, Turn("c", state=state("1"))).result()
    refused = store.save_turn(scope, Turn("c", state=state("1", "2", metadata={"scope": scope}), title="T"))
    with pytest.raises(StoreError):
        refused.result()
    assert store.save_turn(scope, Turn("c", state=state("1", "3"))).result() == 2
    assert texts(store.load_state(scope, "c")) == ["1", "3"]
    assert store.conversations()[0].title is None


@pytest.mark.parametrize("scope", [None, 42, "anna", {}, [], ()])
def test_a_scope_that_is_a_scalar_or_empty_is_nobodys_business(store: Store, scope: Any) -> None:
    turn = Turn("c", state=State(metadata={"scope": list(scope) if isinstance(scope, tuple) else scope}))
    assert store.save_turn(scope, turn).result() == 1


def test_the_scope_is_in_no_byte_of_the_file(store: Store) -> None:
    scope = {"user": "anna", "token": "s3cr3t-t0ken"}
    store.save_turn(scope, Turn("c", state=state("hi"), added=(row("c", 1),), events=(published(1),))).result()
    path = store.path
    store.close()
    assert path is not None
    assert b"s3cr3t" not in path.read_bytes()


def test_words_of_the_model_are_no_leak(store: Store) -> None:
    scope = Firm(7)
    call = ToolCall("get_firm", {"id": 7}, id="call_1")
    message = Message("assistant", tool_calls=(call,))
    turn = Turn(
        "c",
        state=State(messages=(message,)),
        added=tuple(rows_of(message, conversation_id="c", sequence=1)),
        events=(
            ToolStarted(call=call, cycle=1, seq=1),
            ModelEnded(message=message, model="m", cycle=1, duration=1, seq=2),
        ),
    )
    assert store.save_turn(scope, turn).result() == 1


def test_a_pydantic_scope_with_a_uuid(store: Store) -> None:
    class Tenant(BaseModel):
        id: uuid.UUID

    scope = Tenant(id=uuid.UUID(int=7))
    turn = Turn("c", state=State(metadata={"tenant": scope.model_dump(mode="json")}))
    with pytest.raises(StoreError, match=r"^state.metadata\['tenant'\] holds the scope"):
        store.save_turn(scope, turn).result()
