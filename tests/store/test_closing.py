from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sagents_nb.errors import StoreClosed, StoreError
from sagents_nb.store import Store, Turn
from tests.store.support import output, row, state, texts


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
