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
THOUGHTS = st.builds(
    Thinking, text=st.text(max_size=12), signature=st.none() | TEXTS, redacted=st.none() | TEXTS
).filter(lambda part: part != Thinking())
PARTS = st.lists(st.builds(Text, TEXTS) | THOUGHTS, max_size=3)
CALLS = st.lists(st.builds(lambda name, data: (name, data), TEXTS, OBJECTS), max_size=3).map(
    lambda found: tuple(ToolCall(name, data, id=f"c{n}") for n, (name, data) in enumerate(found))
)


def cut(data: st.DataObject, text: str) -> list[str]:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def cut_name(data: st.DataObject, name: str) -> list[str]:
    """Pieces none of which is equal to what came before it: that would be the name, said again."""
    found = cut(data, name)
    return [name] if any(piece == "".join(found[:n]) for n, piece in enumerate(found)) else found


def pieces(data: st.DataObject, message: Message) -> list[list[Delta]]:
    """The deltas of each block, cut anywhere."""
    blocks: list[list[Delta]] = []
    for part in message.content:
        index = len(blocks)
        if isinstance(part, Text):
            blocks.append([TextDelta(piece, index) for piece in cut(data, part.text)])
        elif isinstance(part, Thinking):
            block: list[Delta] = [ThinkingDelta(piece, index) for piece in cut(data, part.text)]
            block += [ThinkingDelta("", index, signature=piece) for piece in cut(data, part.signature or "")]
            block += [ThinkingDelta("", index, redacted=piece) for piece in cut(data, part.redacted or "")]
            blocks.append(block)
    for call in message.tool_calls:
        index = len(blocks)
        text = json.dumps(call.arguments, ensure_ascii=data.draw(st.booleans()))
        block = [ToolCallDelta(index, id=call.id, name=piece) for piece in cut_name(data, call.name)]
        # Some providers repeat the whole name with every piece, or give a piece an id of its own.
        again = data.draw(st.sampled_from([{}, {"name": call.name}, {"id": "other"}]))
        blocks.append([*block, *(ToolCallDelta(index, piece, **again) for piece in cut(data, text))])
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


MERGED: list[tuple[list[Delta], Message]] = [
    (
        [TextDelta("Hello"), TextDelta(" world"), TextDelta("!"), StopDelta()],
        Message("assistant", [Text("Hello world!")]),
    ),
    (
        [
            ToolCallDelta(0, "{\n", id="c", name="read"),
            *(ToolCallDelta(0, piece) for piece in [' "', 'file_path":', ' "/x"}']),
            StopDelta(),
        ],
        Message("assistant", tool_calls=[ToolCall("read", {"file_path": "/x"}, id="c")]),
    ),
    (
        [ToolCallDelta(0, id="c", name="get_"), ToolCallDelta(0, name="weather"), StopDelta()],
        Message("assistant", tool_calls=[ToolCall("get_weather", id="c")]),
    ),
    (
        [ToolCallDelta(0, "{", id="c", name="pay"), ToolCallDelta(0, "}", id="d", name="pay"), StopDelta()],
        Message("assistant", tool_calls=[ToolCall("pay", id="c")]),
    ),
    (  # blocks are told apart by the value of their index, wherever they stand
        [
            ToolCallDelta(7, id="b", name="two"),
            ToolCallDelta(3, id="a", name="one"),
            ToolCallDelta(7, '{"n": 2}'),
            StopDelta(),
        ],
        Message("assistant", tool_calls=[ToolCall("one", id="a"), ToolCall("two", {"n": 2}, id="b")]),
    ),
    (
        [ThinkingDelta("a"), ThinkingDelta(signature="se"), ThinkingDelta(signature="al"), StopDelta()],
        Message("assistant", [Thinking(text="a", signature="seal")]),
    ),
    (
        [ThinkingDelta(signature="aa"), ThinkingDelta(signature="aa"), StopDelta()],
        Message("assistant", [Thinking(signature="aaaa")]),
    ),
    (
        [ThinkingDelta(redacted="x"), ThinkingDelta(redacted="y"), StopDelta()],
        Message("assistant", [Thinking(redacted="xy")]),
    ),
    (  # what says nothing makes no block, and takes no place from the one that follows
        [TextDelta(""), ThinkingDelta(""), ToolCallDelta(0), ToolCallDelta(0, id="c", name="pay"), StopDelta()],
        Message("assistant", tool_calls=[ToolCall("pay", id="c")]),
    ),
    ([TextDelta("  \n"), StopDelta()], Message("assistant", [Text("  \n")])),
    (
        [UsageDelta(Usage(input_tokens=10, output_tokens=5)), UsageDelta(Usage(input_tokens=12)), StopDelta()],
        Message("assistant", usage=Usage(input_tokens=12)),
    ),
    ([StopDelta()], Message("assistant")),
]


