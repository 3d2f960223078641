from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb.errors import StoreError
from sagents_nb.store import Store, Turn
from sagents_nb.store.owners import Owners
from tests.store.support import published, row, state, texts

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
# Owners that a careless key would take for one another.
OWNERS: list[Any] = [42, "42", '"42"', ID, str(ID), f'"{ID}"', "anna", "Anna", "%", "a' OR '1'='1"]

_operations = st.lists(
    st.tuples(
        st.sampled_from(OWNERS),
        st.sampled_from(["save", "save", "save", "row", "rename", "delete", "fork", "touch"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 99),
    ),
    max_size=12,
)


def _check(store: Store, expected: dict[Any, dict[str, dict[str, Any]]]) -> None:
    for owner in OWNERS:
        mine = expected[owner]
        assert {card.conversation_id: card.title for card in store.conversations(owner)} == {
            name: item["title"] for name, item in mine.items()
        }
        mine_in_sql = store.sql("SELECT search_text FROM display_messages ORDER BY ALL", scope=owner).fetchall()
        assert mine_in_sql == sorted((words,) for item in mine.values() for words in item["rows"])
        for name in ("a", "b", *mine):
            item = mine.get(name)
            found = store.load_conversation(owner, name).result()
            assert (found is None) == (item is None)
            shown = [shown.text for shown in store.display_messages(owner, name)]
            assert shown == (item["rows"] if item else [])
            assert [event["data"]["n"] for event in store.events(owner, name)] == (item["events"] if item else [])
            assert [revision.messages for revision in store.history(owner, name)] == (item["history"] if item else [])
            if item is None or not item["history"]:
                with pytest.raises(StoreError, match=r"no conversation|no saved State"):
                    store.load_state(owner, name)
            else:
                assert texts(store.load_state(owner, name)) == item["texts"]


@settings(max_examples=8, deadline=None)
@given(_operations)
def test_no_call_returns_or_changes_the_rows_of_another_owner(operations: list[Any]) -> None:
    expected: dict[Any, dict[str, dict[str, Any]]] = {owner: {} for owner in OWNERS}
    with Store.memory(owner=lambda scope: scope) as store:
        for owner, what, name, number in operations:
            mine, words = expected[owner], f"{OWNERS.index(owner)} wrote {number}"
            if what in ("save", "row", "touch"):
                item = mine.setdefault(name, {"title": None, "texts": [], "rows": [], "events": [], "history": []})
                match what:
                    case "save":
                        item["texts"] = [*item["texts"], words]
                        item["history"].append(len(item["texts"]))
                        turn = Turn(name, state=state(*item["texts"]), title=words)
                        item["title"] = words
                    case "row":
                        item["rows"].append(words)
                        item["events"].append(words)
                        place = len(item["rows"])
                        turn = Turn(name, added=(row(name, place, words),), events=(published(place, n=words),))
                    case _:
                        turn = Turn(name)
                store.save_turn(owner, turn).result()
            elif name not in mine:
                with pytest.raises(StoreError, match="no conversation"):
                    {"rename": store.rename_conversation, "fork": store.fork}.get(
                        what, lambda owner, name, _: store.delete_conversation(owner, name)
                    )(owner, name, 1 if what == "fork" else "x")  # type: ignore[operator]
            elif what == "rename":
                store.rename_conversation(owner, name, words)
                mine[name]["title"] = words
            elif what == "delete":
                store.delete_conversation(owner, name)
                del mine[name]
            elif mine[name]["history"]:
                new = store.fork(owner, name, title=words)
                item = mine[name]
                mine[new] = {
                    **item,
                    "title": words,
                    "rows": [*item["rows"]],
                    "events": [],
                    "history": [len(item["texts"])],
                }
        _check(store, expected)


def test_two_owners_may_use_the_same_id(owned: Store) -> None:
    owned.save_turn("anna", Turn("c", state=state("anna's"), added=(row("c", 1, "hers"),), title="A")).result()
    owned.save_turn("ben", Turn("c", state=state("ben's"), added=(row("c", 1, "his"),), title="B")).result()
    assert texts(owned.load_state("anna", "c")) == ["anna's"]
    assert texts(owned.load_state("ben", "c")) == ["ben's"]
    owned.rename_conversation("anna", "c", "A2")
    owned.delete_conversation("ben", "c")
    assert [(card.conversation_id, card.title) for card in owned.conversations("anna")] == [("c", "A2")]
    assert [shown.text for shown in owned.display_messages("anna", "c")] == ["hers"]


def test_a_changed_row_with_the_id_of_another_owner_is_a_row_of_its_own(owned: Store) -> None:
    mine = row("c", 1, "mine")
    owned.save_turn("anna", Turn("c", added=(mine,))).result()
    owned.save_turn("eve", Turn("c", changed=(mine.replace(content={"text": "eve's"}),))).result()
    assert [shown.text for shown in owned.display_messages("anna", "c")] == ["mine"]
    assert [shown.text for shown in owned.display_messages("eve", "c")] == ["eve's"]


def test_keys_that_all_differ(owned: Store) -> None:
    keys = [owned.owner_key(owner) for owner in OWNERS]
    assert len(set(keys)) == len(OWNERS)
    assert keys[:4] == ["42", '"42"', '"\\"42\\""', f'"{ID}"']
    assert keys[6] == "anna"
    assert owned.owner_key(("a/b", "c")) == '["a/b", "c"]'
    assert owned.owner_key('["a/b", "c"]') == '"[\\"a/b\\", \\"c\\"]"'


@pytest.mark.parametrize("rule", ["the owner of everything is the same", "the owner is a str"])
def test_without_the_rule_another_owner_reads_it(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setattr(
        Owners, "key", (lambda *_: "local") if rule.startswith("the owner of") else (lambda _, scope: str(scope))
    )
    with Store.memory(owner=lambda scope: scope) as store:
        store.save_turn(42, Turn("c", state=state("secret"))).result()
        assert texts(store.load_state("42", "c")) == ["secret"]


def test_words_that_begin_with_a_quote_would_be_taken_for_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.setattr(
        Owners, "key", lambda _, value: json.dumps(value) if str(value).isdecimal() else value
    )  # the quote is not looked at
    with Store.memory(owner=lambda scope: scope) as store:
        store.save_turn("42", Turn("c", state=state("secret"))).result()
        assert texts(store.load_state('"42"', "c")) == ["secret"]


def test_an_owner_function_that_raises(path: Path) -> None:
    with Store(path, owner=lambda scope: scope["user"]) as store:
        for call in (
            lambda: store.conversations(None),
            lambda: store.save_turn(None, Turn("c")),
            lambda: store.load_conversation(None, "c"),
            lambda: store.sql("SELECT 1", scope=None),
            lambda: store.fork(None, "c"),
        ):
            with pytest.raises(StoreError, match=r"Store\(owner=…\) raised TypeError for a scope of type NoneType"):
                call()
        with pytest.raises(StoreError, match="raised KeyError for a scope of type dict: 'user'"):
            store.conversations({})
        assert store.sql("SELECT count(*) FROM conversations").fetchone() == (0,)


@pytest.mark.parametrize("value", [None, "", True, 1.5, b"anna", ["anna"], (), ("a", None), {}])
def test_an_owner_function_that_gives_no_key(path: Path, value: Any) -> None:
    with Store(path, owner=lambda _scope: value) as store:
        with pytest.raises(StoreError) as caught:
            store.save_turn("anna", Turn("c"))
        assert str(caught.value) == (
            f"Store(owner=…) gave {value!r}, a {type(value).__name__}; an owner is a non-empty str, an int, a UUID, or "
            "a tuple of str and int"
        )


def test_without_an_owner_function_every_scope_is_the_same_owner(store: Store) -> None:
    store.save_turn({"user": 1}, Turn("c", state=state("x"))).result()
    assert texts(store.load_state(None, "c")) == ["x"]
    assert store.owner_key(object()) == "local"


def test_half_characters_would_make_one_owner_of_two(owned: Store) -> None:
    for owner in ("half \ud83d", "half \ud83e"):
        with pytest.raises(StoreError, match="half a character"):
            owned.conversations(owner)
