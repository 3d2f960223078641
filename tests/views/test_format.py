"""Numbers, sizes and long texts as people read them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sagents_nb.views.format import clip, clip_line, duration, preview, size, what_is


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0 µs"),
        (0.000012, "12 µs"),
        (0.0004, "0.4 ms"),
        (0.00999, "10 ms"),
        (0.0846, "85 ms"),
        (1.2, "1.2 s"),
        (59.9, "59.9 s"),
        (59.97, "1 min 0 s"),
        (125, "2 min 5 s"),
    ],
)
def test_durations_have_two_or_three_digits_and_a_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_of_texts() -> None:
    assert [size(n) for n in (1, 812, 24_000, 1_000_000)] == [
        "1 character",
        "812 characters",
        "24 k characters",
        "1.0 M characters",
    ]


def test_arguments_on_one_line() -> None:
    assert preview({"city": "Oslo", "days": 3, "deep": {"a": [1]}}) == 'city: "Oslo", days: 3, deep: "{\\"a\\": [1]}"'
    assert len(preview({"text": "x" * 10_000_000})) <= 80


def test_a_line_is_cut_without_reading_all_of_it() -> None:
    assert clip_line("a  b\n c", 10) == "a b c"
    assert clip_line("x" * 50, 10) == "xxxxxxxxx…"
    assert clip_line("a" + " " * 1000 + "b", 10) == "a…"


def test_a_long_text_is_cut_at_a_line_and_keeps_a_rest_with_a_bound() -> None:
    cut = clip("line\n" * 2_000)
    assert cut.head.endswith("\n")
    assert len(cut.head) <= 4_000
    assert cut.head + cut.rest == "line\n" * 2_000
    huge = clip("x" * 1_000_000)
    assert (len(huge.head), len(huge.head + huge.rest), huge.left_out, huge.total) == (
        4_000,
        200_000,
        800_000,
        "1.0 M characters",
    )


@dataclass
class Scope:
    user: str


def test_only_type_and_size_are_told_of_a_value() -> None:
    assert what_is(None) == "None"
    assert what_is(Scope("secret")) == "Scope, 1 field"
    assert what_is({"a": 1, "b": 2}) == "dict, 2 keys"
    assert what_is(("user", 1)) == "tuple, 2 items"
    assert what_is("secret") == "str"
    assert what_is(42) == "int"
