from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import duckdb
import pytest

from sagents_nb.errors import StoreError
from sagents_nb.store import Store, Turn, engine
from sagents_nb.store.schema import SCHEMA_VERSION


def _refused(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        Store(path)
    return str(caught.value)


def test_a_folder(tmp_path: Path) -> None:
    assert _refused(tmp_path) == f"{tmp_path} is a folder; a store is a file: Store('{tmp_path}/agents.duckdb')"


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    folder = tmp_path / "nope"
    assert (
        _refused(folder / "a.duckdb")
        == f"the folder {folder} does not exist; make it first: Path('{folder}').mkdir(parents=True)"
    )
    assert not folder.exists()


@pytest.mark.parametrize("content", [b"hello, I am a diary\n" * 500, b"x", b"\0" * 20_000])
def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "is no DuckDB file; give Store another path" in _refused(path)
    assert path.read_bytes() == content


def test_a_database_of_sqlite(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t(i INTEGER)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    assert str(path) in _refused(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE orders(i INTEGER)",
        "CREATE TABLE meta(key VARCHAR, value VARCHAR)",
        "CREATE TABLE meta(i INTEGER)",
        "CREATE TABLE meta(key VARCHAR, value VARCHAR); CREATE TABLE state_log(i INTEGER)",
    ],
)
def test_a_duckdb_file_of_something_else(path: Path, statement: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(statement)
    assert "is a DuckDB file of something else (it has the tables " in _refused(path)
    with duckdb.connect(str(path)) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert not {("conversations",), ("events",)} & set(tables)


def test_an_empty_duckdb_file_becomes_a_store(path: Path) -> None:
    duckdb.connect(str(path)).close()
    with Store(path) as store:
        assert store.save_turn(None, Turn("c")).result() == 0


def _newer(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")


def test_a_file_of_a_newer_version(path: Path) -> None:
    _newer(path)
    assert _refused(path) == (
        f"{path} has the schema version 99, newer than the {SCHEMA_VERSION} this sagents_nb knows: "
        "pip install --upgrade sagents-nb"
    )
    with pytest.raises(StoreError, match="schema version 99"):
        Store.snapshot(path)


def test_without_a_look_at_the_version_it_would_be_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _newer(path)
    monkeypatch.setattr(engine, "SCHEMA_VERSION", 99)
    Store(path).close()


def test_a_refused_file_is_not_kept_locked(path: Path) -> None:
    _newer(path)
    _refused(path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", [str(SCHEMA_VERSION)])
    Store(path).close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_and_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    path = folder / "agents.duckdb"
    Store(path).close()
    path.chmod(0o400)
    assert "is write-protected; Store.snapshot(" in _refused(path)
    with Store.snapshot(path) as copy:
        assert copy.conversations() == []
    path.chmod(0o600)
    folder.chmod(0o500)
    try:
        assert "cannot be written to" in _refused(folder / "new.duckdb")
    finally:
        folder.chmod(0o700)


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with Store(path) as store:
        assert store.save_turn(None, Turn("c")).result() == 0


def test_a_file_from_before_the_first_release(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET value = '1' WHERE key = 'schema_version'")
    assert "was written by a sagents_nb from before its first release" in _refused(path)


def test_a_newer_duckdb_is_named() -> None:
    # Only a newer DuckDB can write such a file; these are the words with which it is refused.
    refused = duckdb.IOException(
        "IO Error: Trying to read a database file with version number 999, but we can only read versions between 64 and 69"
    )
    assert str(engine.not_opened(Path("a.duckdb"), refused)).startswith(
        f"a.duckdb was written by a newer DuckDB than this {duckdb.__version__}: pip install --upgrade duckdb sagents-nb"
    )


def test_a_file_that_duckdb_has_open_in_this_process(path: Path) -> None:
    with duckdb.connect(str(path)):
        assert "is open in this process through duckdb.connect" in _refused(path)
    Store(path).close()


def test_memory_has_a_name_of_its_own() -> None:
    with pytest.raises(StoreError, match=r"Store\.memory\(\)"):
        Store(":memory:")