@pytest.mark.parametrize(("deltas", "message"), MERGED, ids=range(len(MERGED)))
def test_what_deltas_become(deltas: list[Delta], message: Message) -> None:
    assert merged(deltas).build() == message


def merged(deltas: list[Delta]) -> MessageBuilder:
    builder = MessageBuilder()
    for delta in deltas:
        builder.add(delta)
    return builder


WRONG: list[Any] = [
    TextDelta(None),  # type: ignore[arg-type]
    TextDelta(b"x"),  # type: ignore[arg-type]
    TextDelta("x", None),  # type: ignore[arg-type]
    TextDelta("x", "0"),  # type: ignore[arg-type]
    TextDelta("x", True),
    ThinkingDelta(None),  # type: ignore[arg-type]
    ThinkingDelta("x", 0, signature=b"x"),  # type: ignore[arg-type]
    ThinkingDelta("x", 0, redacted=1),  # type: ignore[arg-type]
    ToolCallDelta(0, None),  # type: ignore[arg-type]
    ToolCallDelta(0, {"a": 1}),  # type: ignore[arg-type]
    ToolCallDelta(0, "{}", id=3),  # type: ignore[arg-type]
    ToolCallDelta(0, "{}", name=b"pay"),  # type: ignore[arg-type]
    ToolCallDelta(None, "{}"),  # type: ignore[arg-type]
    UsageDelta(None),  # type: ignore[arg-type]
    UsageDelta({"input_tokens": 1}),  # type: ignore[arg-type]
    StopDelta("odd"),  # type: ignore[arg-type]
    StopDelta(["complete"]),  # type: ignore[arg-type]
    StopDelta("complete", None),  # type: ignore[arg-type]
    StopDelta("complete", [1]),  # type: ignore[arg-type]
    StopDelta("complete", {"x": object()}),
    StopDelta("complete", {"x": float("nan")}),
    StopDelta("complete", {1: "x"}),  # type: ignore[dict-item]
    "x",
    None,
]


@given(PARTS, CALLS, st.sampled_from(WRONG), st.data())
@settings(max_examples=150, deadline=None)
def test_a_wrong_delta_changes_nothing_of_what_was_there_and_of_what_follows(
    parts: Any, calls: Any, wrong: Any, data: st.DataObject
) -> None:
    whole = Message("assistant", parts, tool_calls=calls, usage=Usage(output_tokens=2), metadata={"reason": "end"})
    deltas: list[Delta] = [delta for block in pieces(data, whole) for delta in block]
    deltas += [UsageDelta(Usage(output_tokens=2)), StopDelta("complete", {"reason": "end"})]
    place = data.draw(st.integers(0, len(deltas)))
    refused(deltas, place, wrong)


