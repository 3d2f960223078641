"""Messages, State and their JSON: immutable to the bottom, nothing lost on the way."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb import Message, State, StateUpdate, Text, Thinking, Todo, ToolCall, ToolResult, Usage
from sagents_nb.changes import describe_changes
from sagents_nb.deltas import Delta, MessageBuilder, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta
from sagents_nb.frozen import FrozenDict, FrozenList, freeze

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
TEXTS = st.text(max_size=20)
CALLS = st.builds(lambda name, arguments: ToolCall(name, arguments), st.text(min_size=1, max_size=5), OBJECTS)
RESULTS = st.builds(
    lambda text, error: ToolResult(text, tool_call_id="c", name="n", is_error=error), TEXTS, st.booleans()
)
MESSAGES = st.one_of(
    st.builds(lambda text: Message("user", text), TEXTS),
    st.builds(
        lambda text, thought, calls, tokens, status: Message(
            "assistant",
            [Thinking(text=thought, signature="s"), Text(text)],
            tool_calls=calls,
            usage=Usage(input_tokens=tokens),
            status=status,
        ),
        *(
            TEXTS,
            TEXTS,
            st.lists(CALLS, max_size=2),
            st.integers(0, 9),
            st.sampled_from(["complete", "length", "cancelled"]),
        ),
    ),
    st.builds(lambda results: Message("tool", tool_results=results), st.lists(RESULTS, max_size=2)),
)
STATES = st.builds(
    lambda messages, metadata, todos: State(
        messages=messages,
        metadata=metadata,
        todos=[Todo(id=n + 1, content=text) for n, text in enumerate(todos)],
        agent_id="a",
    ),
    *(st.lists(MESSAGES, max_size=4), OBJECTS, st.lists(st.text(min_size=1, max_size=9), max_size=3)),
)


@given(STATES)
@settings(max_examples=100, deadline=None)
def test_reading_what_was_written_gives_the_same_state(state: State) -> None:
    assert State.from_json(json.dumps(state.to_json())) == state
    assert State.from_json(state.to_json()) == state
    assert pickle.loads(pickle.dumps(state)) == state
    assert describe_changes(state, State.from_json(state.to_json())) == ()


def test_a_state_of_a_newer_version_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="format version 99, newer than the 1 this sagents_nb knows: pip install"):
        State.from_json({"version": 99})


@given(STATES, st.lists(MESSAGES, max_size=2), OBJECTS, st.data())
@settings(max_examples=100, deadline=None)
def test_an_update_leads_from_what_a_tool_was_given_to_what_it_made_of_it(
    before: State, more: list[Message], extra: dict[str, Any], data: st.DataObject
) -> None:
    after = before
    for message in more:
        after = after.add_message(message)
    for key, value in extra.items():
        after = after.put_metadata(key, value)
    for key in list(before.metadata):
        if data.draw(st.booleans()):
            after = after.delete_metadata(key)
    todos = [todo for todo in before.todos if data.draw(st.booleans())]
    after = after.replace(todos=tuple(todos))
    update = StateUpdate.between(before, after)
    assert update.apply(before) == after


LIST_CHANGES: list[Callable[[Any], object]] = [
    lambda v: v.append(1),
    lambda v: v.extend([1]),
    lambda v: v.insert(0, 1),
    lambda v: v.pop(),
    lambda v: v.remove(1),
    lambda v: v.clear(),
    lambda v: v.sort(),
    lambda v: v.reverse(),
    lambda v: v.__setitem__(0, 2),
    lambda v: v.__delitem__(0),
    lambda v: v.__iadd__([1]),
    lambda v: v.__imul__(2),
]
DICT_CHANGES: list[Callable[[Any], object]] = [
    lambda v: v.__setitem__("a", 2),
    lambda v: v.__delitem__("a"),
    lambda v: v.update(a=2),
    lambda v: v.pop("a"),
    lambda v: v.popitem(),
    lambda v: v.clear(),
    lambda v: v.setdefault("b", 2),
    lambda v: v.__ior__({"b": 2}),
]


@pytest.mark.parametrize("change", LIST_CHANGES)
def test_no_list_in_a_state_can_be_changed(change: Callable[[Any], object]) -> None:
    state = State().put_metadata("k", [1])
    with pytest.raises(TypeError, match=r"state.put_metadata\('key', value\)"):
        change(state.metadata["k"])
    assert state.metadata == {"k": [1]}


@pytest.mark.parametrize("change", DICT_CHANGES)
def test_no_dict_in_a_state_can_be_changed(change: Callable[[Any], object]) -> None:
    state = State(metadata={"a": 1, "k": {"a": 1}})
    for value in (state.metadata, state.metadata["k"]):
        with pytest.raises(TypeError, match=r"state.put_metadata\('key', value\)"):
            change(value)
    assert state.metadata == {"a": 1, "k": {"a": 1}}


def test_without_freezing_an_old_state_would_change_with_a_new_one() -> None:
    shared = {"list": [1]}
    kept = State(metadata=shared)
    shared["list"].append(2)  # what was handed in is the caller's own
    assert kept.metadata == {"list": [1]}
    assert copy.deepcopy(kept.metadata) is kept.metadata
    assert (type(kept.metadata), type(kept.metadata["list"])) == (FrozenDict, FrozenList)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "value is nan, which JSON cannot hold"),
        ({"a": [1, float("inf")]}, "value['a'][1] is inf"),
        ({1: "x"}, "value has the key 1 (int); keys are strings: '1'"),
        ({"a": {2}}, "value['a'] is a set, which is not JSON"),
        (object(), "value is a object, which is not JSON"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        freeze(value)
    assert words in str(caught.value)


def test_halves_of_characters_are_replaced_everywhere() -> None:
    broken = "a\ud800b"
    assert Text(broken).text == "a\ufffdb"
    assert State().put_metadata("k", [broken]).metadata == {"k": ["a\ufffdb"]}
    assert ToolCall("n", {"k": broken}).arguments == {"k": "a\ufffdb"}
    assert Text("😀").text == "😀"


FRAGMENTS: list[Delta] = [
    *(ThinkingDelta(piece, 0) for piece in "Let me think"),
    ThinkingDelta("", 0, signature="seal"),
    *(TextDelta(piece, 1) for piece in "Hello, wörld"),
    ToolCallDelta(2, id="c1", name="find"),
    *(ToolCallDelta(2, piece) for piece in '{"path": "/a b", "n": [1, 2]}'),
    ToolCallDelta(3, id="c2", name="none"),
    StopDelta("complete", {"stop_reason": "tool_use"}),
]


@given(st.permutations([0, 1, 2, 3]))
@settings(max_examples=24, deadline=None)
def test_however_the_blocks_of_a_stream_mix_the_message_is_the_same(order: list[int]) -> None:
    streams = {n: [d for d in FRAGMENTS if getattr(d, "index", None) == n] for n in range(4)}
    builder = MessageBuilder()
    while any(streams.values()):
        for n in order:
            if streams[n]:
                builder.add(streams[n].pop(0))
    builder.add(FRAGMENTS[-1])
    assert builder.build() == Message(
        "assistant",
        [Thinking(text="Let me think", signature="seal"), Text("Hello, wörld")],
        tool_calls=[ToolCall("find", {"path": "/a b", "n": [1, 2]}, id="c1"), ToolCall("none", {}, id="c2")],
        metadata={"stop_reason": "tool_use"},
    )


@pytest.mark.parametrize("raw", ['{"a": ', "[1]", "nonsense", '{"a": NaN}', '"text"'])
def test_arguments_that_are_no_json_object_are_kept_as_they_came(raw: str) -> None:
    builder = MessageBuilder()
    builder.add(ToolCallDelta(0, raw, id="c", name="n"))
    whole = builder.build("complete").tool_calls[0]
    assert (whole.arguments, whole.invalid_arguments) == ({}, raw)
    assert builder.build("cancelled").tool_calls == ()


def test_a_delta_that_does_not_fit_its_block_is_refused_and_what_was_there_stays() -> None:
    builder = MessageBuilder()
    builder.add(TextDelta("kept", 0))
    with pytest.raises(ValueError, match="streamed a tool_call delta for block 0, which is a text block"):
        builder.add(ToolCallDelta(0, "{}"))
    assert builder.build("complete").text == "kept"
