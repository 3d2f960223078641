"""Any history, cut or edited anywhere, is one that a provider takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb import Agent, Message, Middleware, ScriptedModel, State, ToolCall, ToolResult, tool
from sagents_nb.events import HistoryRepaired
from sagents_nb.execution import model_call
from sagents_nb.execution.repair import HistoryKeeper, repair_history

IDS = st.sampled_from(["c1", "c2", "c3"])
CALLS = st.lists(IDS, max_size=3, unique=True).map(lambda ids: tuple(ToolCall("ping", id=i) for i in ids))
RESULTS = st.lists(IDS, max_size=4).map(lambda ids: tuple(ToolResult("r", tool_call_id=i, name="ping") for i in ids))
MESSAGES = st.one_of(
    st.just(Message("user", "u")),
    st.builds(lambda calls: Message("assistant", "a", tool_calls=calls), CALLS),
    st.builds(lambda results: Message("tool", tool_results=results), RESULTS),
)
HISTORIES = st.lists(MESSAGES, max_size=8).map(tuple)


def is_valid(messages: tuple[Message, ...]) -> bool:
    """Each call has exactly one result, in call order, in the very next message; no result is without its call."""
    for place, message in enumerate(messages):
        before = messages[place - 1] if place else None
        following = messages[place + 1] if place + 1 < len(messages) else None
        wanted = [call.id for call in message.tool_calls]
        if wanted and (
            following is None
            or following.role != "tool"
            or [result.tool_call_id for result in following.tool_results] != wanted
        ):
            return False
        if message.role == "tool" and (before is None or not before.tool_calls):
            return False
    return True


@given(HISTORIES)
@settings(max_examples=300, deadline=None)
def test_every_history_is_valid_after_repair_and_repairing_twice_changes_nothing(history: tuple[Message, ...]) -> None:
    repaired, repairs = repair_history(history)
    assert is_valid(repaired)
    assert [m for m in repaired if m.role != "tool"] == [m for m in history if m.role != "tool"]
    again, nothing = repair_history(repaired)
    assert again is repaired
    assert nothing == ()
    if is_valid(history):
        assert repaired is history
    else:
        assert repairs


@given(st.lists(HISTORIES, min_size=1, max_size=4), st.data())
@settings(max_examples=200, deadline=None)
def test_remembering_what_was_right_gives_the_same_as_looking_at_everything(
    parts: list[Any], data: st.DataObject
) -> None:
    keeper = HistoryKeeper()
    history: tuple[Message, ...] = ()
    for part in parts:
        history = history[: data.draw(st.integers(0, len(history)))] + part  # cut somewhere, then go on
        checked, _ = keeper.check(history)
        assert checked == repair_history(history)[0]
        history = checked


@tool
async def ping() -> str:
    "Pong."
    return "pong"


DANGLING = State(
    messages=(
        Message("user", "go"),
        Message("assistant", "", tool_calls=[ToolCall("ping", id="c1"), ToolCall("ping", id="c2")]),
        Message("tool", tool_results=[ToolResult("pong", tool_call_id="c2", name="ping")]),
        Message("user", "never mind"),
        Message("tool", tool_results=[ToolResult("lost", tool_call_id="c9", name="gone")]),
    )
)


async def what_the_model_is_sent(**options: Any) -> tuple[Message, ...]:
    model = ScriptedModel(["fine"])
    result = await Agent(model=model, tools=[ping], **options).execute(DANGLING.add_message("go on"))
    told = [event for event in result.events if isinstance(event, HistoryRepaired)]
    assert told
    assert told[0].repairs == (
        "put in a result for ping (c1), which had none",
        "left out results without a call: gone",
    )
    return model.requests[0].messages


async def test_a_dangling_call_is_mended_before_the_model_is_asked_and_the_state_keeps_it() -> None:
    sent = await what_the_model_is_sent()
    assert is_valid(sent)
    assert [(r.tool_call_id, r.is_error) for r in sent[2].tool_results] == [("c1", True), ("c2", False)]


async def test_without_repair_the_model_would_be_sent_a_broken_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HistoryKeeper, "check", lambda self, messages: (messages, ()))
    monkeypatch.setattr(model_call, "repair_history", lambda messages: (messages, ()))
    model = ScriptedModel(["fine"])
    await Agent(model=model, tools=[ping]).execute(DANGLING.add_message("go on"))
    assert not is_valid(model.requests[0].messages)


class Rewrites(Middleware):
    """Breaks the history at the last moment."""

    async def wrap_model_call(self, request: Any, call_next: Any) -> Message:
        broken = tuple(message for message in request.messages if message.role != "tool")
        message: Message = await call_next(request.replace(messages=broken))
        return message


async def sent_through_the_door() -> tuple[Message, ...]:
    model = ScriptedModel([ToolCall("ping"), "done"])
    await Agent(model=model, tools=[ping], middleware=[Rewrites()]).execute("go")
    return model.requests[1].messages


async def test_whatever_wrap_hooks_do_what_is_really_sent_is_right() -> None:
    assert is_valid(await sent_through_the_door())


async def test_without_the_door_it_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "repair_history", lambda messages: (messages, ()))
    assert not is_valid(await sent_through_the_door())