def refused(deltas: list[Delta], place: int, wrong: Any) -> None:
    builder, alone = merged(deltas[:place]), merged(deltas[:place])
    with pytest.raises(ValueError, match="streamed|metadata"):
        builder.add(wrong)
    assert builder.is_empty is alone.is_empty
    assert builder.stop == alone.stop
    assert builder.build("cancelled") == alone.build("cancelled")
    for delta in deltas[place:]:
        builder.add(delta)
    assert builder.build() == merged(deltas).build()


KEPT: list[Delta] = [TextDelta("kept"), ToolCallDelta(1, "{}", id="c", name="pay")]
OFF: list[tuple[str, Any, list[Any]]] = [
    ("sagents_nb.deltas._check", lambda *_: None, [d for d in WRONG if isinstance(d, TextDelta | ThinkingDelta)]),
    ("sagents_nb.deltas.message_metadata", lambda metadata: metadata, [StopDelta("complete", {"x": object()})]),
]


@pytest.mark.parametrize(("name", "instead", "wrong"), OFF, ids=["check", "metadata"])
def test_without_checking_it_first_what_was_there_would_be_lost(
    name: str, instead: Any, wrong: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in wrong:
        refused(KEPT, 1, each)
    monkeypatch.setattr(name, instead)
    with pytest.raises((pytest.fail.Exception, AssertionError)):
        for each in wrong:
            refused(KEPT, 1, each)


OTHER_KIND: list[tuple[Delta, str]] = [
    (ThinkingDelta("x", 0), "streamed a thinking delta for block 0, which is a text block"),
    (ToolCallDelta(0, "{}", id="c", name="n"), "streamed a tool_call delta for block 0, which is a text block"),
    (TextDelta("x", 1), "streamed a text delta for block 1, which is a tool_call block"),
]


@pytest.mark.parametrize(("wrong", "words"), OTHER_KIND, ids=range(len(OTHER_KIND)))
def test_a_delta_of_another_kind_than_its_block_is_refused_in_words(wrong: Delta, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        merged(KEPT).add(wrong)
    refused(KEPT, 2, wrong)


WORDS: list[tuple[Any, str]] = [
    (TextDelta(None), "the model streamed TextDelta(text=None, index=0); its index is an int, all else in it is text"),  # type: ignore[arg-type]
    (StopDelta("odd"), "StopDelta(status='odd', metadata={}); its status is one of 'complete', 'length', 'cancelled'"),  # type: ignore[arg-type]
    (StopDelta("complete", {"x": object()}), "metadata['x'] is a object, which is not JSON"),
    (StopDelta("complete", [1]), "metadata is a list; it is a dict with string keys"),  # type: ignore[arg-type]
    (UsageDelta(None), "streamed UsageDelta(usage=None); its usage is a Usage"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("wrong", "words"), WORDS, ids=range(len(WORDS)))
def test_a_wrong_delta_is_refused_in_words(wrong: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        MessageBuilder().add(wrong)
    assert words in str(caught.value)


def test_what_a_model_put_into_the_metadata_cannot_be_changed_afterwards() -> None:
    metadata: dict[str, Any] = {"ids": ["a"]}
    builder = merged([TextDelta("x"), StopDelta("complete", metadata)])
    metadata["ids"].append(object())
    assert builder.build().metadata == {"ids": ["a"]}


@given(st.lists(st.text(st.characters(codec=None, categories=["L", "Cs"]), max_size=3), max_size=4))
@settings(max_examples=100, deadline=None)
def test_half_characters_that_meet_are_one_and_those_that_do_not_are_replaced(found: list[str]) -> None:
    deltas: list[Delta] = [StopDelta()]
    for piece in found:
        deltas += [TextDelta(piece, 0), ThinkingDelta(piece, 1, signature=piece), ToolCallDelta(2, piece, id=piece)]
    message = merged(deltas).build()
    joined = "".join(found).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert message.text == joined
    json.dumps(message.to_json(), ensure_ascii=False).encode()
    if found and joined:
        assert message.content[1] == Thinking(text=joined, signature=joined)
