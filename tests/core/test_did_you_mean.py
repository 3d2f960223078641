"""Spelling hints: what is offered for an unknown word, and what is not."""

from __future__ import annotations

import pytest

from sagents_nb import errors
from sagents_nb.errors import did_you_mean

HINTS: list[tuple[str, list[str], str | None]] = [
    # the same word in other capitals is the best there is
    ("PATH", ["path"], "path"),
    ("Path", ["paths", "path_to", "PATH"], "PATH"),
    ("path", ["Path"], "Path"),
    # one contains the other; the less is left over, the better
    ("file_path", ["path"], "path"),
    ("path", ["file_path"], "file_path"),
    ("path", ["the_path_of_the_file", "file_path"], "file_path"),
    ("FilePath", ["path"], "path"),
    ("path", ["path" + "_and_more" * 9], "path" + "_and_more" * 9),
    ("id", ["agent_id"], None),  # two letters are in too many words
    ("x", ["extra", "xy"], None),  # and one in nearly all
    # similar spelling
    ("pya", ["pay", "stop"], "pay"),
    ("get_wether", ["get_weather", "get_water_level"], "get_weather"),
    ("Wether", ["weather"], "weather"),
    ("Agnt", ["Agent"], "Agent"),
    ("cuont", ["count", "country"], "count"),
    ("modle", ["mode", "model"], "model"),  # letters that changed places are likelier than one too many
    ("dwayne", ["duane"], "duane"),
    ("pay", ["stop"], None),
    ("dixon", ["dicksonx"], "dicksonx"),
    # a containing word against a similar one
    ("fiel", ["field", "file_path"], "field"),
    ("paths", ["path", "baths"], "path"),
    # the first of equals
    ("pat", ["path", "pats"], "path"),
    ("quite else", ["pay"], None),
    ("", ["pay"], None),
    ("pay", [""], None),
    ("pay", [], None),
    ("", [], None),
]


@pytest.mark.parametrize(("word", "known", "meant"), HINTS)
def test_the_closest_word_is_offered_if_one_is_close(word: str, known: list[str], meant: str | None) -> None:
    assert did_you_mean(word, known) == ("" if meant is None else f" (did you mean {meant!r}?)")
    assert did_you_mean(word, iter(known)) == did_you_mean(word, known)


def test_a_word_of_a_million_letters_is_not_compared_letter_by_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_jaro", lambda short, long: pytest.fail("it was compared"))
    assert did_you_mean("ab" * 500_000, [f"tool_{number}" for number in range(50)]) == ""
