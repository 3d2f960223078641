from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from sagents_nb.deltas import TextDelta
from sagents_nb.errors import StoreError
from sagents_nb.events import HookEnded, ModelDelta, ModelEnded, RunEnded, ToolEnded
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage
from sagents_nb.server.persistence import MemoryPersistence, Persistence
from sagents_nb.state import State
from sagents_nb.store import Store, Turn
from sagents_nb.todos import Todo
from tests.store.support import output, published, row, state, texts

EVERYTHING = State(
    messages=(
        Message("user", [Text("look"), Image(url="https://example.org/a.png")]),
        Message(
            "assistant",
            [Thinking(text="hm", signature="s"), Text("I look")],
            tool_calls=(ToolCall("look", {"at": [1, 2.5, None, True]}, id="call_1"),),
            usage=Usage(input_tokens=3, output_tokens=4),
            metadata={"model": "m"},
        ),
        Message("tool", tool_results=(ToolResult("seen", tool_call_id="call_1", name="look", is_error=True),)),
        Message("assistant", "half a sen", status="cancelled"),
    ),
    todos=(Todo(id=1, content="look", status="completed"),),
    metadata={"deep": {"er": [1, {"x": "é"}]}},
    interrupt=PendingInterrupt(id="i", kind="question", message="Sure?", data={"options": ["y", "n"]}),
    agent_id="agent",
    conversation_id="c",
)


def test_a_state_comes_back_as_it_was(store: Store) -> None:
    assert store.save_turn(None, Turn("c", state=EVERYTHING)).result() == 1
    assert store.load_state(None, "c") == EVERYTHING
    assert store.load_state(None, {"conversation_id": "c"}).to_json() == EVERYTHING.to_json()


