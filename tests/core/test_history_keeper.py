"""Repair at the cost of what is new gives exactly what repair of everything gives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb import Agent, Message, ScriptedModel, State, ToolCall, ToolResult
from sagents_nb.execution import repair
from sagents_nb.execution.repair import HistoryKeeper, repair_history

IDS = st.sampled_from(["c1", "c2", "c3"])
TEXTS = st.sampled_from(["a", "b", ""])
MESSAGES = st.one_of(
    st.builds(lambda text: Message("user", text), TEXTS),
    st.builds(lambda text: Message("system", text), TEXTS),
    st.builds(
        lambda text, ids, status: Message(
            "assistant", text, tool_calls=[ToolCall("t", id=i) for i in ids], status=status
        ),
        *(TEXTS, st.lists(IDS, max_size=3), st.sampled_from(["complete", "cancelled", "length"])),
    ),
    st.builds(
        lambda ids, said, meta: Message(
            "tool", tool_results=[ToolResult(said, tool_call_id=i, name="t") for i in ids], metadata=meta
        ),
        *(st.lists(IDS, max_size=4), TEXTS, st.sampled_from([{}, {"k": 1}])),
    ),
)
HISTORIES = st.lists(MESSAGES, max_size=8).map(tuple)


def broken_rules(messages: tuple[Message, ...]) -> list[str]:
    """What a provider would refuse, written from the provider's side: nothing of the code under test is used."""
    rules = []
    waiting: list[str] = []
    for message in messages:
        if waiting and message.role != "tool":
            rules.append(f"calls {waiting} without a result right after them")
        if message.role == "tool":
            given = [result.tool_call_id for result in message.tool_results]
            if not waiting or given != waiting:
                rules.append(f"results {given} for calls {waiting}")
            waiting = []
        else:
            waiting = [call.id for call in message.tool_calls]
    return [*rules, *([f"calls {waiting} at the end"] if waiting else [])]


def mended(history: tuple[Message, ...]) -> None:
    repaired, repairs = repair_history(history)
    assert broken_rules(repaired) == []
    assert bool(repairs) == bool(broken_rules(history) or repaired != history)
    if not broken_rules(history):
        assert repaired is history
    assert repair_history(repaired) == (repaired, ())
    assert repair_history(repaired)[0] is repaired
    kept = [m for m in history if m.role != "tool"]
    assert [m for m in repaired if m.role != "tool"] == kept
    assert all(any(m is old for old in history) for m in repaired if m.role != "tool")
    # What a tool answered is not lost as long as its call is there.
    for before, message in pairwise(repaired):
        for result in message.tool_results:
            assert result.is_error or any(result is old for m in history for old in m.tool_results), before


@given(HISTORIES, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_any_history_cut_doubled_or_shuffled_is_valid_after_repair(history: tuple[Message, ...], random: Any) -> None:
    mended(history)
    mended(history[: len(history) // 2])
    mended(history + history)
    mended(tuple(random.sample(history, len(history))))


EDITS = st.sampled_from(["grow", "cut", "drop", "replace", "insert", "swap", "fresh"])


def edited(history: tuple[Message, ...], how: str, part: tuple[Message, ...], place: int) -> tuple[Message, ...]:
    at = place % (len(history) + 1)
    match how:
        case "grow":
            return history + part
        case "cut":
            return history[:at]
        case "drop":
            return history[:at] + history[at + 1 :]
        case "replace":
            return history[:at] + part[:1] + history[at + 1 :]
        case "insert":
            return history[:at] + part + history[at:]
        case "swap":
            return history[at:] + history[:at]
        case _:
            return part


@given(st.lists(st.tuples(EDITS, HISTORIES, st.integers(0, 20)), min_size=1, max_size=8))
@settings(max_examples=80, deadline=None)
def test_remembering_gives_what_looking_at_everything_gives(steps: list[tuple[str, tuple[Message, ...], int]]) -> None:
    keeper = HistoryKeeper()
    history: tuple[Message, ...] = ()
    for how, part, place in steps:
        history = edited(history, how, part, place)
        checked, repairs = keeper.check(history)
        assert checked == repair_history(history)[0]
        assert bool(repairs) == bool(repair_history(history)[1])
        history = checked


def test_a_second_tool_message_after_a_finished_turn_is_seen() -> None:
    turn = (
        Message("user", "go"),
        Message("assistant", "", tool_calls=[ToolCall("t", id="c1")]),
        Message("tool", tool_results=[ToolResult("r", tool_call_id="c1", name="t")]),
    )
    following = (Message("assistant", "", tool_calls=[ToolCall("t", id="c2")]),)
    keeper = HistoryKeeper()
    keeper.check(turn + following)  # the first turn is now known to be right
    spare = Message("tool", tool_results=[ToolResult("again", tool_call_id="c1", name="t")])
    assert keeper.check((*turn, spare)) == repair_history((*turn, spare))


def test_a_long_history_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = (Message("user", "x"), Message("assistant", "y"))
    looked: list[int] = []

    def counting(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        looked.append(len(messages))
        return repair_history(messages)

    keeper = HistoryKeeper()
    monkeypatch.setattr("sagents_nb.execution.repair.repair_history", counting)
    keeper.check(turn * 400)
    keeper.check((*turn * 400, *turn))
    assert looked == [800, 2]


@pytest.mark.parametrize("conversation_id", [None, "c"])
async def test_from_run_to_run_only_what_is_new_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, conversation_id: str | None
) -> None:
    looked = []

    def look(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        looked.append(len(messages))
        return repair_history(messages)

    monkeypatch.setattr(repair, "repair_history", look)
    agent = Agent(model=ScriptedModel(["yes"], repeat=True))
    state = State(conversation_id=conversation_id)
    for _ in range(50):
        state = (await agent.execute(state.add_message("and?"))).state
    assert max(looked) <= 2


WORDS: list[tuple[tuple[Message, ...], tuple[str, ...]]] = [
    ((), ()),
    ((Message("user", "x"),), ()),
    (
        (Message("assistant", "", tool_calls=[ToolCall("pay", id="c1")]),),
        ("put in a result for pay (c1), which had none",),
    ),
    ((Message("tool"),), ("left out results without a call: an empty tool message",)),
    (
        (Message("tool", tool_results=[ToolResult("r", tool_call_id="c1")]),),
        ("left out results without a call: c1",),
    ),
    (
        (
            Message("assistant", "", tool_calls=[ToolCall("a", id="1"), ToolCall("b", id="2")]),
            Message("tool", tool_results=[ToolResult("r", tool_call_id=i) for i in ("2", "1")]),
        ),
        ("put results in the order of their calls",),
    ),
    (
        (
            Message("assistant", "", tool_calls=[ToolCall("a", id="1"), ToolCall("b", id="2")]),
            Message("tool", tool_results=[ToolResult("r", tool_call_id="1", name="a")]),
            Message(
                "tool", tool_results=[ToolResult("r", tool_call_id="2"), ToolResult("r", tool_call_id="1", name="a")]
            ),
        ),
        ("left out results without a call: a", "gathered the results of 2 tool messages in one"),
    ),
]


@pytest.mark.parametrize(("history", "repairs"), WORDS, ids=range(len(WORDS)))
def test_each_repair_is_told_in_a_sentence(history: tuple[Message, ...], repairs: tuple[str, ...]) -> None:
    assert repair_history(history)[1] == repairs
