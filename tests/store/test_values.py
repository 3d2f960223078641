from __future__ import annotations

import json
from typing import Any

import pytest

from sagents_nb.errors import StoreError
from sagents_nb.events import RunEnded
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.messages import Message
from sagents_nb.state import State
from sagents_nb.store import Store, Turn, encoding
from tests.store.support import published, row, state, texts

HALF = "half \ud83d a character"
WHOLE = "half \ufffd a character"


def test_half_characters_become_a_sign_wherever_they_come_from(store: Store) -> None:
    ended = RunEnded(status="error", error=HALF, seq=2)
    turn = Turn(
        "c",
        state=state(HALF, metadata={HALF: [HALF]}),
        added=(row("c", 1, HALF),),
        events=(published(1, words=HALF), ended),
        title=HALF,
    )
    assert store.save_turn(None, turn).result() == 1
    found = store.load_conversation(None, "c").result()
    assert found is not None
    assert texts(found.state) == [WHOLE]
    assert found.state.metadata == {WHOLE: [WHOLE]}
    assert found.display_messages[0].text == WHOLE
    assert found.title == WHOLE
    assert [event.get("data", event.get("error")) for event in store.events(None, "c")] == [{"words": WHOLE}, WHOLE]
    assert store.sql("SELECT error FROM events WHERE seq = 2").fetchone() == (WHOLE,)
    store.rename_conversation(None, "c", HALF * 2)
    assert store.conversations()[0].title == WHOLE * 2


def test_uncleaned_they_would_cost_the_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "clean_text", lambda text: text)
    with pytest.raises(StoreError, match="could not be written"):
        store.save_turn(None, Turn("c", state=state("1").model_copy(update={"agent_id": HALF}))).result()


def test_in_an_id_they_are_refused_since_two_could_become_one(store: Store) -> None:
    with pytest.raises(StoreError, match="conversation_id has half a character in it"):
        store.save_turn(None, Turn(HALF, state=state("1"))).result()


def test_what_is_nested_too_deeply_is_refused_in_words(store: Store) -> None:
    deep = PendingInterrupt(kind="question")
    for _ in range(400):
        deep = PendingInterrupt(kind="multiple", members=(deep,))
    with pytest.raises(StoreError, match="the State cannot be written as JSON"):
        store.save_turn(None, Turn("c", state=State(interrupt=deep))).result()
    assert store.conversations() == []


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "\0",
        "\x01\x1f\x7f",
        "\u2028\u2029",
        "'; DROP TABLE events; --",
        '"\\',
        "😀" * 10,
        "x" * 1_000_000,
        "\r\n\t",
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_any_text_comes_back(store: Store, text: str) -> None:
    turn = Turn(
        "c", state=state(text, metadata={"k": text}), added=(row("c", 1, text),), events=(published(1, x=text),)
    )
    store.save_turn(None, turn).result()
    found = store.load_conversation(None, "c").result()
    assert found is not None
    assert texts(found.state) == [text]
    assert found.state.metadata == {"k": text}
    assert found.display_messages[0].content == {"text": text}
    assert store.events(None, "c")[0]["data"] == {"x": text}
    view = store.sql("SELECT state FROM agent_states WHERE current").fetchall()[0][0]
    assert State.from_json(json.loads(view)) == found.state


def test_a_title_and_an_id_may_hold_a_zero_character(store: Store) -> None:
    store.save_turn(None, Turn("c\0d", state=state("x"), title="a\0b")).result()
    store.save_turn(None, Turn("c", state=state("y"))).result()
    assert sorted(card.conversation_id for card in store.conversations()) == ["c", "c\0d"]
    assert texts(store.load_state(None, "c\0d")) == ["x"]
    assert {card.title for card in store.conversations()} == {None, "a\0b"}


@pytest.mark.parametrize(
    "value", [2**63, -(2**64), 10**400, 0.1 + 0.2, 1e-320, 1.7976931348623157e308, -0.0, True, 1, 1.0, None, "", [], {}]
)
def test_numbers_keep_their_value_and_type(store: Store, value: Any) -> None:
    store.save_turn(None, Turn("c", state=State(messages=(Message("user", "x", metadata={"v": value}),)))).result()
    store.save_turn(None, Turn("c", state=State(metadata={"v": value}), events=(published(1, v=value),))).result()
    assert repr(store.load_state(None, "c", revision=1).messages[0].metadata["v"]) == repr(value)
    assert repr(store.load_state(None, "c").metadata["v"]) == repr(value)
    assert repr(store.events(None, "c")[0]["data"]["v"]) == repr(value)
    view = json.loads(store.sql("SELECT state FROM agent_states WHERE current").fetchall()[0][0])
    assert repr(view["metadata"]["v"]) == repr(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), object(), {1, 2}, b"x"])
def test_what_is_no_json_is_refused_and_nothing_of_the_turn_is_written(store: Store, value: Any) -> None:
    with pytest.raises(StoreError, match="nothing of it was written"):
        store.save_turn(None, Turn("c", state=state("x"), events=(published(1, v=value),))).result()
    assert store.conversations() == []
    assert store.save_turn(None, Turn("c", state=state("x"))).result() == 1


def test_a_number_that_python_does_not_write_out(store: Store) -> None:
    with pytest.raises(StoreError, match=r"^state\['metadata'\]\['n'\] is a number of 16610 bits"):
        store.save_turn(None, Turn("c", state=State(metadata={"n": 10**5000}))).result()


def test_a_status_that_does_not_exist_is_refused_by_the_table(store: Store) -> None:
    odd = row("c", 1).model_copy(update={"status": "odd"})
    with pytest.raises(StoreError, match="CHECK constraint failed"):
        store.save_turn(None, Turn("c", added=(odd,))).result()
    assert store.conversations() == []
