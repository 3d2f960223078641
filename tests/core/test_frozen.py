"""Frozen JSON: equal to plain JSON, and refusing every way in which a dict or a list can change."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb.frozen import FrozenDict, FrozenList, clean_text, freeze, thaw
from tests.core.test_values import JSON

READS = set(
    """__class__ __class_getitem__ __contains__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__
    __getitem__ __getstate__ __gt__ __hash__ __init__ __init_subclass__ __iter__ __le__ __len__ __lt__ __ne__
    __new__ __reduce__ __reduce_ex__ __repr__ __reversed__ __setattr__ __sizeof__ __str__ __subclasshook__
    __add__ __mul__ __rmul__ __or__ __ror__ copy count index fromkeys get items keys values""".split()  # noqa: SIM905
)
"""What leaves a dict or a list as it is (``__init__`` apart, which nobody calls on a made one)."""

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
