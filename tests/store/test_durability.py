from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import duckdb
import pytest

from sagents_nb.errors import StoreError
from sagents_nb.store import Store, Turn, engine
from sagents_nb.store.engine import Engine, Transaction
from sagents_nb.store.turns import TurnWriter
from tests.store.support import bad_turn, published, python, row, state, texts, writer_held

WRITE = """
import sys, time
from sagents_nb.store import Store, Turn
from sagents_nb.store.engine import Engine
from tests.store.support import published, row, state
if sys.argv[3] == "early":
    def early(self, transaction, batch):
        transaction.cursor.begin()
        for operation in batch:
            operation.done.set_result(operation.write(transaction, operation.prepared))
        time.sleep(60)
    Engine._commit = early
store = Store(sys.argv[1])
now = state(*(str(n) for n in range(1, int(sys.argv[2]))))
for n in range(int(sys.argv[2]), 100_000):
    now = now.add_message(str(n))
    turn = Turn("c", state=now, added=(row("c", n, str(n)),), events=(published(n, n=n),))
    print(store.save_turn(None, turn).result(), flush=True)
"""


def _killed(path: Path, first: int, seconds: float, how: str = "late") -> int:
    """Kill a process that writes one turn after the other; the last turn that was acknowledged."""
    with python(WRITE, path, first, how) as process:
        assert process.stdout is not None
        last = int(process.stdout.readline())
        time.sleep(seconds)
        process.kill()
        lines = process.stdout.read().split("\n")
    whole = [int(line) for line in lines[:-1]]
    return whole[-1] if whole else last


def test_what_was_acknowledged_survives_kill_9(path: Path) -> None:
    first = 1
    for seconds in (0.0, random.uniform(0.05, 0.3), random.uniform(0.2, 0.8)):
        acknowledged = _killed(path, first, seconds)
        assert acknowledged >= first
        with Store(path) as store:
            found = store.load_conversation(None, "c").result()
            assert found is not None
            # One more may have been written whose acknowledgement was not read any more; never half of one.
            assert found.revision in (acknowledged, acknowledged + 1)
            wanted = [str(n) for n in range(1, found.revision + 1)]
            assert texts(found.state) == wanted
            assert [shown.text for shown in found.display_messages] == wanted
            assert found.last_event_seq == found.revision
            first = found.revision + 1


def test_a_turn_acknowledged_before_its_commit_would_be_lost(path: Path) -> None:
    acknowledged = _killed(path, 1, 0.0, "early")
    assert acknowledged == 1
    with Store(path) as store:
        assert store.load_conversation(None, "c").result() is None


def test_a_failed_turn_leaves_the_rest_of_its_group(store: Store) -> None:
    first = state("1")
    with writer_held(store):
        good = store.save_turn(None, Turn("good", state=first, added=(row("good", 1),)))
        bad = store.save_turn(None, bad_turn("bad"))
        after = store.save_turn(None, Turn("good", state=first.add_message("2")))
    assert (good.result(), after.result()) == (1, 2)
    with pytest.raises(StoreError, match=r"^event 1\['data'\]\['number'\] is nan, which JSON cannot hold"):
        bad.result()
    assert store.load_conversation(None, "bad").result() is None
    assert texts(store.load_state(None, "good")) == ["1", "2"]
    assert [(item.revision, item.added) for item in store.history(None, "good")] == [(1, 1), (2, 1)]


def test_after_a_failed_turn_the_next_save_is_right(store: Store) -> None:
    first = state("1", "2")
    store.save_turn(None, Turn("c", state=first)).result()
    with pytest.raises(StoreError):
        store.save_turn(None, Turn("c", state=first.add_message("lost"), events=(published(n=object()),))).result()
    assert store.save_turn(None, Turn("c", state=first.add_message("3"))).result() == 2
    assert texts(store.load_state(None, "c")) == ["1", "2", "3"]
    assert store.events(None, "c") == []


def odd_turn(conversation_id: str) -> Turn:
    """A turn that only the database refuses, in the middle of a transaction."""
    return Turn(
        conversation_id, state=state("bad"), added=(row(conversation_id, 1).model_copy(update={"status": "odd"}),)
    )


