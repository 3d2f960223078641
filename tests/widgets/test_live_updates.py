"""What a live view sends, when, and in which order."""

from __future__ import annotations

from typing import Any

from sagents_nb.deltas import TextDelta, ThinkingDelta
from sagents_nb.events import (
    DisplayChanged,
    HookEnded,
    HookStarted,
    ModelDelta,
    ModelEnded,
    ModelStarted,
    QueueChanged,
    RunStarted,
    StatusChanged,
)
from sagents_nb.messages import Message, ToolCall, ToolResult
from sagents_nb.server.display import DisplayMessage, rows_of
from sagents_nb.widgets import ChatView, ContextView, SandwichView, StateView, TraceView, Workbench


def rows(*messages: Message, start: int = 1) -> tuple[DisplayMessage, ...]:
    found: list[DisplayMessage] = []
    for message in messages:
        found += rows_of(message, conversation_id="c", sequence=start + len(found))
    return tuple(found)


def delta(text: str, attempt: int = 1) -> ModelDelta:
    return ModelDelta(delta=TextDelta(text), cycle=1, attempt=attempt)


def streamed(page: Any) -> str:
    return "".join(op["text"] for op in page.ops if op["op"] == "text" and op["key"] == "stream-text")


def test_two_thousand_deltas_become_thirty_messages_a_second(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    session.emit(ModelStarted(cycle=1, model="m"))
    page.messages.clear()
    for number in range(2_000):
        session.emit(delta(f"{number} "))
        clock.advance(0.002)
    clock.advance(1)
    assert streamed(page) == "".join(f"{number} " for number in range(2_000))
    assert len(page.messages) <= 4.0 * 30 + 2
    assert [message["seq"] for message in page.deltas] == list(
        range(page.deltas[0]["seq"], page.deltas[0]["seq"] + len(page.deltas))
    )


def test_everything_else_is_sent_five_times_a_second(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    page.messages.clear()
    for number in range(100):
        session.emit(DisplayChanged(rows=rows(Message("user", f"m{number}"), start=number + 1)))
        clock.advance(0.02)
    clock.advance(1)
    assert len(page.deltas) <= 2.0 * 5 + 2
    assert len([op for op in page.ops if op.get("into") == "rows"]) == 100


def test_the_first_change_does_not_wait(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    page.messages.clear()
    session.emit(DisplayChanged(rows=rows(Message("user", "hi"))))
    clock.advance(0.001)
    assert len(page.deltas) == 1


def test_a_finished_message_takes_the_place_of_its_stream_in_one_delta(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    session.emit(ModelStarted(cycle=1, model="m"), delta("It is **sun"), delta("ny**."))
    clock.advance(1)
    page.messages.clear()
    message = Message("assistant", "It is **sunny**.")
    session.emit(ModelEnded(cycle=1, model="m", message=message, duration=1.0))
    session.emit(DisplayChanged(rows=rows(message)))
    # The next answer begins at once; its text must not be wiped with the old one's.
    session.emit(ModelStarted(cycle=2, model="m"), delta("Next"))
    clock.advance(1)
    kinds = [(op["op"], op["key"].partition(":")[0]) for op in page.ops if "stream" in op["key"] or "row" in op["key"]]
    assert kinds == [("put", "row"), ("put", "stream"), ("text", "stream-text")]
    assert streamed(page) == "Next"
    assert "<strong>sunny</strong>" in page.ops[0]["html"]


def test_a_new_attempt_voids_what_the_failed_one_streamed(session: Any, clock: Any, page: Any) -> None:
    view = ChatView(session)
    page.open(view, "chat")
    session.emit(ModelStarted(cycle=1, model="m"), delta("half an ans"))
    clock.advance(1)
    session.emit(ModelStarted(cycle=1, model="m", attempt=2), delta("whole", attempt=2))
    clock.advance(1)
    page.messages.clear()
    page.say(view, t="resync", n=5, seq=3)
    assert '<div class="sag-plain" data-key="stream-text">whole</div>' in page.messages[-1]["html"]


def test_thoughts_stream_into_their_own_fold(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    session.emit(ModelStarted(cycle=1, model="m"), ModelDelta(delta=ThinkingDelta("hm"), cycle=1))
    clock.advance(1)
    assert {"op": "text", "key": "stream-thinking", "text": "hm"} in page.ops


def test_deltas_of_a_sub_agent_do_not_stream_into_the_parents_answer(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    session.emit(ModelDelta(delta=TextDelta("child"), cycle=1, agent_id="another"))
    clock.advance(1)
    assert streamed(page) == ""


def test_a_result_changes_the_card_of_its_call(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    call = rows(Message("assistant", "", tool_calls=(ToolCall("t", {}, id="c1"),)))
    session.emit(DisplayChanged(rows=call))
    clock.advance(1)
    session.emit(
        DisplayChanged(
            rows=rows(Message("tool", tool_results=(ToolResult("Sunny", tool_call_id="c1", name="t"),)), start=2)
        )
    )
    clock.advance(1)
    first, second = [op for op in page.ops if op["op"] == "put" and op["key"].startswith("row:")]
    assert first["key"] == second["key"]
    assert "waiting" in first["html"]
    assert "Sunny" in second["html"]


def test_the_status_goes_out_with_the_next_frame(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    page.messages.clear()
    session.emit(StatusChanged(status="running"))
    clock.advance(0.034)
    assert {"op": "status", "status": "running"} in page.ops


def test_a_page_that_is_loaded_after_a_run_begins_with_what_was_said(session: Any, clock: Any, page: Any) -> None:
    view = ChatView(session)
    page.open(view, "chat")
    session.emit(DisplayChanged(rows=rows(Message("user", "remember me"))), StatusChanged(status="idle"))
    clock.advance(1)
    assert "remember me" in view._screen.snapshot["html"]
    assert view._screen.snapshot["seq"] == page.deltas[-1]["seq"]


def test_an_error_and_the_queue_are_shown(session: Any, clock: Any, page: Any) -> None:
    page.open(ChatView(session), "chat")
    session.emit(QueueChanged(texts=("and then?",)), StatusChanged(status="error", error="the model is gone"))
    clock.advance(1)
    html = "".join(op.get("html", "") for op in page.ops)
    assert "and then?" in html
    assert "the model is gone" in html


def test_lights_arrive_in_the_order_in_which_things_happened(session: Any, clock: Any, page: Any) -> None:
    page.open(SandwichView(session), "sandwich")
    page.messages.clear()
    session.emit(RunStarted())
    for name, hook in [("A", "before_model"), ("B", "before_model"), ("B", "after_model"), ("A", "after_model")]:
        session.emit(HookStarted(middleware=name, hook=hook, cycle=1))
        session.emit(HookEnded(middleware=name, hook=hook, cycle=1, duration=0.000005))
    clock.advance(1)
    steps = [step for op in page.ops if op["op"] == "lit" for step in op["steps"]]
    assert [cell for cell, on in steps if on] == [
        "before_model:A",
        "before_model:B",
        "after_model:B",
        "after_model:A",
    ]
    assert [on for _, on in steps] == [1, 0] * 4
    assert [op["key"] for op in page.ops if op["op"] == "put" and op["key"].startswith("num:")] == [
        "num:before_model:A",
        "num:before_model:B",
        "num:after_model:B",
        "num:after_model:A",
    ]


def test_changes_of_a_cell_are_computed_when_somebody_opens_it(session: Any, clock: Any, page: Any) -> None:
    view = SandwichView(session)
    page.open(view, "sandwich")
    before = session.state
    ended = HookEnded(
        middleware="A",
        hook="before_model",
        cycle=1,
        duration=0.1,
        changed=True,
        before=before,
        after=before.put_metadata("title", "Oslo"),
    )
    session.emit(ended)
    clock.advance(1)
    assert not [op for op in page.ops if op.get("key") == "body:before_model:A"]
    view.press("cell", cell="before_model:A")
    assert "metadata.title" in page.ops[-1]["html"]
    session.emit(HookEnded(middleware="A", hook="before_model", cycle=2, duration=0.1))
    clock.advance(1)
    assert [op for op in page.ops if op.get("key") == "body:before_model:A"][1:]
    view.press("cell", cell="before_model:A", open=False)
    page.messages.clear()
    session.emit(HookEnded(middleware="A", hook="before_model", cycle=3, duration=0.1))
    clock.advance(1)
    assert not [op for op in page.ops if op.get("key") == "body:before_model:A"]


def test_a_view_that_nobody_sees_sends_nothing(session: Any, clock: Any, page: Any) -> None:
    view = ChatView(session)
    session.emit(DisplayChanged(rows=rows(Message("user", "one"))))
    clock.advance(1)
    assert page.messages == []
    page.open(view, "chat")
    page.show(view)
    page.messages.clear()
    session.emit(DisplayChanged(rows=rows(Message("user", "two"), start=2)), StatusChanged(status="running"))
    clock.advance(1)
    assert page.messages == []
    page.show(view, "chat")
    assert next(op["key"] for op in page.ops if op["op"] == "put") == "pane:chat"
    assert "two" in page.ops[0]["html"]
    assert {"op": "status", "status": "running"} in page.ops


def test_a_hidden_tab_is_drawn_when_somebody_turns_to_it(session: Any, clock: Any, page: Any) -> None:
    view = Workbench(session)
    page.open(view, "chat", "sandwich")
    page.messages.clear()
    session.state = session.state.put_metadata("title", "Oslo")
    session.emit(HookEnded(middleware="A", hook="before_model", cycle=1, duration=0.1))
    clock.advance(1)
    assert "state" not in [op["key"] for op in page.ops if op["op"] == "put"]
    page.show(view, "chat", "state")
    assert "Oslo" in next(op["html"] for op in page.ops if op.get("key") == "pane:state")
    session.state = session.state.put_metadata("title", "Bergen")
    session.emit(HookEnded(middleware="A", hook="before_model", cycle=2, duration=0.1))
    clock.advance(1)
    assert "Bergen" in next(op["html"] for op in page.ops if op.get("key") == "state")


def test_a_page_that_is_gone_is_forgotten_when_another_one_comes(session: Any, clock: Any, page: Any) -> None:
    view = ChatView(session)
    page.open(view, "chat")
    page.say(view, t="hello", n=0)
    assert page.messages[-1] == {"t": "roll"}
    page.messages.clear()
    session.emit(StatusChanged(status="running"))
    clock.advance(1)
    assert page.messages == []


def test_a_gap_is_answered_with_everything(session: Any, clock: Any, page: Any) -> None:
    view = ChatView(session)
    page.open(view, "chat")
    session.emit(DisplayChanged(rows=rows(Message("user", "lost on the way"))))
    clock.advance(1)
    last = page.deltas[-1]["seq"]
    page.say(view, t="resync", n=9, seq=last - 1)
    snapshot = page.messages[-1]
    assert snapshot["t"] == "snapshot"
    assert snapshot["seq"] == last + 1
    assert "lost on the way" in snapshot["html"]


def test_events_that_the_snapshot_already_has_count_once(session: Any, page: Any) -> None:
    event = HookEnded(middleware="A", hook="before_model", cycle=1, duration=0.1)
    session.emit(event)
    session.events.append(event)
    view = SandwichView(session)
    session.subscribers[0](event)
    page.open(view, "sandwich")
    assert page.messages[1]["html"].count('class="sag-runs" title="ran 1 time"') == 1


def test_older_rows_come_when_asked_for_and_go_to_the_top(session: Any, page: Any) -> None:
    session.display_messages = rows(*[Message("user", f"m{number}") for number in range(500)])
    view = ChatView(session)
    page.open(view, "chat")
    assert "Show earlier (300)" in page.messages[1]["html"]
    page.messages.clear()
    view.press("earlier")
    puts = [op for op in page.ops if op.get("into") == "rows"]
    assert len(puts) == 100
    assert all(op["first"] for op in puts)
    assert "m299" in puts[0]["html"]
    assert "m200" in puts[-1]["html"]
    assert "Show earlier (200)" in page.ops[-1]["html"]


def test_the_trace_grows_by_lines(session: Any, clock: Any, page: Any) -> None:
    page.open(TraceView(session), "trace")
    session.emit(RunStarted())
    clock.advance(1)
    page.messages.clear()
    session.emit(HookEnded(middleware="A", hook="before_model", cycle=1, duration=0.1))
    clock.advance(1)
    assert [(op["op"], op["into"]) for op in page.ops] == [("put", "trace-rows")]


def test_what_cannot_be_drawn_is_said_in_the_view_and_the_rest_goes_on(
    session: Any, clock: Any, page: Any, monkeypatch: Any
) -> None:
    page.open(StateView(session), "state")
    monkeypatch.setattr("sagents_nb.widgets.panes.state_fragment", lambda _state: 1 / 0)
    session.emit(HookEnded(middleware="A", hook="before_model", cycle=1, duration=0.1))
    clock.advance(1)
    assert "ZeroDivisionError" in page.ops[-1]["html"]
    monkeypatch.undo()
    assert session.subscribers


def test_values_of_scope_and_tool_context_are_sent_live_only(session: Any, page: Any) -> None:
    view = ContextView(session)
    page.open(view)
    kept = [view.html(), str(view._screen.snapshot), str(page.messages), repr(view), str(view._repr_mimebundle_())]
    assert not [text for text in kept if "SECRET" in text]
    page.show(view, "context")
    assert "SCOPE-SECRET" in str(page.ops)
    assert "CONTEXT-SECRET" in str(page.ops)
    page.say(view, t="resync", n=9, seq=0)
    assert "SECRET" not in str(page.messages[-1])
    assert "SECRET" not in str(view._screen.snapshot)
