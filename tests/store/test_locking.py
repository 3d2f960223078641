from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sagents_nb.errors import StoreError, StoreLocked
from sagents_nb.store import Store, Turn, engine
from sagents_nb.store.lock import FileLock
from sagents_nb.store.owners import Owners
from tests.store.support import output, python, state, texts

HOLD = """
import sys
from sagents_nb.store import Store, Turn
from tests.store.support import state
store = Store(sys.argv[1])
store.save_turn(None, Turn("c", state=state("held"))).result()
if len(sys.argv) > 2:
    open(sys.argv[1], "rb").close()
print("ready", flush=True)
sys.stdin.read()
"""
HOLD_PLAINLY = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from sagents_nb.errors import StoreLocked
from sagents_nb.store import Store, engine
engine.PATIENCE = 0.2
try:
    Store(sys.argv[1]).close()
except StoreLocked as error:
    print("locked", error.pid)
else:
    print("opened")
"""


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PATIENCE", 0.3)


def _holder(code: str, path: Path, *more: object) -> subprocess.Popen[str]:
    process = python(code, path, *more)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the file open."""
    process = _holder(HOLD, path)
    with process:
        yield process
        process.communicate(timeout=30)


@pytest.mark.parametrize("how", [HOLD, HOLD_PLAINLY], ids=["a store", "duckdb alone"])
def test_a_file_of_another_process_is_refused_in_words(path: Path, how: str) -> None:
    with _holder(how, path) as process:
        with pytest.raises(StoreLocked) as caught:
            Store(path)
        process.communicate(timeout=30)
    assert caught.value.pid == process.pid
    for words in (str(path), f"process {process.pid}", f"Store.snapshot('{path}')", "one process at a time"):
        assert words in str(caught.value)
    with Store(path) as store:  # it let go of it
        assert not store.closed


def test_a_restarting_kernel_waits_for_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PATIENCE", 30)
    with _holder(HOLD, path) as process:
        assert process.stdin is not None
        process.stdin.close()  # it ends now
        with Store(path) as store:
            assert texts(store.load_state(None, "c")) == ["held"]


def test_a_killed_holder_holds_nothing(path: Path) -> None:
    with _holder(HOLD, path) as process:
        process.kill()
        process.communicate(timeout=30)
    with Store(path) as store:
        assert texts(store.load_state(None, "c")) == ["held"]


def test_a_snapshot_reads_and_refuses_to_write(path: Path, holder: subprocess.Popen[str]) -> None:
    with Store.snapshot(path) as copy:
        assert texts(copy.load_state(None, "c")) == ["held"]
        assert copy.sql("SELECT count(*) FROM conversations", scope=None).fetchone() == (1,)
        assert copy.path != path
        assert repr(copy).endswith(", read-only)")
        for call in (
            lambda: copy.save_turn(None, Turn("c", state=state("x"))),
            lambda: copy.rename_conversation(None, "c", "x"),
            lambda: copy.delete_conversation(None, "c"),
            lambda: copy.fork(None, "c"),
        ):
            with pytest.raises(StoreError, match="is a read-only copy"):
                call()


def test_a_snapshot_of_a_file_this_process_holds_is_refused(store: Store, path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="this process holds"):
        Store.snapshot(path)
    with pytest.raises(StoreError, match="there is no file"):
        Store.snapshot(tmp_path / "nope.duckdb")
    assert output(TRY, path).startswith("locked")


def test_the_same_path_gives_the_living_store(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = path.with_name("link.duckdb")
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    for same in (path, str(path), path.name, f"./{path.name}", link):
        assert Store(same) is store
    store.close()
    with Store(path) as another:
        assert another is not store


def _made_again() -> Any:
    return lambda scope: scope["user"]


def _closed_over(prefix: str) -> Any:
    return lambda scope: prefix + scope


def test_another_owner_function_is_refused_and_the_same_code_is_not(path: Path) -> None:
    with Store(path, owner=_made_again()) as store:
        assert Store(path, owner=_made_again()) is store
        for other in (None, lambda scope: scope["name"], lambda scope: scope, str):
            with pytest.raises(StoreError, match="another owner function"):
                Store(path, owner=other)
    with Store(path, owner=_closed_over("a")) as store:
        assert Store(path, owner=_closed_over("a")) is store
        with pytest.raises(StoreError, match="another owner function"):
            Store(path, owner=_closed_over("b"))


def test_without_the_comparison_another_function_would_get_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Owners, "same", lambda *_: True)
    with Store(path, owner=lambda scope: scope["user"]) as store:
        assert Store(path) is store


def test_the_lock_survives_that_its_process_opens_and_closes_the_file(path: Path) -> None:
    with _holder(HOLD, path, "open and close") as process:
        assert output(TRY, path) == f"locked {process.pid}"
        process.communicate(timeout=30)


def test_with_the_lock_of_duckdb_alone_a_second_process_gets_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileLock, "acquire", lambda _self: None)
    store = Store(path)
    assert output(TRY, path).startswith("locked")
    path.open("rb").close()
    with python(TRY, path) as process:
        found, _ = process.communicate(timeout=60)
    # Past the lock; whether it then stumbles over the log of the first process is a matter of luck.
    assert not found.startswith("locked")
    store.close()
