"""The State: what a tool may make of it, and what is read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from sagents_nb import (
    Agent,
    Interrupt,
    Message,
    ScriptedModel,
    State,
    StateUpdate,
    Todo,
    ToolCall,
    ToolContext,
    ToolResult,
    tool,
)
from sagents_nb.changes import describe_changes
from sagents_nb.frozen import same_json
from sagents_nb.interrupts import PendingInterrupt
from tests.core.test_values import JSON, OBJECTS, STATES

TODOS = st.lists(
    st.builds(Todo, id=st.integers(1, 4), content=st.sampled_from(["a", "b"])),
    max_size=4,
    unique_by=lambda todo: todo.id,
).map(tuple)


def exactly(state: State) -> str:
    """JSON text: unlike ``==`` it tells true from 1."""
    return json.dumps(state.to_json(), sort_keys=True)


def leads(before: State, after: State) -> None:
    assert exactly(StateUpdate.between(before, after).apply(before)) == exactly(after)


@given(STATES, OBJECTS, TODOS, TODOS)
@settings(max_examples=80, deadline=None)
def test_any_legal_edit_of_a_tool_is_an_update(state: State, metadata: dict[str, Any], old: Any, new: Any) -> None:
    leads(state.replace(todos=old), state.replace(todos=new, metadata=metadata).add_message("more"))


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), ([1], [True]), ({"a": 1}, {"a": 1.0})])
def test_values_that_python_calls_equal_are_told_apart(one: Any, other: Any) -> None:
    assert one == other
    before = State(metadata={"k": one})
    after = before.put_metadata("k", other)
    leads(before, after)
    assert [change.path for change in describe_changes(before, after)] == ["metadata.k"]


def test_without_telling_them_apart_the_edit_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.state.same_json", lambda one, other: one == other)
    with pytest.raises(AssertionError):
        leads(State(metadata={"k": 1}), State(metadata={"k": True}))


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_every_json_value_is_the_same_as_itself_read_again(value: Any) -> None:
    assert same_json(value, json.loads(json.dumps(value)))


@pytest.mark.parametrize("order", [(1, 3, 2), (3, 2, 1), (2, 1), (3, 1)])
def test_an_order_of_todos_that_a_tool_chose_is_kept(order: tuple[int, ...]) -> None:
    todos = {n: Todo(id=n, content=f"todo {n}") for n in (1, 2, 3)}
    before = State(todos=tuple(todos.values()))
    leads(before, before.replace(todos=tuple(todos[n] for n in order)))


def test_two_tools_that_each_add_a_todo_both_count() -> None:
    before = State(todos=(Todo(id=1, content="one"),))
    two = StateUpdate.between(before, before.replace(todos=(*before.todos, Todo(id=2, content="two"))))
    three = StateUpdate.between(before, before.replace(todos=(*before.todos, Todo(id=3, content="three"))))
    assert [t.id for t in three.apply(two.apply(before)).todos] == [1, 2, 3]


BASE = State.from_text("go", agent_id="a", conversation_id="c", metadata={"k": 1})

ILLEGAL: list[tuple[Callable[[], State], str]] = [
    (
        lambda: State(metadata={"k": 2}),
        "does not begin with its 1 messages. Use context.state.put_metadata(…), or return",
    ),
    (lambda: BASE.with_messages([]), "was not made from context.state"),
    (lambda: BASE.with_messages([Message("user", "go")]), "was not made from context.state"),
    (lambda: State.from_json(BASE.to_json()), "was not made from context.state"),
    (
        lambda: BASE.replace(agent_id="b"),
        "the returned State changes agent_id, which a tool may not: return StateUpdate(",
    ),
    (lambda: BASE.replace(conversation_id=None), "the returned State changes conversation_id"),
    (lambda: BASE.with_interrupt(PendingInterrupt(kind="q")), "the returned State changes interrupt"),
]


@pytest.mark.parametrize(("make", "words"), ILLEGAL, ids=range(len(ILLEGAL)))
def test_what_a_tool_may_not_do_is_refused_with_what_to_return(make: Callable[[], State], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        StateUpdate.between(BASE, make())
    assert words in str(caught.value)


async def fresh_state_wipes(made: Callable[[ToolContext], Any]) -> dict[str, Any]:
    @tool
    def reset(context: ToolContext) -> Any:
        "Returns a State that it made itself."
        return "ok", made(context)

    model = ScriptedModel([ToolCall("reset"), "done"])
    state = State.from_text("go", metadata={"kept": 1}, conversation_id="c").replace(todos=(Todo(id=1, content="t"),))
    result = await Agent(model=model, tools=[reset]).execute(state)
    assert len(result.state.todos) == 1
    assert [m.role for m in result.state.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.state.conversation_id == "c"
    return dict(result.state.metadata)


async def test_a_fresh_state_wipes_nothing() -> None:
    assert await fresh_state_wipes(lambda context: State(metadata={"new": 1})) == {"kept": 1}
    assert await fresh_state_wipes(lambda context: State()) == {"kept": 1}
    assert await fresh_state_wipes(lambda context: StateUpdate(metadata={"new": 1})) == {"kept": 1, "new": 1}


async def test_without_the_check_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateUpdate, "between", lambda before, after: after)
    monkeypatch.setattr("sagents_nb.execution.tool_calls._fold", lambda run, results, snapshot: _replace(run, results))
    monkeypatch.setattr("sagents_nb.execution.tool_calls.check_scope", lambda *_: None)
    monkeypatch.setattr(State, "apply", lambda self, state: self, raising=False)
    with pytest.raises(AssertionError):
        await fresh_state_wipes(lambda context: State(metadata={"new": 1}))


def _replace(run: Any, results: list[Any]) -> None:
    for result in results:
        if result is not None and result.update is not None:
            run.state = run.state.replace(todos=result.update.todos, metadata=result.update.metadata)


NOT_A_STATE: list[tuple[Any, str]] = [
    ({"messages": [{"content": "x"}]}, "this is not the JSON form of a State: Message.__init__() missing 1 required"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "this is not the JSON form of a State: Text.__init__",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "'text', 'thinking', 'image', 'file'"),
    ({"mesages": []}, "mesages"),
    ("[1]", "the JSON of a State is an object, this is a list"),
    ("{", "Expecting property name"),
    (
        {"version": 2},
        "this State has the format version 2, newer than the 1 this sagents_nb knows: pip install --upgrade",
    ),
    ({"version": "x"}, "this State has the format version 'x'"),
]


@pytest.mark.parametrize(("data", "words"), NOT_A_STATE, ids=range(len(NOT_A_STATE)))
def test_what_is_no_state_is_a_value_error_in_words(data: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        State.from_json(data)
    assert words in str(caught.value)


CHANGES: list[tuple[Callable[[State], Any], type[Exception], str]] = [
    (lambda s: s.put_metadata(1, "x"), ValueError, "metadata keys are strings, got 1 (int): use '1'"),  # type: ignore[arg-type]
    (lambda s: s.put_metadata("k", object()), ValueError, "metadata['k'] is a object, which is not JSON"),
    (
        lambda s: s.put_metadata("k", {"a": [float("nan")]}),
        ValueError,
        "metadata['k']['a'][0] is nan, which JSON cannot",
    ),
    (lambda s: s.add_message(3), TypeError, "add_message got a int: give it a Message, or the user's text as a str"),  # type: ignore[arg-type]
    (lambda s: s.with_messages(["x"]), TypeError, "with_messages got a str among the messages: 'x'"),  # type: ignore[list-item]
    (lambda s: s.replace(mesages=()), ValidationError, "mesages"),
    (lambda s: setattr(s, "todos", ()), ValidationError, "frozen"),
    (lambda s: Todo(id=0, content="x"), ValidationError, "greater than 0"),
    (lambda s: Todo(id=1, content=""), ValidationError, "at least 1 character"),
    (lambda s: Todo(id=1, content="x" * 1001), ValidationError, "at most 1000 characters"),
    (lambda s: Todo(id=1, content="x", status="done"), ValidationError, "'pending', 'in_progress', 'completed'"),
]


@pytest.mark.parametrize(("change", "error", "words"), CHANGES, ids=range(len(CHANGES)))
def test_what_does_not_fit_is_refused_in_words(
    change: Callable[[State], Any], error: type[Exception], words: str
) -> None:
    state = State.from_text("go", metadata={"k": 1})
    with pytest.raises(error) as caught:
        change(state)
    assert words in str(caught.value)
    assert state == State.from_text("go", metadata={"k": 1})


def test_every_update_leaves_the_old_state_as_it_was() -> None:
    state = State.from_text("go", metadata={"k": [1]})
    text = exactly(state)
    state.add_message("x")
    state.put_metadata("k", 2).delete_metadata("k")
    state.with_messages([])
    state.with_interrupt(PendingInterrupt(kind="q"))
    state.replace(todos=(Todo(id=1, content="t"),))
    StateUpdate(metadata={"k": 3}, delete_todos=(1,)).apply(state)
    assert exactly(state) == text
    assert state.last_text == ""
    assert state.add_message(Message("assistant", "hi")).last_text == "hi"
    assert state.delete_metadata("none").metadata == {"k": [1]}


def test_what_only_this_process_knows_of_a_result_does_not_count() -> None:
    """A DataFrame in `processed` refuses to be compared; a saved result has neither."""

    class Refuses:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value is ambiguous")

        __hash__ = object.__hash__

    one, two = (ToolResult("r", tool_call_id="c", processed=Refuses(), update=StateUpdate()) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    state = State(messages=(Message("tool", tool_results=[one]),))
    assert State.from_json(state.to_json()) == state
    assert one != ToolResult("other", tool_call_id="c")


UPDATES: list[tuple[StateUpdate, dict[str, Any], list[int]]] = [
    (StateUpdate(), {"a": 1, "b": 2}, [1, 2]),
    (StateUpdate(metadata={"a": 9}), {"a": 9, "b": 2}, [1, 2]),
    (StateUpdate(delete_metadata=("a", "none")), {"b": 2}, [1, 2]),
    (StateUpdate(metadata={"a": 9}, delete_metadata=("a",)), {"a": 9, "b": 2}, [1, 2]),
    (StateUpdate(todos=()), {"a": 1, "b": 2}, []),
    (StateUpdate(put_todos=(Todo(id=3, content="x"), Todo(id=1, content="y"))), {"a": 1, "b": 2}, [1, 2, 3]),
    (StateUpdate(delete_todos=(1, 7)), {"a": 1, "b": 2}, [2]),
    (StateUpdate(todos=(Todo(id=5, content="x"),), put_todos=(Todo(id=6, content="y"),)), {"a": 1, "b": 2}, [5, 6]),
]


@pytest.mark.parametrize(("update", "metadata", "todos"), UPDATES, ids=range(len(UPDATES)))
def test_what_an_update_does(update: StateUpdate, metadata: dict[str, Any], todos: list[int]) -> None:
    before = State(metadata={"a": 1, "b": 2}, todos=(Todo(id=1, content="one"), Todo(id=2, content="two")))
    after = update.apply(before)
    assert (after.metadata, [t.id for t in after.todos]) == (metadata, todos)
    assert (after is before) == (update == StateUpdate())


def test_an_empty_state_is_empty_and_waits_for_nothing() -> None:
    state = State()
    assert (state.messages, state.todos, state.metadata) == ((), (), {})
    assert (state.interrupt, state.agent_id, state.conversation_id, state.pause_reason) == (None, None, None, None)
    assert state.get_metadata("missing", "d") == "d"
    assert State.from_text("").messages == (Message("user", ""),)  # an empty text is legal


REASONS: list[tuple[PendingInterrupt | None, Any]] = [
    (None, None),
    (PendingInterrupt(kind="pause"), None),
    (PendingInterrupt(kind="pause", data={"reason": {"cause": "store_unreachable"}}), {"cause": "store_unreachable"}),
    (PendingInterrupt(kind="question", data={"reason": "none of a pause"}), None),
]


@pytest.mark.parametrize(("interrupt", "reason"), REASONS, ids=range(len(REASONS)))
def test_why_a_run_is_paused_is_read_from_its_interrupt(interrupt: PendingInterrupt | None, reason: Any) -> None:
    state = State(interrupt=interrupt)
    assert state.pause_reason == reason
    with pytest.raises(ValidationError, match="frozen"):
        state.pause_reason = "other"  # type: ignore[misc]


async def test_a_conversation_id_that_is_a_number_arrives_as_one() -> None:
    seen: list[Any] = []

    @tool
    def look(context: ToolContext) -> str:
        "Looks."
        seen.extend([context.conversation_id, context.state.conversation_id])
        return "ok"

    model = ScriptedModel([ToolCall("look"), "done"])
    result = await Agent(model=model, tools=[look]).execute(State.from_text("go", conversation_id=4211))
    assert seen == [4211, 4211]
    assert State.from_json(json.dumps(result.state.to_json())).conversation_id == 4211
    with pytest.raises(ValidationError, match="valid string"):
        State(conversation_id=True)


def result_of(call: str, text: str) -> ToolResult:
    return ToolResult(text, tool_call_id=call, name="look")


LOOKED = State(
    messages=[
        Message("user", "go"),
        Message("assistant", tool_calls=[ToolCall("look", id="a"), ToolCall("look", id="b")]),
        Message("tool", tool_results=[result_of("a", "a1"), result_of("b", "b1")], metadata={"kept": True}),
        Message("assistant", tool_calls=[ToolCall("look", id="b")]),  # some models use an id again
        Message("tool", tool_results=[result_of("b", "b2")]),
        Message("user", "and now?"),
    ]
)


def texts(state: State) -> list[list[str]]:
    return [[result.text for result in message.tool_results] for message in state.messages if message.tool_results]


REPLACED: list[tuple[str, ToolResult, list[list[str]]]] = [
    ("a", ToolResult("new"), [["new", "b1"], ["b2"]]),
    ("b", ToolResult("new"), [["a1", "b1"], ["new"]]),
    ("b", ToolResult("new", tool_call_id="b", name="look"), [["a1", "b1"], ["new"]]),
]


@pytest.mark.parametrize(("call", "result", "after"), REPLACED, ids=range(len(REPLACED)))
def test_a_result_is_replaced_where_the_call_was_answered_last(
    call: str, result: ToolResult, after: list[list[str]]
) -> None:
    changed = LOOKED.replace_tool_result(call, result)
    assert texts(changed) == after
    new = next(r for m in changed.messages for r in m.tool_results if r.text == "new")
    assert (new.tool_call_id, new.name) == (call, "look")
    assert changed.messages[2].metadata == {"kept": True}
    untouched = [n for n, (old, now) in enumerate(zip(LOOKED.messages, changed.messages, strict=True)) if old is now]
    assert len(untouched) == 5
    assert texts(LOOKED) == [["a1", "b1"], ["b2"]]


NOT_REPLACED: list[tuple[State, str, ToolResult, str]] = [
    (LOOKED, "c", ToolResult("x"), "no tool call 'c' has a result in this State; the latest that have: 'a', 'b', 'b'"),
    (State(), "c", ToolResult("x"), "no tool call 'c' has a result in this State; the latest that have: none"),
    (
        State(messages=[Message("tool", tool_results=[result_of("call_17", "x")])]),
        "cal_17",
        ToolResult("x"),
        "(did you mean 'call_17'?)",
    ),
    (LOOKED, "a", result_of("b", "x"), "this is the result of 'b', it cannot replace that of 'a'"),
]


@pytest.mark.parametrize(("state", "call", "result", "words"), NOT_REPLACED, ids=range(len(NOT_REPLACED)))
def test_a_result_that_has_no_place_is_refused_in_words(
    state: State, call: str, result: ToolResult, words: str
) -> None:
    with pytest.raises(ValueError) as caught:
        state.replace_tool_result(call, result)
    assert words in str(caught.value)


def test_reset_keeps_who_it_is_and_nothing_else() -> None:
    state = LOOKED.replace(
        agent_id="a",
        conversation_id="c",
        metadata={"k": 1},
        todos=(Todo(id=1, content="x"),),
        interrupt=PendingInterrupt(kind="pause", data={"reason": "r"}),
    )
    assert state.reset() == State(agent_id="a")


async def test_who_writes_on_instead_of_answering_is_told_so_to_the_model() -> None:
    @tool
    def ask() -> Interrupt:
        "Asks."
        return Interrupt("question", "Which?")

    model = ScriptedModel([ToolCall("ask", id="c"), "fine"])
    agent = Agent(model=model, tools=[ask])
    waiting = (await agent.execute("go")).state
    result = await agent.execute(waiting.add_message("never mind"))
    (said,) = model.requests[1].messages[2].tool_results
    assert "user did not respond" in said.text
    assert "proceed with their new request" in said.text
    assert result.state.interrupt is None


def test_messages_given_instead_are_checked_by_kind() -> None:
    class Noted(Message):
        "A kind of message of somebody's own."

    noted = Noted(role="user", content="x")
    assert State().with_messages([noted]).messages == (noted,)
    assert State().with_messages(iter(LOOKED.messages)).messages == LOOKED.messages
    with pytest.raises(TypeError, match="with_messages got a dict among the messages: {'role': 'user'}"):
        LOOKED.with_messages([*LOOKED.messages, {"role": "user"}])  # type: ignore[list-item]
