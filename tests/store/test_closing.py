from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sagents_nb.errors import StoreClosed, StoreError
from sagents_nb.store import Store, Turn
from tests.store.support import output, row, state, texts, writer_held


def test_closing_twice_and_the_file_is_free(path: Path) -> None:
    store = Store(path)
    store.close()
    store.close()
    assert store.closed
    assert repr(store) == f"Store('{path}', closed)"
    assert store._repr_mimebundle_() == {"text/plain": repr(store)}
    with Store(path) as again:
        assert again is not store
        store.close()  # the old one has no say any more
        assert Store(path) is again


USES: list[Callable[[Store], Any]] = [
    lambda store: store.save_turn(None, Turn("c")),
    lambda store: store.load_conversation(None, "c"),
    lambda store: store.load_state(None, "c"),
    lambda store: store.conversations(),
    lambda store: store.display_messages(None, "c"),
    lambda store: store.history(None, "c"),
    lambda store: store.events(None, "c"),
    lambda store: store.fork(None, "c"),
    lambda store: store.rename_conversation(None, "c", "x"),
    lambda store: store.delete_conversation(None, "c"),
    lambda store: store.sql("SELECT 1"),
    lambda store: store.sql("SELECT 1", scope=None),
    lambda store: store.tables(),
]


def test_a_closed_store_says_so(path: Path) -> None:
    store = Store(path)
    store.close()
    for use in USES:
        with pytest.raises(StoreClosed) as caught:
            use(store)
        assert str(caught.value) == f"the store {path} was closed; open it again with Store('{path}')"


def test_what_waits_is_written(path: Path) -> None:
    store = Store(path)
    saving = [store.save_turn(None, Turn("c", added=(row("c", n, str(n)),))) for n in range(1, 101)]
    store.close()
    assert [future.result(0) for future in saving] == [0] * 100
    with Store(path) as again:
        assert [shown.text for shown in again.display_messages(None, "c")] == [str(n) for n in range(1, 101)]


def test_a_context_closes_also_after_an_error(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Store(path) as store:
        _ = 1 / 0
    assert store.closed


def test_closing_folds_the_log_and_ends_the_threads(path: Path) -> None:
    before = set(threading.enumerate())
    with Store(path) as store:
        store.save_turn(None, Turn("c", state=state("x"))).result()
        store.conversations()
        assert {thread.name.split("_")[0] for thread in set(threading.enumerate()) - before} == {
            "sagents-store-writer",
            "sagents-store-reader",
        }
    assert set(threading.enumerate()) <= before
    assert not Path(f"{path}.wal").exists()


def test_a_process_that_ends_without_closing_loses_nothing(path: Path) -> None:
    code = (
        "import sys; from sagents_nb.store import Store, Turn; from tests.store.support import state\n"
        "store = Store(sys.argv[1])\n"
        "for n in range(1, 51): store.save_turn(None, Turn('c', state=state(*map(str, range(n)))))\n"
    )
    assert output(code, path) == ""
    assert not Path(f"{path}.wal").exists()
    with Store(path) as store:
        assert texts(store.load_state(None, "c")) == [str(n) for n in range(50)]
        assert len(store.history(None, "c")) == 50


def test_a_store_in_many_threads(store: Store) -> None:
    def work(name: str) -> None:
        for number in range(1, 11):
            store.save_turn(None, Turn(name, state=state(*map(str, range(number))))).result()
            assert len(store.load_state(None, name).messages) == number

    threads = [threading.Thread(target=work, args=(f"c{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(card.revision, card.messages) for card in store.conversations()] == [(10, 10)] * 4


def test_a_fork_of_the_process_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(StoreError, match="belongs to process"):
            store.conversations()
    assert store.conversations() == []


def test_stores_in_memory_that_nobody_has_any_more_end(store: Store) -> None:
    gc.collect()
    before = threading.active_count()
    for _ in range(20):
        forgotten = Store.memory()
        forgotten.save_turn(None, Turn("c", state=state("x"))).result()
    del forgotten
    gc.collect()
    end = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_closing_stops_a_query_and_says_why(path: Path) -> None:
    store = Store(path)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(store.sql, "SELECT count(*) FROM range(1000000) a, range(1000000) b")
        while not store._engine._reading:
            time.sleep(0.01)
        start = time.monotonic()
        store.close()
        assert time.monotonic() - start < 20
        with pytest.raises(StoreClosed):
            reading.result()


def test_closing_on_a_thread_of_the_store_does_not_wait_for_itself(path: Path) -> None:
    store = Store(path)
    with writer_held(store):
        store.save_turn(None, Turn("c", state=state("x"))).add_done_callback(lambda _done: store.close())
    end = time.monotonic() + 10
    while Path(f"{path}.lock").exists() and time.monotonic() < end:
        time.sleep(0.01)
    with Store(path) as again:
        assert texts(again.load_state(None, "c")) == ["x"]


def test_reading_on_a_thread_of_the_store_does_not_wait_for_itself(store: Store) -> None:
    store.save_turn(None, Turn("c", state=state("x"))).result()
    found = []
    done = threading.Semaphore(0)

    def read(_done: object) -> None:
        found.append([texts(store.load_state(None, "c")) for _ in range(3)])
        done.release()

    for _ in range(2):  # both readers
        store.load_conversation(None, "c").add_done_callback(read)
    assert done.acquire(timeout=20)
    assert done.acquire(timeout=20)
    assert found == [[["x"], ["x"], ["x"]]] * 2


FORK = """
import os, sys
from sagents_nb.errors import StoreError, StoreLocked
from sagents_nb.store import Store, Turn, engine
from tests.store.support import state
engine.PATIENCE = 0.2
store = Store(sys.argv[1])
store.save_turn(None, Turn("c", state=state("x"))).result()
if os.fork() == 0:
    try:
        store.conversations()
    except StoreError as error:
        print("refused" if "fork" in str(error) else error, flush=True)
    try:
        Store(sys.argv[1])
    except StoreLocked as error:
        print("locked", error.pid == os.getppid(), flush=True)
    sys.exit()
os.wait()
print(store.save_turn(None, Turn("c", state=state("x", "y"))).result())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_real_fork_cannot_use_the_store_and_does_not_close_it(path: Path) -> None:
    assert output(FORK, path).split("\n") == ["refused", "locked True", "2"]
    with Store(path) as store:
        assert texts(store.load_state(None, "c")) == ["x", "y"]
