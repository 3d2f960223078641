from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb.messages import Message
from sagents_nb.state import State
from sagents_nb.store import Store, Turn, log, turns
from tests.store.support import state, texts

# Few texts, so that equal messages stand in several places.
_messages = st.builds(
    lambda role, text, metadata: Message(role, text, metadata=metadata),
    st.sampled_from(["user", "assistant"]),
    st.sampled_from(["a", "b", "é\n"]),
    st.sampled_from([{}, {}, {"n": 1}, {"n": True}, {"n": 1.0}]),
)
_steps = st.tuples(
    st.sampled_from(["append", "edit", "summarise", "rewind", "cut", "insert", "recreate", "metadata", "clear"]),
    st.integers(0, 8),
    st.lists(_messages, min_size=1, max_size=3),
)


def _step(before: State, step: tuple[str, int, list[Message]]) -> State:
    what, number, new = step
    old = list(before.messages)
    place = number % (len(old) or 1)
    match what:
        case "append":
            return before.with_messages([*old, *new])
        case "edit" if old:
            return before.with_messages([*old[:place], new[0], *old[place + 1 :]])
        case "summarise":
            return before.with_messages([new[0], *old[place:]])
        case "rewind":
            return before.with_messages(old[:place])
        case "cut":
            return before.with_messages([*old[:place], *old[place + 2 :]])
        case "insert":
            return before.with_messages([*old[:place], *new, *old[place:]])
        case "recreate":
            return State.from_json(before.to_json())
        case "clear":
            return before.with_messages([])
        case _:
            return before.put_metadata("n", number)


def _exactly(found: State) -> str:
    """JSON tells 1, 1.0 and True apart, which == does not."""
    return json.dumps(found.to_json(), sort_keys=True)


def _newest(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.sql("SELECT state FROM agent_states WHERE current").fetchall()[0][0])
    return found


@pytest.fixture
def small() -> Iterator[Store]:
    with Store.memory() as store:
        yield store


def test_every_revision_comes_back(small: Store) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(_steps, min_size=1, max_size=12), st.sampled_from([2, 4, 256]), st.sampled_from([0, 64]))
    def check(steps: list[Any], keyframe_after: int, kept_cards: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "KEYFRAME_AFTER", keyframe_after)
            patch.setattr(turns, "KEPT_CARDS", kept_cards)  # with 0 the writer reads what it compares with
            saved = [State()]
            for step in steps:
                saved.append(_step(saved[-1], step))
                assert small.save_turn(None, Turn("c", state=saved[-1])).result() == len(saved) - 1
            assert _exactly(State.from_json(_newest(small))) == _exactly(saved[-1])
            view = small.sql("SELECT revision, state FROM agent_states ORDER BY revision").fetchall()
            assert [revision for revision, _ in view] == list(range(1, len(saved)))
            for (_, found_in_sql), expected in zip(view, saved[1:], strict=True):
                assert _exactly(State.from_json(found_in_sql)) == _exactly(expected)
            for revision, expected in enumerate(saved[1:], 1):
                found = small.load_state(None, "c", revision=revision)
                assert found == expected
                assert _exactly(found) == _exactly(expected)
            assert [item.messages for item in small.history(None, "c")] == [len(item.messages) for item in saved[1:]]
            small.delete_conversation(None, "c")

    check()


def _added(store: Store) -> list[int]:
    return [revision.added for revision in store.history(None, "c")]


def test_a_revision_costs_what_it_adds(small: Store) -> None:
    long = state(*(f"message {n}" for n in range(100)))
    for version in (
        long,
        long.add_message("one more"),
        State.from_json(long.to_json()),  # equal messages, none of them the same object
        long.put_metadata("a", 1),
        long.with_messages([Message("user", "summary"), *long.messages[40:]]),
        long.with_messages([Message("user", "summary"), *long.messages[40:90], Message("user", "x")]),
    ):
        small.save_turn(None, Turn("c", state=version)).result()
    assert _added(small) == [100, 1, 0, 0, 1, 1]


