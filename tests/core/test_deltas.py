"""However a stream is cut into pieces, the message is the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb import Message, Text, Thinking, ToolCall, Usage
from sagents_nb.deltas import Delta, MessageBuilder, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from tests.core.test_values import OBJECTS

TEXTS = st.text(min_size=1, max_size=12)
PARTS = st.lists(
    st.one_of(st.builds(Text, TEXTS), st.builds(lambda text: Thinking(text=text, signature="s"), TEXTS)), max_size=3
)
CALLS = st.lists(st.builds(lambda name, data: (name, data), TEXTS, OBJECTS), max_size=3).map(
    lambda found: tuple(ToolCall(name, data, id=f"c{n}") for n, (name, data) in enumerate(found))
)


def cut(data: st.DataObject, text: str) -> list[str]:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def pieces(data: st.DataObject, message: Message) -> list[list[Delta]]:
    """The deltas of each block, cut anywhere."""
    blocks: list[list[Delta]] = []
    for part in message.content:
        index = len(blocks)
        if isinstance(part, Text):
            blocks.append([TextDelta(piece, index) for piece in cut(data, part.text)])
        elif isinstance(part, Thinking):
            block: list[Delta] = [ThinkingDelta(piece, index) for piece in cut(data, part.text)]
            blocks.append([*block, ThinkingDelta("", index, signature=part.signature)])
    for call in message.tool_calls:
        index = len(blocks)
        text = json.dumps(call.arguments, ensure_ascii=data.draw(st.booleans()))
        block = [ToolCallDelta(index, id=call.id, name=call.name)]
        blocks.append([*block, *(ToolCallDelta(index, piece) for piece in cut(data, text))])
    return blocks


@given(PARTS, CALLS, st.data())
@settings(max_examples=50, deadline=None)
def test_any_cut_and_any_mixture_of_the_blocks_gives_the_same_message(
    parts: Any, calls: Any, data: st.DataObject
) -> None:
    wanted = Message("assistant", parts, tool_calls=calls, usage=Usage(output_tokens=2), metadata={"reason": "end"})
    builder = MessageBuilder()
    blocks = [block for block in pieces(data, wanted) if block]
    builder.add(UsageDelta(Usage(output_tokens=1)))
    while blocks:
        block = data.draw(st.sampled_from(blocks))
        builder.add(block.pop(0))
        blocks = [block for block in blocks if block]
    builder.add(UsageDelta(Usage(output_tokens=2)))  # counts so far replace each other
    builder.add(StopDelta("complete", {"reason": "end"}))
    assert builder.build() == wanted
    assert json.dumps(builder.build().to_json()) == json.dumps(wanted.to_json())


@given(PARTS, CALLS, st.integers(0, 30), st.data())
@settings(max_examples=50, deadline=None)
def test_a_stream_that_breaks_off_anywhere_is_a_message_marked_as_such(
    parts: Any, calls: Any, stop: int, data: st.DataObject
) -> None:
    whole = Message("assistant", parts, tool_calls=calls)
    builder = MessageBuilder()
    for delta in [delta for block in pieces(data, whole) for delta in block][:stop]:
        builder.add(delta)
    partial = builder.build("cancelled")
    assert partial.status == "cancelled"
    assert whole.text.startswith(partial.text) or partial.text == whole.text
    assert partial.tool_calls == () or all(call.invalid_arguments is None for call in partial.tool_calls)
    assert builder.build().status == "stream_error"
    assert Message.from_json(partial.to_json()) == partial


ENDS: list[tuple[list[Delta], str | None, str]] = [
    ([StopDelta("length")], None, "length"),
    ([StopDelta("length")], "cancelled", "cancelled"),
    ([], None, "stream_error"),
    ([], "cancelled", "cancelled"),
]


@pytest.mark.parametrize(("deltas", "status", "told"), ENDS)
def test_how_it_ended(deltas: list[Delta], status: Any, told: str) -> None:
    builder = MessageBuilder()
    for delta in deltas:
        builder.add(delta)
    assert builder.build(status).status == told


EMPTY: list[tuple[list[Delta], bool]] = [
    ([], True),
    ([UsageDelta(Usage()), StopDelta()], True),
    ([TextDelta("a")], False),
    ([ThinkingDelta("", redacted="sealed")], False),
    ([ToolCallDelta(0, id="c", name="n")], False),
]


@pytest.mark.parametrize(("deltas", "empty"), EMPTY)
def test_whether_anything_came_yet(deltas: list[Delta], empty: bool) -> None:
    builder = MessageBuilder()
    for delta in deltas:
        builder.add(delta)
    assert builder.is_empty is empty


@pytest.mark.parametrize("raw", ["[" * 100_000, '{"a": ' * 50_000, "9" * 5_000, '{"a": Infinity}', '{"a"', "\ud800"])
def test_arguments_of_any_kind_make_a_call(raw: str) -> None:
    builder = MessageBuilder()
    builder.add(ToolCallDelta(0, raw, id="c", name="n"))
    call = builder.build("complete").tool_calls[0]
    assert call.arguments == {}
    assert call.invalid_arguments == raw.replace("\ud800", "\ufffd")


def test_something_else_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="a model streamed 'x', which is not one of the deltas of sagents_nb.models"):
        MessageBuilder().add("x")  # type: ignore[arg-type]
