"""Rows of the transcript as values."""

from typing import Any

import pytest
from pydantic import ValidationError

from sagents_nb.messages import Message, ToolCall
from sagents_nb.server.display import DisplayMessage, rows_of


def row(content_type: Any = "text", **content: Any) -> DisplayMessage:
    return DisplayMessage(
        conversation_id="c", sequence=1, message_type="assistant", content_type=content_type, content=content
    )


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (row("text", text="a"), "a"),
        (row("thinking", text="b"), "b"),
        (row("notification", text="c"), "c"),
        (row("error", text="d", error_type="e"), "d"),
        (row("tool_call", call_id="1", name="pay", arguments={"euro": 5}), "pay {'euro': 5}"),
        (row("tool_result", tool_call_id="1", name="pay", content="paid"), "paid"),
        (row("file_reference", path="/f", name="f.pdf"), "f.pdf"),
        (row("image", url="http://x", alt_text="a cat"), "a cat"),
        (row("image", url="http://x"), ""),
    ],
    ids=lambda value: value.content_type if isinstance(value, DisplayMessage) else "",
)
def test_the_text_of_a_row_is_what_a_search_looks_at(shown: DisplayMessage, text: str) -> None:
    assert shown.text == text


def test_a_row_comes_back_from_json_as_it_was() -> None:
    for each in rows_of(
        Message("assistant", ["a"], tool_calls=(ToolCall("pay", {"euro": 5}),), status="length"),
        conversation_id="c",
        sequence=7,
    ):
        again = DisplayMessage.from_json(each.to_json())
        assert again == each
        assert again.inserted_at.tzinfo is not None


def test_ids_sort_by_the_order_in_which_rows_were_made() -> None:
    ids = [row(text=str(number)).id for number in range(500)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 500


def test_a_row_cannot_be_changed_in_place() -> None:
    shown = row(text="a")
    with pytest.raises(ValidationError):
        shown.status = "failed"  # type: ignore[misc]
    with pytest.raises(TypeError, match="belongs to an immutable value"):
        shown.content["text"] = "b"


def test_a_lone_half_of_a_character_does_not_get_into_a_row() -> None:
    assert row(text="a\ud83d").text == "a\ufffd"
