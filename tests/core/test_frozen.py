"""Frozen JSON: equal to plain JSON, and refusing every way in which a dict or a list can change."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb import Message, State, ToolCall
from sagents_nb.frozen import FrozenDict, FrozenList, clean_text, freeze, thaw
from sagents_nb.interrupts import PendingInterrupt
from tests.core.test_values import JSON

READS = set(
    """__class__ __class_getitem__ __contains__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__
    __getitem__ __getstate__ __gt__ __hash__ __init__ __init_subclass__ __iter__ __le__ __len__ __lt__ __ne__
    __new__ __reduce__ __reduce_ex__ __repr__ __reversed__ __setattr__ __sizeof__ __str__ __subclasshook__
    __add__ __mul__ __rmul__ __or__ __ror__ copy count index fromkeys get items keys values""".split()  # noqa: SIM905
)
"""What leaves a dict or a list as it is, and ``__init__``, which has a test of its own."""

ARGUMENTS: list[tuple[Any, ...]] = [(), (0,), ("a",), (0, 1), ("a", 1), ([1],), ({"a": 2},)]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in (dict, list) for name in sorted(set(dir(kind)) - READS)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_method_that_changes_is_refused(kind: type, name: str) -> None:
    plain: Any = {"a": 1} if kind is dict else [1]
    frozen = freeze(plain)
    for arguments in ARGUMENTS:
        with pytest.raises(TypeError, match=r"belongs to an immutable value: make a changed copy instead"):
            getattr(frozen, name)(*arguments)
    assert frozen == plain


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_freezing_and_thawing_lose_nothing(value: Any) -> None:
    frozen = freeze(value)
    assert json.dumps(frozen) == json.dumps(thaw(frozen)) == json.dumps(value)
    assert freeze(frozen) is frozen or not isinstance(frozen, (dict, list))
    assert copy.deepcopy(frozen) is frozen or not isinstance(frozen, (dict, list))
    again = pickle.loads(pickle.dumps(frozen))
    assert (again, type(again)) == (frozen, type(frozen))
    for part in walk(frozen):
        assert type(part) in (FrozenDict, FrozenList)
    for part in walk(thaw(frozen)):
        assert type(part) in (dict, list)


def walk(value: Any) -> list[Any]:
    if not isinstance(value, (dict, list)):
        return []
    return [value, *(part for item in (value.values() if isinstance(value, dict) else value) for part in walk(item))]


@given(st.text(st.characters(codec=None, categories=["L", "Cs", "So"])))
@settings(max_examples=200, deadline=None)
def test_clean_text_can_be_encoded_and_whole_characters_stay(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode()
    assert clean_text(cleaned) == cleaned
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert cleaned == text


CLEANED = [
    ("plain", "plain"),
    ("a\ud800", "a\ufffd"),
    ("\udc00a", "\ufffda"),
    ("\ud83d\ude00", "😀"),
    ("\ud83d\ud83d\ude00", "\ufffd😀"),
    ("\ufeffa", "\ufeffa"),
    ("\x00", "\x00"),
]


@pytest.mark.parametrize(("text", "cleaned"), CLEANED)
def test_halves_are_replaced_and_pairs_joined(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


def test_what_is_made_cannot_be_made_again() -> None:
    """`dict.__init__` adds items to a dict that is there, `list.__init__` puts others in."""
    frozen: Any = freeze({"a": [1]})
    for again in (
        lambda: frozen.__init__({"b": 2}),
        lambda: frozen.__init__(),
        lambda: frozen["a"].__init__([2]),
        lambda: frozen["a"].__init__(),
    ):
        with pytest.raises(TypeError, match="belongs to an immutable value"):
            again()
    assert frozen == {"a": [1]}


def nested(levels: int) -> Any:
    value: Any = "x"
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


def deepest_can_be_saved() -> None:
    """What is accepted can always be written, whatever lies around it: a value that cannot would block its State."""
    call = ToolCall("find", nested(200))
    members = PendingInterrupt(kind="question", data=nested(200))
    state = State(
        messages=[Message("assistant", tool_calls=[call], metadata=nested(200))],
        metadata=nested(200),
        interrupt=PendingInterrupt(kind="multiple", members=(members,)),
    )
    assert State.from_json(json.dumps(state.to_json())) == state
    for put in (
        lambda: freeze(nested(201)),
        lambda: freeze(nested(250)),
        lambda: freeze(nested(100_000)),
        lambda: ToolCall("find", nested(202)),
        lambda: state.put_metadata("k", nested(200)),
        # Step by step, too: each step puts one more level around what is frozen already.
        lambda: state.put_metadata("k", {"before": state.metadata["a"]}).put_metadata("k", [state.metadata]),
    ):
        with pytest.raises(ValueError, match="nested more than 200 levels deep; flatten it, or keep the inner part"):
            put()


def test_what_is_accepted_is_never_too_deep_to_be_saved() -> None:
    deepest_can_be_saved()


def test_without_the_bound_on_depth_it_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.frozen.MAX_DEPTH", 10**6)
    with pytest.raises(pytest.fail.Exception):
        deepest_can_be_saved()
    with pytest.raises(ValueError, match="Maximum serialization depth"):
        State(metadata=nested(300)).to_json()


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="value is nested more than 200 levels deep"):
        freeze(loop)


@pytest.mark.parametrize("kind", [FrozenDict, FrozenList])
def test_what_is_made_directly_is_frozen_to_the_bottom(kind: Any) -> None:
    plain: Any = {"a": [{"b": [1]}]} if kind is FrozenDict else [[{"b": [1]}]]
    made = kind(plain)
    assert (made, made.depth) == (plain, 4)
    assert {type(part) for part in walk(made)} == {FrozenDict, FrozenList}
    with pytest.raises(ValueError, match=r"value\[.*\] is a object, which is not JSON"):
        kind([("a", object())] if kind is FrozenDict else [object()])


PLACES: list[tuple[Any, str]] = [
    ({"a": [1, {"b": {2}}]}, "data['a'][1]['b'] is a set"),
    ([[[object()]]], "data[0][0][0] is a object"),
    ({"a": {3: "x"}}, "data['a'] has the key 3 (int); keys are strings: '3'"),
    (float("nan"), "data is nan, which JSON cannot hold"),
    (FrozenDict, "data is a type, which is not JSON"),
]


@pytest.mark.parametrize(("value", "words"), PLACES, ids=range(len(PLACES)))
def test_an_error_says_where_in_the_value_it_is(value: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        freeze(value, path="data")
    assert str(caught.value).startswith(words)
