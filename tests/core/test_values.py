"""Messages, State and their JSON: immutable to the bottom, nothing lost on the way."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st
from pydantic import ValidationError

from sagents_nb import (
    File,
    Image,
    Interrupt,
    Message,
    State,
    StateUpdate,
    Text,
    Thinking,
    Todo,
    ToolCall,
    ToolResult,
    Usage,
)
from sagents_nb.changes import Change, describe_changes
from sagents_nb.deltas import Delta, MessageBuilder, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta
from sagents_nb.frozen import FrozenDict, FrozenList, freeze
from sagents_nb.interrupts import Continuation, PendingInterrupt
from sagents_nb.value import Value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
TEXTS = st.text(max_size=20)
NAMES = st.text(min_size=1, max_size=5)
FLAGS = st.booleans()
BASE64 = st.binary(min_size=1, max_size=8).map(lambda raw: base64.b64encode(raw).decode())

TEXT_PARTS = st.builds(Text, TEXTS)
IMAGES = st.one_of(
    st.builds(Image, url=NAMES, media_type=st.none() | NAMES),
    st.builds(Image, data=BASE64, media_type=NAMES),
)
FILES = st.one_of(
    st.builds(File, url=NAMES, name=TEXTS),
    st.builds(File, data=BASE64, media_type=NAMES, name=TEXTS),
)
THOUGHTS = st.builds(Thinking, text=TEXTS, signature=st.none() | NAMES, redacted=st.none() | NAMES)
USAGES = st.builds(
    Usage,
    input_tokens=st.integers(0, 9),
    output_tokens=st.integers(0, 9),
    cache_read_tokens=st.integers(0, 9),
    cache_write_tokens=st.integers(0, 9),
)
CALLS = st.builds(
    lambda name, arguments, call_id, raw: ToolCall(name, arguments, id=call_id, invalid_arguments=raw),
    *(NAMES, OBJECTS, NAMES, st.none() | TEXTS),
)
RESULTS = st.builds(
    ToolResult,
    st.lists(TEXT_PARTS | IMAGES | FILES, max_size=2),
    tool_call_id=TEXTS,
    name=TEXTS,
    is_error=FLAGS,
    is_interrupt=FLAGS,
    display_text=st.none() | TEXTS,
)
MESSAGES = st.one_of(
    st.builds(lambda text: Message("user", text), TEXTS),
    st.builds(lambda text: Message("system", text), TEXTS),
    st.builds(
        Message,
        st.just("user"),
        st.lists(TEXT_PARTS | IMAGES | FILES, max_size=3),
        metadata=OBJECTS,
    ),
    st.builds(
        Message,
        st.just("assistant"),
        st.lists(TEXT_PARTS | THOUGHTS | IMAGES | FILES, max_size=3),
        tool_calls=st.lists(CALLS, max_size=2),
        usage=st.none() | USAGES,
        status=st.sampled_from(["complete", "length", "cancelled", "refused", "stream_error"]),
        metadata=OBJECTS,
    ),
    st.builds(Message, st.just("tool"), st.none() | TEXTS, tool_results=st.lists(RESULTS, max_size=2)),
)
INTERRUPTS = st.recursive(
    st.builds(
        PendingInterrupt,
        id=NAMES,
        kind=st.sampled_from(["approval", "question", "halt", "subagent", "pause", "invented"]),
        message=TEXTS,
        data=OBJECTS,
        source=TEXTS,
        tool_call_id=st.none() | NAMES,
        continuation=st.none()
        | st.builds(
            Continuation,
            step=st.sampled_from(["", "run_tools", "end"]),
            messages=st.integers(0, 9),
            cycle=st.integers(0, 9),
            failures=st.integers(0, 2),
            max_runs=st.none() | st.integers(1, 9),
            until_tool=st.lists(NAMES, max_size=2),
            until_success=FLAGS,
        ),
    ),
    lambda inner: st.builds(
        PendingInterrupt, id=NAMES, kind=st.just("multiple"), members=st.lists(inner, min_size=1, max_size=2)
    ),
    max_leaves=3,
)
TODOS = st.builds(
    Todo,
    id=st.integers(1, 10**9),
    content=st.text(min_size=1, max_size=9),
    status=st.sampled_from(["pending", "in_progress", "completed", "cancelled"]),
)
STATES = st.builds(
    State,
    messages=st.lists(MESSAGES, max_size=4),
    metadata=OBJECTS,
    todos=st.lists(TODOS, max_size=3, unique_by=lambda todo: todo.id),
    interrupt=st.none() | INTERRUPTS,
    agent_id=st.none() | NAMES,
    conversation_id=st.none() | NAMES | st.integers(),
)
UPDATES = st.builds(
    StateUpdate,
    messages=st.lists(MESSAGES, max_size=2),
    todos=st.none() | st.lists(TODOS, max_size=2),
    metadata=OBJECTS,
    delete_metadata=st.lists(TEXTS, max_size=2),
    put_todos=st.lists(TODOS, max_size=2),
    delete_todos=st.lists(st.integers(), max_size=2),
)
VALUES = st.one_of(
    *(TEXT_PARTS, THOUGHTS, IMAGES, FILES, USAGES, CALLS, RESULTS, MESSAGES, INTERRUPTS, TODOS, STATES, UPDATES)
)


@given(STATES)
@settings(max_examples=100, deadline=None)
def test_reading_what_was_written_gives_the_same_state(state: State) -> None:
    assert State.from_json(json.dumps(state.to_json())) == state
    assert State.from_json(state.to_json()) == state
    assert pickle.loads(pickle.dumps(state)) == state
    assert describe_changes(state, State.from_json(state.to_json())) == ()


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_every_value_is_the_same_after_a_way_through_json(value: Value) -> None:
    form = value.to_json()
    again = type(value).from_json(json.dumps(form))
    assert again == value
    assert json.dumps(again.to_json()) == json.dumps(form)  # unlike ``==`` it tells true from 1 and 1 from 1.0
    assert type(value).from_json(value.to_json(nested=True)) == value


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_only_the_outermost_form_says_the_version(value: Value) -> None:
    form = value.to_json()
    assert form.pop("version") == 1
    assert form == value.to_json(nested=True)
    # What a person put in may be called version, too; nothing that the toolkit wrote inside is.
    said = [key for part in objects(form, but=("metadata", "arguments", "data")) for key in part]
    assert "version" not in said


def objects(value: Any, but: tuple[str, ...]) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(part for key, item in value.items() if key not in but for part in objects(item, but))]
    return [part for item in value for part in objects(item, but)] if isinstance(value, list) else []


VERSIONED: list[Value] = [
    Message("user", "hi"),
    ToolCall("pay", {"euro": 1}, id="c"),
    ToolResult("paid", tool_call_id="c", name="pay"),
    Usage(input_tokens=1),
    PendingInterrupt(kind="question"),
    Todo(id=1, content="look"),
    State.from_text("hi"),
]


@pytest.mark.parametrize("value", VERSIONED, ids=lambda value: type(value).__name__)
def test_a_form_of_a_newer_version_is_refused_in_words(value: Value) -> None:
    name = type(value).__name__
    for version in (2, 99, "x", None, 1.0):
        with pytest.raises(
            ValueError, match=f"this {name} has the format version .*, newer than the 1 this sagents_nb"
        ):
            type(value).from_json({**value.to_json(), "version": version})
    for wrong in ([1], "[1]", "3", 3):
        with pytest.raises(ValueError, match=f"the JSON of a {name} is an object, this is a (list|int)"):
            type(value).from_json(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"this is not the JSON form of a {name}: it is nested too deeply"):
        type(value).from_json("[" * 100_000)


def test_without_looking_at_the_version_a_newer_form_would_be_read_as_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.value.FORMAT_VERSION", 99)
    with pytest.raises(pytest.fail.Exception):
        test_a_form_of_a_newer_version_is_refused_in_words(VERSIONED[0])


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


ROUGH = st.builds(
    lambda one, half, other: one + half + other,
    TEXTS,
    st.sampled_from(["\ud800", "\udfff", "\ud83d\ude00\ud83d"]),
    TEXTS,
)
ROUGH_JSON = st.recursive(
    ROUGH,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ROUGH, inner, max_size=2),
    max_leaves=4,
)
ROUGH_OBJECTS = st.dictionaries(ROUGH, ROUGH_JSON, max_size=2)
ROUGH_VALUES: list[st.SearchStrategy[Value]] = [
    st.builds(Thinking, text=ROUGH, signature=ROUGH, redacted=ROUGH),
    st.builds(Image, url=ROUGH, media_type=ROUGH),
    st.builds(File, url=ROUGH, media_type=ROUGH, name=ROUGH),
    st.builds(ToolCall, ROUGH, ROUGH_OBJECTS, id=ROUGH, invalid_arguments=ROUGH),
    st.builds(ToolResult, ROUGH, tool_call_id=ROUGH, name=ROUGH, display_text=ROUGH),
    st.builds(Message, st.just("user"), ROUGH, metadata=ROUGH_OBJECTS),
    st.builds(PendingInterrupt, kind=ROUGH, message=ROUGH, data=ROUGH_OBJECTS, source=ROUGH, tool_call_id=ROUGH),
    st.builds(Interrupt, ROUGH, ROUGH, ROUGH_OBJECTS),
    st.builds(Todo, id=st.just(1), content=ROUGH),
    st.builds(State, metadata=ROUGH_OBJECTS),
    st.builds(StateUpdate, metadata=ROUGH_OBJECTS, delete_metadata=st.lists(ROUGH, max_size=2)),
    st.builds(Change, path=ROUGH, kind=st.just("replaced"), before=ROUGH, after=ROUGH),
]


@given(st.one_of(ROUGH_VALUES))
@settings(max_examples=300, deadline=None)
def test_no_half_of_a_character_gets_into_a_value(value: Value) -> None:
    encoded(value)


def encoded(value: Value) -> None:
    text = json.dumps(value.to_json(), ensure_ascii=False)
    text.encode()
    assert type(value).from_json(text) == value


@pytest.mark.parametrize("strategy", ROUGH_VALUES, ids=range(len(ROUGH_VALUES)))
def test_without_cleaning_it_would(strategy: st.SearchStrategy[Value], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.frozen.clean_text", lambda text: text)

    @given(strategy)
    @settings(max_examples=5, deadline=None, database=None, phases=[Phase.generate])
    def run(value: Value) -> None:
        encoded(value)

    with pytest.raises((ValueError, AssertionError, ExceptionGroup)):
        run()


@pytest.mark.parametrize("name", ["agent_id", "conversation_id"])
def test_an_id_with_half_a_character_is_refused_since_two_ids_could_become_one(name: str) -> None:
    with pytest.raises(ValueError, match="has half a character in it"):
        State(**{name: "a\ud800"})
    with pytest.raises(ValueError, match="has half a character in it"):
        PendingInterrupt(id="a\ud800", kind="question")


IMMUTABLE = (str, int, float, bool, type(None))


def mutable(value: Any) -> list[Any]:
    """What can be changed in place in a value, at any depth."""
    if isinstance(value, Value):
        for name in type(value).model_fields:
            for change in (lambda name=name: setattr(value, name, None), lambda name=name: delattr(value, name)):
                with pytest.raises(ValidationError, match="frozen"):
                    change()
        return [part for name in type(value).model_fields for part in mutable(getattr(value, name))]
    if isinstance(value, FrozenDict):
        return [part for item in value.values() for part in mutable(item)]
    if isinstance(value, (tuple, FrozenList)):
        return [part for item in value for part in mutable(item)]
    return [] if isinstance(value, IMMUTABLE) else [value]


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_nothing_in_a_value_can_be_changed_in_place(value: Value) -> None:
    assert mutable(value) == []
    assert mutable(type(value).from_json(value.to_json())) == []


def kinds(base: type[Value] = Value) -> list[type[Value]]:
    return [each for kind in base.__subclasses__() for each in (kind, *kinds(kind))]


def test_nothing_that_a_field_is_by_default_can_be_changed_in_place() -> None:
    import sagents_nb.server.display  # noqa: F401 - has values, too

    found = [
        f"{kind.__name__}.{name}"
        for kind in kinds()
        if kind.__module__.startswith("sagents_nb.")
        for name, field in kind.model_fields.items()
        if not field.is_required() and not isinstance(field.get_default(call_default_factory=True), dt.datetime)
        if mutable(field.get_default(call_default_factory=True))
    ]
    assert found == []
    assert len(kinds()) > 12
    assert mutable((freeze({"a": [1]}), {}, [])) == [{}, []]  # it would be seen


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
