"""Events become rows: what people see after each of them."""

from typing import Any

import pytest

from sagents_nb.deltas import TextDelta, ThinkingDelta, ToolCallDelta
from sagents_nb.events import (
    CycleStarted,
    Event,
    MessageAdded,
    ModelDelta,
    ModelEnded,
    ModelStarted,
    RunEnded,
    ToolEnded,
    ToolStarted,
)
from sagents_nb.messages import File, Image, Message, Text, Thinking, ToolCall, ToolResult
from sagents_nb.server.transcript import Transcript

PAY = ToolCall("pay", {"euro": 5}, id="c1")
LOOK = ToolCall("look", {}, id="c2")


def added(message: Message) -> Event:
    return MessageAdded(message=message, cycle=1)


def says(text: str, status: Any = "complete", calls: tuple[ToolCall, ...] = ()) -> Event:
    return added(Message("assistant", text, tool_calls=calls, status=status))


def ended(call: ToolCall, result: ToolResult, **details: Any) -> Event:
    return ToolEnded(call=call, result=result, cycle=1, duration=0.25, **details)


CALLED = says("", calls=(PAY, LOOK))
PAY_CONTENT = {"call_id": "c1", "name": "pay", "arguments": {"euro": 5}, "display_text": None}

TABLE: dict[str, tuple[list[Event], list[tuple[Any, ...]]]] = {
    "text": (
        [says("Hi.")],
        [("assistant", "text", {"text": "Hi."}, "completed", {})],
    ),
    "each part is a row": (
        [
            added(
                Message(
                    "assistant",
                    [
                        Thinking(text="hm"),
                        Thinking(redacted="xyz"),
                        Text("a"),
                        Image(url="http://x/i.png"),
                        Image(data="aGk=", media_type="image/png"),
                        File(name="f.pdf", url="http://x/f.pdf"),
                    ],
                )
            )
        ],
        [
            ("assistant", "thinking", {"text": "hm"}, "completed", {}),
            ("assistant", "text", {"text": "a"}, "completed", {}),
            ("assistant", "image", {"url": "http://x/i.png"}, "completed", {}),
            ("assistant", "image", {"data": "aGk=", "mime_type": "image/png"}, "completed", {}),
            ("assistant", "file_reference", {"path": "http://x/f.pdf", "name": "f.pdf"}, "completed", {}),
        ],
    ),
    "stopped early, marked on the last row only": (
        [added(Message("assistant", ["a", "b"], status="length"))],
        [
            ("assistant", "text", {"text": "a"}, "completed", {}),
            ("assistant", "text", {"text": "b", "stop_reason": "length"}, "completed", {}),
        ],
    ),
    "a message with nothing in it is no row": ([says("", "cancelled")], []),
    "a call waits": (
        [says("", calls=(PAY,))],
        [("assistant", "tool_call", PAY_CONTENT, "pending", {})],
    ),
    "a call runs": (
        [says("", calls=(PAY,)), ToolStarted(call=PAY, cycle=1)],
        [("assistant", "tool_call", PAY_CONTENT, "executing", {})],
    ),
    "a call is answered": (
        [
            says("", calls=(PAY,)),
            ToolStarted(call=PAY, cycle=1),
            ended(PAY, ToolResult("paid", tool_call_id="c1", name="pay"), output="printed\n"),
            added(Message("tool", tool_results=(ToolResult("paid", tool_call_id="c1", name="pay"),))),
        ],
        [
            ("assistant", "tool_call", PAY_CONTENT, "completed", {"duration": 0.25, "output": "printed\n"}),
            (
                "tool",
                "tool_result",
                {"tool_call_id": "c1", "name": "pay", "content": "paid", "is_error": False, "is_interrupt": False},
                "completed",
                {},
            ),
        ],
    ),
    "a call fails": (
        [says("", calls=(PAY,)), ended(PAY, ToolResult("no", is_error=True))],
        [("assistant", "tool_call", PAY_CONTENT, "failed", {"duration": 0.25})],
    ),
    "a call waits for a person": (
        [says("", calls=(PAY,)), ended(PAY, ToolResult("which?", is_interrupt=True)), RunEnded(status="interrupted")],
        [("assistant", "tool_call", PAY_CONTENT, "interrupted", {"duration": 0.25})],
    ),
    "a call that waits for approval stays": (
        [says("", calls=(PAY,)), RunEnded(status="interrupted")],
        [("assistant", "tool_call", PAY_CONTENT, "pending", {})],
    ),
    "a call is stopped": (
        [
            says("", calls=(PAY,)),
            ToolStarted(call=PAY, cycle=1),
            ended(PAY, ToolResult("stopped", is_error=True), cancelled=True),
            RunEnded(status="cancelled"),
        ],
        [
            ("assistant", "tool_call", PAY_CONTENT, "cancelled", {"duration": 0.25}),
            ("system", "notification", {"text": "Stopped.", "stop_reason": "cancelled"}, "completed", {}),
        ],
    ),
    "what ended does not change any more": (
        [
            says("", calls=(PAY,)),
            ended(PAY, ToolResult("paid")),
            ToolStarted(call=PAY, cycle=1),
            ended(PAY, ToolResult("late", is_error=True)),
        ],
        [("assistant", "tool_call", PAY_CONTENT, "completed", {"duration": 0.25})],
    ),
    "the same id again means the new call": (
        [
            says("", calls=(PAY,)),
            ended(PAY, ToolResult("paid")),
            says("", calls=(PAY,)),
            ToolStarted(call=PAY, cycle=2),
        ],
        [
            ("assistant", "tool_call", PAY_CONTENT, "completed", {"duration": 0.25}),
            ("assistant", "tool_call", PAY_CONTENT, "executing", {}),
        ],
    ),
    "a call nobody knows changes nothing": (
        [says("Hi."), ToolStarted(call=LOOK, cycle=1), ended(LOOK, ToolResult("x"))],
        [("assistant", "text", {"text": "Hi."}, "completed", {})],
    ),
    "calls of an answer that was cut off never run": (
        [says("", "length", (PAY,)), RunEnded(status="completed")],
        [("assistant", "tool_call", {**PAY_CONTENT, "stop_reason": "length"}, "cancelled", {})],
    ),
    "an error closes what is open": (
        [
            says("", calls=(PAY,)),
            ToolStarted(call=PAY, cycle=1),
            RunEnded(status="error", error="too often", error_type="exceeded_max_runs"),
        ],
        [
            ("assistant", "tool_call", PAY_CONTENT, "cancelled", {}),
            ("system", "error", {"text": "too often", "error_type": "exceeded_max_runs"}, "completed", {}),
        ],
    ),
    "stopped in the middle of an answer needs no note": (
        [says("Half", "cancelled"), RunEnded(status="cancelled")],
        [("assistant", "text", {"text": "Half", "stop_reason": "cancelled"}, "completed", {})],
    ),
    "a run that went well leaves no note": (
        [says("Hi."), RunEnded(status="completed")],
        [("assistant", "text", {"text": "Hi."}, "completed", {})],
    ),
    "what is not for people": (
        [
            CycleStarted(cycle=1),
            ModelStarted(cycle=1, model="m"),
            ModelDelta(delta=TextDelta("x"), cycle=1),
            ModelEnded(cycle=1, model="m", message=Message("assistant", "x"), duration=0.1),
        ],
        [],
    ),
}