def test_a_turn_that_the_database_refuses_leaves_the_rest_of_its_group(store: Store) -> None:
    first = state("1")
    with writer_held(store):
        good = store.save_turn(None, Turn("c", state=first, added=(row("c", 1),)))
        bad = store.save_turn(None, odd_turn("c"))
        after = store.save_turn(None, Turn("c", state=first.add_message("2"), added=(row("c", 2),)))
    assert (good.result(), after.result()) == (1, 2)
    with pytest.raises(StoreError, match="CHECK constraint failed"):
        bad.result()
    assert texts(store.load_state(None, "c")) == ["1", "2"]
    assert [shown.sequence for shown in store.display_messages(None, "c")] == [1, 2]
    assert [(item.revision, item.added) for item in store.history(None, "c")] == [(1, 1), (2, 1)]


def test_without_forgetting_what_was_undone_the_history_breaks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TurnWriter, "undone", lambda _self: None)
    with Store(path) as store:
        with writer_held(store):
            good = store.save_turn(None, Turn("good", state=state("1")))
            bad = store.save_turn(None, odd_turn("bad"))
        assert good.result() == 2  # of a conversation that has one
        with pytest.raises(StoreError):
            bad.result()
        assert [item.revision for item in store.history(None, "good")] == [2]


def test_without_isolation_the_failed_turn_takes_the_others_along(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def together(self: Engine, transaction: Transaction, batch: list[engine._Write]) -> None:
        transaction.cursor.begin()
        try:
            results = [operation.write(transaction, operation.prepared) for operation in batch]
            self._keeper.finish(transaction)
            transaction.flush()
        except Exception as error:
            transaction.cursor.rollback()
            transaction.undo()
            self._keeper.undone()
            for operation in batch:
                operation.done.set_exception(error)
            return
        transaction.cursor.commit()
        self._keeper.committed()
        for operation, result in zip(batch, results, strict=True):
            operation.done.set_result(result)

    monkeypatch.setattr(Engine, "_commit", together)
    with writer_held(store):
        good = store.save_turn(None, Turn("good", state=state("1")))
        store.save_turn(None, odd_turn("bad"))
    with pytest.raises(duckdb.ConstraintException, match="CHECK constraint failed"):
        good.result()
    assert store.load_conversation(None, "good").result() is None


def test_what_waits_together_is_committed_together(store: Store) -> None:
    commits = 0
    committed = store._writer.committed

    def count() -> None:
        nonlocal commits
        commits += 1
        committed()

    store._writer.committed = count  # type: ignore[method-assign]
    with writer_held(store):
        saving = [store.save_turn(None, Turn(f"c{n % 10}", state=state(str(n)))) for n in range(200)]
    assert [future.result() for future in saving] == [n // 10 + 1 for n in range(200)]
    assert commits <= 3  # of those, one or two held the writer up


def test_a_save_nobody_waits_for_is_written_and_the_next_one_too(store: Store) -> None:
    with writer_held(store):
        saving = store.save_turn(None, Turn("c", state=state("1")))
        assert not saving.cancel()
    assert saving.result(10) == 1
    assert store.save_turn(None, Turn("c", state=state("1", "2"))).result(10) == 2


async def test_a_cancelled_task_does_not_stop_the_writer(store: Store) -> None:
    with writer_held(store):
        waiting = asyncio.wrap_future(store.save_turn(None, Turn("c", state=state("1"))))
        waiting.cancel()
        await asyncio.sleep(0)
    assert store.save_turn(None, Turn("c", state=state("1", "2"))).result(10) == 2


def test_a_checkpoint_when_nobody_writes_folds_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "IDLE", 0.05)
    monkeypatch.setattr(engine, "CHECKPOINT_SIZE", 1)
    with Store(path) as store:
        store.save_turn(None, Turn("c", state=state("x" * 100_000))).result()
        wal = Path(f"{path}.wal")
        end = time.monotonic() + 10
        while wal.exists() and wal.stat().st_size and time.monotonic() < end:
            time.sleep(0.02)
        assert not wal.exists() or not wal.stat().st_size
        assert texts(store.load_state(None, "c")) == ["x" * 100_000]


def test_a_loaded_conversation_is_of_one_moment(store: Store) -> None:
    first = state("1")
    store.save_turn(None, Turn("c", state=first, added=(row("c", 1, "1"),))).result()
    saving = []
    now = first
    for number in range(2, 60):
        now = now.add_message(str(number))
        saving.append(store.save_turn(None, Turn("c", state=now, added=(row("c", number, str(number)),))))
        found = store.load_conversation(None, "c").result()
        assert found is not None
        assert [shown.text for shown in found.display_messages] == texts(found.state)
    assert [future.result() for future in saving] == list(range(2, 60))
