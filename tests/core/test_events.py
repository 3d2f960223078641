"""Events, errors and differences: what is recorded can be stored as JSON, and read by people."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import sagents_nb
from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Message,
    Middleware,
    ModelError,
    RunCancelled,
    ScriptedModel,
    State,
    StoreError,
    StoreLocked,
    Todo,
    ToolCall,
    ToolContext,
    ToolResult,
    Usage,
    events as events_module,
    tool,
)
from sagents_nb.changes import Change, common_ends, describe_changes
from sagents_nb.deltas import StopDelta, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from sagents_nb.errors import did_you_mean, in_words
from sagents_nb.events import Event, HookEnded, ModelDelta, StateUpdated
from sagents_nb.execution.recorder import RING_SIZE, Recorder
from sagents_nb.interrupts import PendingInterrupt
from tests.core.test_values import MESSAGES, STATES

TEXTS = st.text(st.characters(), max_size=8) | st.just("half \ud800")
DELTAS = st.one_of(
    st.builds(TextDelta, TEXTS, st.integers(0, 3)),
    st.builds(ThinkingDelta, TEXTS),
    st.builds(ToolCallDelta, st.integers(0, 3), TEXTS, st.none() | TEXTS, st.none() | TEXTS),
    st.just(UsageDelta(Usage(input_tokens=1))),
    st.just(StopDelta("complete", {"reason": "x"})),
)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(0, 9),
    float: st.floats(0, 9),
    bool: st.booleans(),
    State: STATES,
    Message: MESSAGES,
    ToolCall: st.builds(lambda name: ToolCall(name, {"k": 1}, id="c"), TEXTS),
    ToolResult: st.builds(lambda text: ToolResult(text, tool_call_id="c", processed=object()), TEXTS),
    type(None): st.none(),
}


def field_values(kind: Any) -> st.SearchStrategy[Any]:
    """Something for a field of this type."""
    if kind in VALUES:
        return VALUES[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return st.lists(field_values(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), st.integers(), max_size=2)
    if arguments:
        return DELTAS if TextDelta in arguments else st.one_of(*(field_values(argument) for argument in arguments))
    return st.just("anything")


def event_kinds() -> list[type[Event]]:
    found = [kind for kind in vars(events_module).values() if isinstance(kind, type) and issubclass(kind, Event)]
    return [kind for kind in found if kind is not Event]


@st.composite
def any_event(draw: st.DrawFn) -> Event:
    kind = draw(st.sampled_from(event_kinds()))
    hints = typing.get_type_hints(kind)
    return kind(**{item.name: draw(field_values(hints[item.name])) for item in dataclasses.fields(kind)})


@given(any_event())
@settings(max_examples=80, deadline=None)
def test_every_event_has_a_json_form_that_reads_back_the_same(event: Event) -> None:
    form = event.to_json()
    text = json.dumps(form, allow_nan=False, ensure_ascii=False)
    text.encode()  # a lone half of a character would not go into the database
    assert json.loads(text) == json.loads(json.dumps(form))
    assert json.loads(text)["type"] == event.type
    assert not [value for value in form.values() if isinstance(value, State)]


def test_every_kind_of_event_has_a_name_of_its_own() -> None:
    names = [kind.type for kind in event_kinds()]
    assert len(set(names)) == len(names)


FORMS: list[tuple[Event, dict[str, Any]]] = [
    (
        ModelDelta(delta=TextDelta("hi", 2), cycle=1),
        {"delta": {"type": "text", "text": "hi", "index": 2}, "attempt": 1},
    ),
    (
        HookEnded(
            middleware="A",
            hook="before_model",
            cycle=1,
            duration=0.5,
            changed=True,
            before=State(),
            after=State(metadata={"k": 1}),
        ),
        {"changes": [{"path": "metadata.k", "kind": "added", "after": "1"}], "error": None},
    ),
    (StateUpdated(cycle=1, conflicts=("k",)), {"changes": [], "conflicts": ["k"]}),
    (
        events_module.MessageAdded(message=Message("assistant", "abc", tool_calls=[ToolCall("t")]), cycle=1),
        {"message": {"role": "assistant", "status": "complete", "characters": 3, "tool_calls": ["t"]}},
    ),
    (
        events_module.ToolEnded(call=ToolCall("t", id="c"), result=ToolResult("abc"), cycle=1, duration=0),
        {"call": {"id": "c", "name": "t"}, "result": {"is_error": False, "is_interrupt": False, "characters": 3}},
    ),
]


@pytest.mark.parametrize(("event", "part"), FORMS, ids=range(len(FORMS)))
def test_what_is_stored_of_an_event(event: Event, part: dict[str, Any]) -> None:
    form = event.to_json()
    assert {key: form[key] for key in part} == part
    assert "before" not in form
    assert "after" not in form


async def test_no_secret_of_the_channels_gets_into_the_record() -> None:
    class Sees(Middleware):
        def before_model(self, state: State, run: Any) -> State:
            return state.put_metadata("seen", sorted(run.scope))

    @tool
    def look(context: ToolContext) -> str:
        "Looks."
        return f"{len(context.scope)} {len(context.key)} {context!r}"

    agent = Agent(
        model=ScriptedModel([ToolCall("look"), "done"]),
        tools=[look],
        middleware=[Sees()],
        scope={"token": "SCOPE-SECRET"},
        tool_context={"key": "CONTEXT-SECRET"},
    )
    result = await agent.execute("go")
    recorded = json.dumps([event.to_json() for event in result.events]) + json.dumps(result.state.to_json())
    assert "SECRET" not in recorded + repr(result.events)
    assert (
        "ToolContext(tool_call_id='call_1_1', tool_context keys: key)" in result.state.messages[2].tool_results[0].text
    )


def test_the_recorder_numbers_densely_keeps_the_latest_and_tells_in_order() -> None:
    recorder = Recorder(last_seq=10)
    told: list[int] = []
    recorder.listeners.append(lambda event: told.append(event.seq))
    for _ in range(RING_SIZE + 5):
        recorder.record(events_module.CycleStarted(cycle=1))
    recorder.record(ModelDelta(delta=TextDelta("x"), cycle=1))
    assert told == list(range(11, 11 + RING_SIZE + 6))
    assert [event.seq for event in recorder.events] == list(range(16, 16 + RING_SIZE))


A, B = (Message("user", text) for text in "ab")

DIFFERENCES: list[tuple[State, State, list[str]]] = [
    (State(), State(), []),
    (State(messages=(A,)), State(messages=(A, B)), ["+ messages[1]: user: b"]),
    (State(messages=(A, B)), State(messages=(B,)), ["- messages[0]: user: a"]),
    (State(messages=(A, B)), State(messages=(Message("user", "c"), B)), ["~ messages[0]: user: a → user: c"]),
    (
        State(),
        State(messages=(Message("assistant", tool_calls=[ToolCall("ping")]),)),
        ["+ messages[0]: assistant: ping(…)"],
    ),
    (State(), State(messages=(Message("tool", tool_results=[ToolResult("pong")]),)), ["+ messages[0]: tool: pong"]),
    (
        State(metadata={"a": 1, "b": {"c": [1]}}),
        State(metadata={"b": {"c": [2]}, "d": "text"}),
        ["- metadata.a: 1", '~ metadata.b: {"c": [1]} → {"c": [2]}', "+ metadata.d: text"],
    ),
    (
        State(todos=(Todo(id=1, content="one"),)),
        State(todos=(Todo(id=1, content="one", status="completed"), Todo(id=2, content="two"))),
        ["~ todos.1: one (pending) → one (completed)", "+ todos.2: two (pending)"],
    ),
    (State(), State(interrupt=PendingInterrupt(kind="question")), ["+ interrupt: question"]),
    (State(interrupt=PendingInterrupt(kind="halt")), State(), ["- interrupt: halt"]),
    (State(agent_id="a"), State(agent_id="b"), ["~ agent_id: a → b"]),
    (State(metadata={"k": "x" * 500}), State(), ["- metadata.k: " + "x" * 119 + "…"]),
]


@pytest.mark.parametrize(("before", "after", "told"), DIFFERENCES, ids=range(len(DIFFERENCES)))
def test_a_difference_is_told_in_a_line(before: State, after: State, told: list[str]) -> None:
    assert [str(change) for change in describe_changes(before, after)] == told


@given(st.lists(st.integers(0, 2), max_size=6).map(tuple), st.lists(st.integers(0, 2), max_size=6).map(tuple))
@settings(max_examples=150, deadline=None)
def test_what_two_sequences_share_at_their_ends(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    head, tail = common_ends(old, new)
    assert old[:head] == new[:head]
    assert tail == 0 or old[-tail:] == new[-tail:]
    assert head + tail <= min(len(old), len(new))
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    if gone and come:  # as much as possible was taken off
        assert gone[0] != come[0]
        assert gone[-1] != come[-1]


@given(STATES, STATES)
@settings(max_examples=60, deadline=None)
def test_no_change_is_told_exactly_when_there_is_none(one: State, other: State) -> None:
    assert describe_changes(one, one) == ()
    if describe_changes(one, other) == ():
        assert one.to_json() == other.to_json()


def test_a_change_has_a_json_form() -> None:
    change = Change(path="metadata.k", kind="added", after="1")
    assert Change.from_json(json.dumps(change.to_json())) == change


TREE: list[tuple[type[BaseException], tuple[type[BaseException], ...]]] = [
    (ConfigurationError, (sagents_nb.SagentsError, TypeError)),
    (ModelError, (sagents_nb.SagentsError,)),
    (sagents_nb.ToolError, (sagents_nb.SagentsError,)),
    (AgentError, (sagents_nb.SagentsError,)),
    (sagents_nb.SessionError, (sagents_nb.SagentsError,)),
    (StoreLocked, (StoreError, sagents_nb.SagentsError)),
    (sagents_nb.StoreClosed, (StoreError, sagents_nb.SagentsError)),
    (RunCancelled, (KeyboardInterrupt,)),
    (sagents_nb.UnknownConversation, (StoreError, LookupError)),
]


@pytest.mark.parametrize(("error", "bases"), TREE)
def test_the_tree_of_errors(error: type[BaseException], bases: tuple[type[BaseException], ...]) -> None:
    assert all(issubclass(error, base) for base in bases)
    assert issubclass(error, sagents_nb.SagentsError) or not issubclass(error, Exception)


def test_errors_carry_what_they_know() -> None:
    state = State.from_text("go")
    assert RunCancelled(state).state is state
    assert "the run was cancelled; .state holds what it reached" in str(RunCancelled(state))
    failed = AgentError("words", type="overloaded", state=state)
    assert (str(failed), failed.type, failed.state) == ("words", "overloaded", state)
    asked = ModelError("wait", retryable=True, retry_after=3, status_code=429, request_id="req_1")
    assert (asked.type, asked.retryable, asked.retry_after, asked.status_code, asked.request_id) == (
        "model_error",
        True,
        3,
        429,
        "req_1",
    )
    assert StoreLocked("held", pid=7).pid == 7


HINTS: list[tuple[str, list[str], str]] = [
    ("pya", ["pay", "stop"], " (did you mean 'pay'?)"),
    ("path", ["file_path"], " (did you mean 'file_path'?)"),
    ("file_path", ["path"], " (did you mean 'path'?)"),
    ("x", ["extra"], ""),
    ("quite else", ["pay"], ""),
    ("", ["pay"], ""),
    ("pay", [], ""),
]


@pytest.mark.parametrize(("word", "known", "hint"), HINTS)
def test_a_hint_is_given_when_something_is_close(word: str, known: list[str], hint: str) -> None:
    assert did_you_mean(word, known) == hint


def test_an_error_always_has_words() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert in_words(ValueError("said")) == "said"
    assert in_words(Mute()) == "(an error whose text cannot be made: its class Mute has a broken __str__)"