def test_without_the_comparison_by_value_everything_would_be_written_again(
    small: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_same", lambda old, new: old is new)
    long = state(*(f"message {n}" for n in range(100)))
    small.save_turn(None, Turn("c", state=long)).result()
    small.save_turn(None, Turn("c", state=State.from_json(long.to_json()))).result()
    assert _added(small) == [100, 100]


def test_a_true_that_becomes_a_one_is_saved(small: Store) -> None:
    for value in (True, 1, 1.0):
        turn = Turn("c", state=State(messages=(Message("user", "x", metadata={"v": value}),)))
        small.save_turn(None, turn).result()
    found = [small.load_state(None, "c", revision=n).messages[0].metadata["v"] for n in (1, 2, 3)]
    assert [repr(value) for value in found] == ["True", "1", "1.0"]


def test_by_equality_alone_a_true_stays_a_true(small: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_same", lambda old, new: old == new)
    for value in (True, 1):
        turn = Turn("c", state=State(messages=(Message("user", "x", metadata={"v": value}),)))
        small.save_turn(None, turn).result()
    assert repr(small.load_state(None, "c").messages[0].metadata["v"]) == "True"


def test_the_whole_list_is_written_again_after_so_many_revisions(small: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "KEYFRAME_AFTER", 4)
    now = State()
    for number in range(1, 12):
        now = now.add_message(str(number))
        small.save_turn(None, Turn("c", state=now)).result()
    # At the ninth only 4 of 9 were new since it was written last, at the tenth 5 of 10.
    assert _added(small) == [1, 1, 1, 1, 5, 1, 1, 1, 1, 10, 1]
    assert [item.revision for item in small.history(None, "c") if item.keyframe] == [1, 5, 10]
    assert texts(small.load_state(None, "c", revision=5)) == ["1", "2", "3", "4", "5"]
    assert texts(small.load_state(None, "c", revision=8)) == ["1", "2", "3", "4", "5", "6", "7", "8"]


def test_the_boundary_of_256(small: Store) -> None:
    now = State()
    for number in range(1, 259):
        now = now.add_message(str(number))
        saving = small.save_turn(None, Turn("c", state=now))
    assert saving.result() == 258
    assert _added(small)[254:] == [1, 1, 257, 1]
    for revision in (255, 256, 257, 258):
        assert texts(small.load_state(None, "c", revision=revision)) == [str(n) for n in range(1, revision + 1)]
    assert State.from_json(_newest(small)) == now


def test_a_fork_goes_its_own_way(small: Store) -> None:
    for version in (state("1"), state("1", "2"), state("1", "2", "3")):
        small.save_turn(None, Turn("c", state=version)).result()
    old, new = small.fork(None, "c", 2, title="Other"), small.fork(None, "c")
    small.save_turn(None, Turn(old, state=small.load_state(None, old).add_message("x"))).result()
    small.save_turn(None, Turn("c", state=state("1", "2", "3", "4"))).result()
    assert texts(small.load_state(None, old)) == ["1", "2", "x"]
    assert texts(small.load_state(None, new)) == ["1", "2", "3"]
    assert texts(small.load_state(None, "c")) == ["1", "2", "3", "4"]
    assert small.load_state(None, old).conversation_id == old
    found = small.sql("SELECT conversation_id, title, forked_from, forked_revision FROM conversations ORDER BY ALL")
    assert set(found.fetchall()) == {("c", None, None, None), (old, "Other", "c", 2), (new, None, "c", 3)}
    assert small.display_messages(None, old) == []


def test_the_current_states_are_one_row_for_each_conversation(small: Store) -> None:
    for name in ("a", "b"):
        small.save_turn(None, Turn(name, state=state(name, "2", "3"))).result()
        summary = [Message("user", f"summary of {name}")]
        small.save_turn(None, Turn(name, state=State(messages=(*summary, *state("2", "3", "4").messages)))).result()
    rows = small.sql(
        "SELECT conversation_id, revision, n_messages, state FROM agent_states WHERE current ORDER BY ALL"
    ).fetchall()
    assert [(row[0], row[1], row[2]) for row in rows] == [("a", 2, 4), ("b", 2, 4)]
    assert [texts(State.from_json(row[3])) for row in rows] == [
        ["summary of a", "2", "3", "4"],
        ["summary of b", "2", "3", "4"],
    ]


def test_keyframes_do_not_grow_with_the_square_of_the_length(small: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "KEYFRAME_AFTER", 4)
    now = State()
    for number in range(1, 401):
        now = now.add_message(str(number))
        small.save_turn(None, Turn("c", state=now))
    small.save_turn(None, Turn("c", title="all of it is written")).result()
    assert sum(_added(small)) < 3 * 400  # every fourth in full: 20,000


def test_a_middleware_that_edits_every_turn_does_not_write_everything_again(small: Store) -> None:
    now = state(*(f"message {n}" for n in range(100)))
    for number in range(20):
        now = now.with_messages([*now.messages[:5], Message("user", f"shortened {number}"), *now.messages[6:]])
        small.save_turn(None, Turn("c", state=now)).result()
    assert _added(small) == [100] + [1] * 19