@pytest.mark.parametrize(("events", "expected"), TABLE.values(), ids=TABLE)
def test_events_become_rows(events: list[Event], expected: list[tuple[Any, ...]]) -> None:
    transcript = Transcript("c")
    for event in events:
        transcript.apply(event)
    rows = transcript.rows
    assert [(row.message_type, row.content_type, row.content, row.status, row.metadata) for row in rows] == expected
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    assert {row.conversation_id for row in rows} <= {"c"}


@pytest.mark.parametrize(("events", "expected"), TABLE.values(), ids=TABLE)
def test_what_is_returned_is_exactly_what_changed(events: list[Event], expected: list[tuple[Any, ...]]) -> None:
    transcript = Transcript("c")
    shown: dict[str, Any] = {}
    for event in events:
        before = {row.id: row for row in transcript.rows}
        changed = transcript.apply(event)
        after = {row.id: row for row in transcript.rows}
        assert {row.id: row for row in changed} == {key: row for key, row in after.items() if before.get(key) != row}
        for row in changed:  # a new row has never been changed, a changed one was there
            assert (row.updated_at is None) == (row.id not in before)
        shown |= {row.id: row for row in changed}
    assert list(shown.values()) == list(transcript.rows)
    assert len(shown) == len(expected)


def test_streaming_text_follows_the_deltas_and_ends_with_the_answer() -> None:
    transcript = Transcript("c")
    transcript.apply(ModelStarted(cycle=1, model="m"))
    transcript.apply(ModelDelta(delta=ThinkingDelta("hm"), cycle=1))
    transcript.apply(ModelDelta(delta=TextDelta("a"), cycle=1))
    transcript.apply(ModelDelta(delta=ToolCallDelta(1, "{}", id="c", name="n"), cycle=1))
    transcript.apply(ModelDelta(delta=TextDelta("b"), cycle=1))
    assert (transcript.streaming_thinking, transcript.streaming_text) == ("hm", "ab")
    transcript.apply(ModelStarted(cycle=1, model="m", attempt=2))  # what an earlier attempt said is void
    assert (transcript.streaming_thinking, transcript.streaming_text) == ("", "")
    transcript.apply(ModelDelta(delta=TextDelta("c"), cycle=1, attempt=2))
    transcript.apply(ModelEnded(cycle=1, model="m", message=Message("assistant", "c"), duration=0.1))
    assert transcript.streaming_text == ""


def test_going_on_from_stored_rows() -> None:
    first = Transcript("c")
    first.add_message(Message("user", "hi"))
    first.apply(CALLED)
    first.apply(ended(PAY, ToolResult("paid")))
    second = Transcript("c", first.rows)
    closed = second.close_open_calls()
    assert [(row.content["name"], row.status) for row in closed] == [("look", "cancelled")]
    assert second.close_open_calls() == []
    (row,) = second.add_message(Message("user", "again"))
    assert row.sequence == 4


def test_an_event_costs_the_same_however_long_the_conversation() -> None:
    """Counted, not timed: rows that are looked at when a call starts and ends in a conversation of 5,000 rows."""
    transcript = Transcript("c")
    for number in range(5_000):
        transcript.add_message(Message("user", str(number)))
    transcript.apply(CALLED)
    looked_at = 0

    class Counting(dict[str, Any]):
        def values(self) -> Any:
            nonlocal looked_at
            looked_at += len(self)
            return super().values()

    transcript._rows = Counting(transcript._rows)
    transcript.apply(ToolStarted(call=PAY, cycle=1))
    transcript.apply(ended(PAY, ToolResult("x")))
    transcript.apply(ModelDelta(delta=TextDelta("x"), cycle=1))
    transcript.apply(says("x"))
    transcript.close_open_calls()
    transcript.apply(RunEnded(status="completed"))
    assert looked_at == 0
