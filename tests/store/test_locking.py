from __future__ import annotations

import functools
import importlib
import operator
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sagents_nb.errors import StoreError, StoreLocked
from sagents_nb.store import Store, Turn, engine, registry, store as store_module
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


def test_the_kernel_of_a_notebook_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "lessons/01.ipynb")
    with _holder(HOLD, path) as process:
        with pytest.raises(StoreLocked, match=f"process {process.pid} .the kernel of lessons/01.ipynb.,"):
            Store(path)
        process.communicate(timeout=30)


def test_another_name_of_the_same_file_gives_the_living_store(store: Store, path: Path) -> None:
    link = path.with_name("hard.duckdb")
    link.hardlink_to(path)
    assert Store(link) is store


def test_a_file_that_was_deleted_is_opened_anew(path: Path) -> None:
    store = Store(path)
    store.save_turn(None, Turn("c", state=state("x"))).result()
    path.unlink()
    with pytest.warns(UserWarning, match="was deleted or replaced while it was open"):
        another = Store(path)
    with another:
        assert store.closed
        assert another.conversations() == []
    assert path.exists()


def test_without_that_look_the_new_store_would_write_to_nowhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "is_replaced", lambda _engine: False)
    with Store(path) as store:
        path.unlink()
        assert Store(path) is store
    assert not path.exists()


def _by(name: str) -> Any:
    return operator.attrgetter(name)


class _Tenants:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def owner(self, scope: Any) -> str:
        return f"{self.prefix}{scope}"


def _nested(key: str) -> Any:
    def inner(scope: Any) -> Any:
        return scope[key]

    return lambda scope: inner(scope)


TENANTS = _Tenants("t")


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (_by("user"), _by("user"), _by("name")),
        (TENANTS.owner, TENANTS.owner, _Tenants("t").owner),
        (functools.partial(max, 1), functools.partial(max, 1), functools.partial(max, 2)),
        (_nested("user"), _nested("user"), _nested("name")),
        (eval("lambda s: 1"), eval("lambda s: 1"), eval("lambda s: True")),
        (eval("lambda s: s.user"), eval("\n\nlambda s: s.user"), eval("lambda s: s.name")),
        (eval("lambda s, d=1: d"), eval("lambda s, d=1: d"), eval("lambda s, d=2: d")),
        (eval("lambda s: f(s)", {"f": str}), eval("lambda s: f(s)", {"f": str}), eval("lambda s: f(s)", {"f": int})),
    ],
)
def test_what_makes_two_owner_functions_the_same(one: Any, same: Any, other: Any) -> None:
    assert Owners(one).same(same)
    assert not Owners(one).same(other)


def test_the_registry_survives_that_its_module_is_reloaded(store: Store, path: Path) -> None:
    importlib.reload(registry)
    assert Store(path) is store


def test_a_second_set_of_modules_cannot_open_the_file_again(store: Store, path: Path) -> None:
    registry.living.clear()  # as a registry that was imported anew
    with pytest.raises(StoreLocked, match=f"open in this very process .PID {os.getpid()}."):
        Store(path)


def test_a_snapshot_is_removed_when_it_is_closed(path: Path, holder: subprocess.Popen[str]) -> None:
    copy = Store.snapshot(path)
    assert copy.path is not None
    assert copy.path.exists()
    copy.close()
    assert not copy.path.parent.exists()


WRITING = """
now = state("0")
while True:
    now = now.add_message(str(len(now.messages)))
    store.save_turn(None, Turn("c", state=now)).result()
"""


def test_snapshots_while_the_other_process_writes(path: Path) -> None:
    with _holder(HOLD.replace("sys.stdin.read()", WRITING), path) as process:
        last = 0
        for _ in range(5):
            with Store.snapshot(path) as copy:
                revisions = [item.revision for item in copy.history(None, "c")]
                assert revisions == list(range(1, len(revisions) + 1))
                assert len(copy.load_state(None, "c").messages) == len(revisions)
                assert len(revisions) >= last
                last = len(revisions)
        process.kill()
        process.communicate(timeout=30)


def test_a_file_that_this_process_has_open_is_not_copied(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(str(path)), pytest.raises(StoreError, match="this process has .* open itself"):
        Store.snapshot(path)