def test_a_turn_comes_back_with_rows_events_and_title(store: Store) -> None:
    one, two = row("c", 1, "hello"), row("c", 2, content_type="tool_call", content={"name": "look"}, status="pending")
    ended = RunEnded(status="completed", seq=2, at=2.0, run_id="r", duration=0.5)
    first = Turn("c", state=state("hello"), added=(one, two), events=(published(1, x=1), ended), title="Greeting")
    assert store.save_turn(None, first).result() == 1
    found = store.load_conversation(None, "c").result()
    assert found is not None
    assert (found.conversation_id, found.title, found.revision, found.last_event_seq) == ("c", "Greeting", 1, 2)
    assert found.display_messages == (one, two)
    assert store.events(None, "c") == [
        {
            "type": "published",
            "run_id": "",
            "agent_id": "",
            "at": 1.0,
            "seq": 1,
            "source": "a tool",
            "name": "note",
            "data": {"x": 1},
        },
        {
            "type": "run_ended",
            "run_id": "r",
            "agent_id": "",
            "at": 2.0,
            "seq": 2,
            "status": "completed",
            "error": None,
            "error_type": None,
            "duration": 0.5,
        },
    ]
    assert store.sql("SELECT seq, run_id, type, status, duration, happened_at FROM events ORDER BY seq").fetchall() == [
        (1, None, "published", None, None, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
        (2, "r", "run_ended", "completed", 0.5, dt.datetime(1970, 1, 1, 0, 0, 2, tzinfo=dt.UTC)),
    ]


def test_a_changed_row_changes_status_content_and_metadata_only(store: Store) -> None:
    call = row("c", 1, content_type="tool_call", content={"name": "look"}, status="executing")
    store.save_turn(None, Turn("c", added=(call, row("c", 2, "other")))).result()
    done = call.replace(status="completed", metadata={"duration": 2}, updated_at=dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    store.save_turn(None, Turn("c", changed=(done,))).result()
    rows = store.display_messages(None, "c")
    assert rows[0] == done
    assert (rows[1].status, rows[1].updated_at) == ("completed", None)


def test_pages_of_the_transcript(store: Store) -> None:
    store.save_turn(None, Turn("c", added=tuple(row("c", n, f"line {n}") for n in range(1, 451)))).result()
    assert [shown.sequence for shown in store.display_messages(None, "c")] == list(range(1, 451))
    assert [shown.text for shown in store.display_messages(None, "c", limit=2)] == ["line 449", "line 450"]
    assert [shown.sequence for shown in store.display_messages(None, "c", limit=2, before=449)] == [447, 448]
    assert store.display_messages(None, "c", before=1) == []


def test_pieces_of_an_answer_are_not_stored(store: Store) -> None:
    piece = ModelDelta(delta=TextDelta(text="h", index=0), cycle=1, seq=1)
    store.save_turn(None, Turn("c", events=(piece, published(2)))).result()
    assert [event["seq"] for event in store.events(None, "c")] == [2]


def test_the_index_of_conversations_is_newest_first(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.save_turn(None, Turn(name, state=state("1", "2"), title=name.upper())).result()
    store.save_turn(None, Turn("a", state=state("1", "2", "3"))).result()
    store.rename_conversation(None, "b", "Bee")
    store.delete_conversation(None, "c")
    found = [(card.conversation_id, card.title, card.revision, card.messages) for card in store.conversations()]
    assert found == [("b", "Bee", 1, 2), ("a", "A", 2, 3)]
    store.save_turn(None, Turn("a")).result()
    store.rename_conversation(None, "b", "Bee")  # that changes nothing
    assert [card.conversation_id for card in store.conversations()] == ["a", "b"]


def test_a_deleted_conversation_leaves_nothing_and_may_begin_again(store: Store) -> None:
    turn = Turn("c", state=state("1"), added=(row("c", 1),), events=(published(),))
    store.save_turn(None, turn).result()
    store.delete_conversation(None, "c")
    for table in ("conversations", "state_log", "display_messages", "events"):
        assert store.sql(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert store.load_conversation(None, "c").result() is None
    assert store.save_turn(None, Turn("c", state=state("new"))).result() == 1
    assert texts(store.load_state(None, "c")) == ["new"]


def test_what_does_not_exist_is_said(store: Store) -> None:
    store.save_turn(None, Turn("c", state=state("1"))).result()
    for call in (
        lambda: store.load_state(None, "nope"),
        lambda: store.fork(None, "nope"),
        lambda: store.rename_conversation(None, "nope", "x"),
        lambda: store.delete_conversation(None, "nope"),
    ):
        with pytest.raises(StoreError, match="there is no conversation 'nope'") as caught:
            call()
        assert isinstance(caught.value, LookupError)
    for revision in (0, 2, -1):
        with pytest.raises(StoreError, match=f"has no revision {revision}, only 1 to 1"):
            store.load_state(None, "c", revision=revision)


def test_a_file_opened_again_holds_the_same(path: Path) -> None:
    with Store(path) as store:
        shown = row("c", 1)
        store.save_turn(None, Turn("c", state=EVERYTHING, added=(shown,), title="T", events=(published(),))).result()
    with Store(path) as again:
        assert again is not store
        found = again.load_conversation(None, "c").result()
        assert found is not None
        assert (found.state, found.display_messages, found.title) == (EVERYTHING, (shown,), "T")
        assert again.save_turn(None, Turn("c", state=EVERYTHING.add_message("more"))).result() == 2
        assert [(item.messages, item.added) for item in again.history(None, "c")] == [(4, 4), (5, 1)]


def test_another_process_reads_the_same(path: Path) -> None:
    with Store(path) as store:
        store.save_turn(None, Turn("c", state=EVERYTHING)).result()
    code = (
        "import sys, json; from sagents_nb.store import Store\n"
        "with Store(sys.argv[1]) as store: print(json.dumps(store.load_state(None, 'c').to_json()))"
    )
    assert json.loads(output(code, path)) == EVERYTHING.to_json()


def test_a_store_in_memory_and_the_twin_without_a_database_say_the_same() -> None:
    with Store.memory() as store:
        twins: tuple[Persistence, ...] = (store, MemoryPersistence())
        first, second = row("c", 1), row("c", 2, status="pending")
        found = []
        for persistence in twins:
            turn = Turn("c", state=EVERYTHING, added=(first, second), events=(published(7),), title="T")
            revisions = [persistence.save_turn(None, turn).result()]
            changed = second.replace(status="completed", updated_at=dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
            revisions.append(persistence.save_turn(None, Turn("c", changed=(changed,))).result())
            revisions.append(persistence.save_turn(None, Turn("c", state=state("x"))).result())
            found.append((revisions, persistence.load_conversation(None, "c").result()))
            assert persistence.load_conversation(None, "d").result() is None
        assert found[0] == found[1]
        assert found[0][0] == [1, 1, 2]
        assert repr(store) == "Store(in memory)"


def test_a_changed_row_that_is_not_there_is_added(store: Store) -> None:
    shown = row("c", 1, "hello")
    store.save_turn(None, Turn("c", added=(shown,))).result()
    store.delete_conversation(None, "c")
    store.save_turn(None, Turn("c", changed=(shown.replace(status="completed"),))).result()
    assert [found.text for found in store.display_messages(None, "c")] == ["hello"]


def test_a_row_that_is_added_twice_is_there_once(store: Store) -> None:
    shown = row("c", 1, "hello")
    store.save_turn(None, Turn("c", added=(shown,))).result()
    store.save_turn(None, Turn("c", added=(shown.replace(content={"text": "hello!"}), row("c", 2, "two")))).result()
    assert [found.text for found in store.display_messages(None, "c")] == ["hello!", "two"]
    assert store.conversations()[0].rows == 2


def test_the_transcript_of_a_fork_ends_where_its_state_does(store: Store) -> None:
    store.save_turn(None, Turn("c", state=state("1"), added=(row("c", 1, "1"),))).result()
    store.save_turn(None, Turn("c", state=state("1", "2"), added=(row("c", 2, "2"),), events=(published(),))).result()
    new = store.fork(None, "c", 1)
    assert [found.text for found in store.display_messages(None, new)] == ["1"]
    assert store.events(None, new) == []
    store.save_turn(None, Turn(new, state=state("1", "x"), added=(row(new, 2, "x"),))).result()
    store.delete_conversation(None, "c")
    found = store.load_conversation(None, new).result()
    assert found is not None
    assert (texts(found.state), [shown.text for shown in found.display_messages]) == (["1", "x"], ["1", "x"])
    assert store.conversations()[0].forked_from == "c"


def test_the_interrupt_of_a_fork_may_be_answered_again(store: Store) -> None:
    store.save_turn(None, Turn("c", state=EVERYTHING)).result()
    forked = store.load_state(None, store.fork(None, "c")).interrupt
    assert forked is not None
    assert forked.id != "i"
    assert forked.replace(id="i") == EVERYTHING.interrupt
    assert store.conversations()[0].interrupt == "question"


def test_columns_that_people_filter_by(store: Store) -> None:
    call = ToolCall("look", {"at": 1}, id="call_1")
    answer = Message("assistant", "I look", usage=Usage(input_tokens=3, output_tokens=4))
    events = (
        HookEnded(middleware="M", hook="before_model", cycle=1, duration=0.5, changed=True, seq=1),
        ModelEnded(model="m", message=answer, cycle=1, duration=1.5, seq=2),
        ToolEnded(call=call, result=ToolResult("seen"), cycle=1, duration=2.5, seq=3),
    )
    store.save_turn(None, Turn("c", events=events)).result()
    found = store.sql(
        "SELECT seq, middleware, hook, cycle, model, tool_name, tool_call_id, duration, changed, input_tokens, "
        "output_tokens FROM events ORDER BY seq"
    )
    assert found.fetchall() == [
        (1, "M", "before_model", 1, None, None, None, 0.5, True, None, None),
        (2, None, None, 1, "m", None, None, 1.5, None, 3, 4),
        (3, None, None, 1, None, "look", "call_1", 2.5, None, None, None),
    ]


@pytest.mark.parametrize(("name", "value"), [("limit", -1), ("limit", True), ("before", "3"), ("limit", 1.5)])
def test_a_page_that_is_no_number(store: Store, name: str, value: Any) -> None:
    with pytest.raises(StoreError, match=f"^{name}={value!r} is no number from 0"):
        store.display_messages(None, "c", **{name: value})


@pytest.mark.parametrize("name", ["", None, 7])
def test_an_id_that_is_no_text(store: Store, name: Any) -> None:
    with pytest.raises(StoreError, match="is no conversation id"):
        store.save_turn(None, Turn(name)).result()
    with pytest.raises(StoreError, match="is no conversation id"):
        store.load_conversation(None, name)


def test_a_title_that_is_too_long_or_blank(store: Store) -> None:
    with pytest.raises(StoreError, match="the title has 256 characters; give it at most 255"):
        store.save_turn(None, Turn("c", title="x" * 256)).result()
    store.save_turn(None, Turn("c", title="  T ")).result()
    assert store.conversations()[0].title == "T"
    store.rename_conversation(None, "c", " ")
    assert store.conversations()[0].title is None


def test_lists_are_shown_as_tables(store: Store) -> None:
    store.save_turn(None, Turn("c", state=state("1"), added=(row("c", 1, "<b>"),), title="<i>")).result()
    assert "<td>&lt;i&gt;</td>" in store.conversations()._repr_mimebundle_()["text/html"]
    assert "<td>&lt;b&gt;</td>" in store.display_messages(None, "c")._repr_mimebundle_()["text/html"]
    assert store.history(None, "c")._repr_mimebundle_()["text/plain"].startswith("revision | inserted_at")
