from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sagents_nb.errors import StoreError
from sagents_nb.store import SqlResult, Store, Turn, engine, query
from tests.store.support import published, row, state


@pytest.fixture
def filled(owned: Store) -> Store:
    for owner in ("anna", "ben"):
        turn = Turn("c", state=state(f"{owner}'s secret"), added=(row("c", 1, f"{owner}'s secret"),), title=owner)
        owned.save_turn(owner, turn).result()
        owned.save_turn(owner, Turn("c", events=(published(1, words=f"{owner}'s secret"),))).result()
    return owned


READ = [
    "SELECT title FROM conversations",
    "FROM conversations SELECT title",
    "WITH t AS (SELECT title FROM conversations) SELECT * FROM t",
    "TABLE conversations",
    "VALUES (1)",
    "DESCRIBE conversations",
    "SUMMARIZE conversations",
    "SHOW TABLES",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN (ANALYZE, FORMAT JSON) SELECT 1",
    "SELECT count(copy) FROM (SELECT 1 AS copy)",
    "SELECT '(COPY t TO x', 1 -- (COPY t TO x",
    "  SELECT 1 ;  ",
]


@pytest.mark.parametrize("statement", READ)
def test_what_reads_is_run(filled: Store, statement: str) -> None:
    assert len(filled.sql(statement)) > 0
    assert len(filled.sql(statement, scope="anna")) > 0


READS_ONLY = "store.sql reads: SELECT, WITH … SELECT, FROM, DESCRIBE or EXPLAIN, not "
NO_FILES = "DuckDB refuses this query: Permission Error: Cannot access file"
REFUSED = [
    ("DELETE FROM conversations", READS_ONLY + "DELETE"),
    ("UPDATE conversations SET title = 'x'", READS_ONLY + "UPDATE"),
    ("INSERT INTO meta VALUES ('a', 'b')", READS_ONLY + "INSERT"),
    ("CREATE TABLE t(i INTEGER)", READS_ONLY + "CREATE"),
    ("DROP TABLE events", READS_ONLY + "DROP"),
    ("ALTER TABLE events ADD COLUMN x INTEGER", READS_ONLY + "ALTER"),
    ("COPY conversations TO '{folder}/out.csv'", READS_ONLY + "COPY"),
    ("EXPORT DATABASE '{folder}/out'", READS_ONLY + "EXPORT"),
    ("ATTACH '{folder}/out.duckdb'", READS_ONLY + "ATTACH"),
    ("PRAGMA table_info('events')", READS_ONLY + "PRAGMA"),
    ("SET threads = 1", READS_ONLY + "SET"),
    ("BEGIN", READS_ONLY + "TRANSACTION"),
    ("COMMIT", READS_ONLY + "TRANSACTION"),
    ("CALL pragma_version()", READS_ONLY + "CALL"),
    ("PREPARE p AS SELECT 1", READS_ONLY + "PREPARE"),
    ("INSTALL httpfs", READS_ONLY + "LOAD"),
    ("SELECT 1; DELETE FROM events", "store.sql takes one statement, got 2; call it once for each"),
    ("", "store.sql takes one statement, got 0"),
    ("-- nothing", "store.sql takes one statement, got 0"),
    ("SELEC 1", "this is no SQL that DuckDB understands: Parser Error: syntax error"),
    ("SELECT nope FROM events", "DuckDB refuses this query: Binder Error"),
    (
        "WITH d AS (DELETE FROM conversations RETURNING *) SELECT * FROM d",
        "DuckDB refuses this query: TransactionContext",
    ),
    ("WITH x AS MATERIALIZED (COPY events TO '{folder}/out.csv') SELECT 1", NO_FILES),
    ("WITH x AS (/**/copy(SELECT 1) TO '{folder}/out.csv') SELECT 1", NO_FILES),
    ("SELECT * FROM '{folder}/in.csv'", NO_FILES),
    ("SELECT * FROM read_csv('{folder}/in.csv')", NO_FILES),
    ("SELECT * FROM read_text('/etc/hostname')", NO_FILES),
    ("SELECT * FROM glob('/etc/*')", NO_FILES),
    ("SELECT * FROM 'https://example.org/a.parquet'", NO_FILES),
    ("SELECT * FROM enable_profiling()", "DuckDB refuses this query: Invalid Input Error: Cannot change configuration"),
    ("SELECT * FROM rows", "DuckDB refuses this query: Catalog Error"),  # a variable of the code that runs it
    ("EXPLAIN ANALYZE COMMIT", "EXPLAIN of COMMIT: ANALYZE would run it"),
    ("EXPLAIN ANALYZE CREATE TEMP TABLE events AS SELECT 1 AS i", "EXPLAIN of CREATE: ANALYZE would run it"),
    ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/out.csv'", "EXPLAIN of COPY: ANALYZE would run it"),
    ("EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{folder}/out.csv'", "EXPLAIN of COPY: ANALYZE would run it"),
    ("explain analyze delete from events", "EXPLAIN of DELETE: ANALYZE would run it"),
    ("EXPLAIN ANALYZE SET threads = 1", "EXPLAIN of SET: ANALYZE would run it"),
]


@pytest.mark.parametrize(("statement", "words"), REFUSED)
def test_what_does_not_read_is_refused_and_changes_nothing(
    filled: Store, tmp_path: Path, statement: str, words: str
) -> None:
    before = _everything(filled)
    with pytest.raises(StoreError) as caught:
        filled.sql(statement.format(folder=tmp_path))
    assert str(caught.value).startswith(words)
    assert _everything(filled) == before
    assert not list(tmp_path.glob("out*"))


def _everything(store: Store) -> list[Any]:
    tables = ("meta", "conversations", "state_log", "display_messages", "events")
    found: list[Any] = [store.sql(f"SELECT * FROM {name} ORDER BY ALL").fetchall() for name in tables]
    return [*found, store.sql("SELECT current_setting('threads')").fetchone()]


def test_in_a_plain_transaction_a_select_deletes(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(cursor: duckdb.DuckDBPyConnection, read: Any) -> Any:
        cursor.begin()
        result = read(cursor)
        cursor.commit()
        return result

    monkeypatch.setattr(engine, "in_snapshot", plain)
    assert len(filled.sql("WITH d AS (DELETE FROM conversations RETURNING *) SELECT * FROM d")) == 2
    assert filled.conversations("anna") == []


def test_with_access_to_files_a_select_writes_one(tmp_path: Path) -> None:
    with duckdb.connect() as connection:  # without the settings of the engine
        connection.execute("BEGIN TRANSACTION READ ONLY")
        connection.execute(f"WITH x AS MATERIALIZED (COPY (SELECT 1) TO '{tmp_path}/out1.csv') SELECT 1").fetchall()
        connection.execute(f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{tmp_path}/out2.csv'").fetchall()
    assert sorted(file.name for file in tmp_path.glob("out*")) == ["out1.csv", "out2.csv"]


def test_files_are_closed_to_queries_and_open_to_the_database(owned: Store, path: Path) -> None:
    for number in range(3):
        owned.save_turn("anna", Turn("c", state=state("x" * 100_000, str(number)))).result()
    owned.close()  # with a checkpoint
    with Store(path, owner=lambda scope: scope) as again:
        assert len(again.history("anna", "c")) == 3


def test_a_query_is_interrupted_by_ctrl_c(store: Store) -> None:
    main = threading.main_thread()
    assert threading.current_thread() is main
    assert main.ident is not None
    timer = threading.Timer(0.3, signal.pthread_kill, [main.ident, signal.SIGINT])
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        store.sql("SELECT count(*) FROM range(1000000) a, range(1000000) b")
    assert time.monotonic() - start < 20
    assert store.sql("SELECT 1").fetchall() == [(1,)]


def test_parameters(filled: Store) -> None:
    assert filled.sql("SELECT title FROM conversations WHERE owner = ?", ["ben"]).fetchall() == [("ben",)]
    named = filled.sql("SELECT title, $n + 1 FROM conversations WHERE owner = $owner", {"owner": "anna", "n": 1})
    assert named.fetchall() == [("anna", 2)]
    assert filled.sql("SELECT ?", ["'; DROP TABLE events; --"], scope="anna").fetchone() == (
        "'; DROP TABLE events; --",
    )
    for params in ([], ["a", "b"], {"owner": 1}):
        with pytest.raises(StoreError, match="DuckDB refuses this query"):
            filled.sql("SELECT title FROM conversations WHERE owner = ?", params)


def test_a_result_and_its_rows() -> None:
    with Store.memory() as store:
        found = store.sql("SELECT range AS n, 'x' || range AS word FROM range(5)")
        assert (found.columns, found.types, len(found), found.truncated) == (
            ["n", "word"],
            ["BIGINT", "VARCHAR"],
            5,
            False,
        )
        assert found.fetchone() == (0, "x0")
        assert found.fetchmany(2) == [(1, "x1"), (2, "x2")]
        assert found.fetchall() == [(3, "x3"), (4, "x4")]
        assert found.fetchone() is None
        assert list(found) == [(0, "x0"), (1, "x1"), (2, "x2"), (3, "x3"), (4, "x4")]


def test_how_a_result_is_shown() -> None:
    found = SqlResult(["n", "<b>"], ["BIGINT", "VARCHAR"], [(1, "<script>alert(1)</script>"), (None, "two\nlines")])
    assert (
        repr(found) == "n | <b>\n--+--------------------------\n1 | <script>alert(1)</script>\n  | two lines\n(2 rows)"
    )
    assert found._repr_mimebundle_() == {
        "text/plain": repr(found),
        "text/html": (
            "<table><thead><tr><th>n</th><th>&lt;b&gt;</th></tr></thead><tbody>"
            "<tr><td>1</td><td>&lt;script&gt;alert(1)&lt;/script&gt;</td></tr><tr><td></td><td>two lines</td></tr>"
            "</tbody></table><p><small>(2 rows)</small></p>"
        ),
    }
    many = SqlResult(["n"], ["BIGINT"], [(n,) for n in range(1500)], truncated=True)
    assert repr(many).endswith(
        "\n19\n(1,500 rows, and more that were not fetched: store.sql(…, max_rows=…); the first 20 shown, 1,480 more)"
    )
    assert "the first 100 shown, 1,400 more" in many._repr_mimebundle_()["text/html"]
    assert repr(SqlResult(["n"], ["BIGINT"], [])) == "n\n-\n(0 rows)"


def test_titles_are_escaped_where_a_store_is_shown(store: Store) -> None:
    store.save_turn(None, Turn("c", title="<script>")).result()
    shown = store.sql("SELECT title FROM conversations")._repr_mimebundle_()["text/html"]
    assert "<td>&lt;script&gt;</td>" in shown
    assert [row[0] for row in store.tables() if not row[1]] == [
        "conversations", "agent_states", "display_messages", "events", "files", "state_log", "file_versions"
    ]  # fmt: skip
    assert ("events", "duration", "DOUBLE", "seconds") in list(store.tables())
    comments = store.sql(
        "SELECT comment FROM duckdb_columns() WHERE table_name = 'events' AND column_name = 'duration'"
    )
    assert comments.fetchall() == [("seconds",)]
    assert "<table>" in store._repr_mimebundle_()["text/html"]


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    found = SqlResult(["n"], ["BIGINT"], [(1,)])
    with pytest.raises(StoreError, match="pip install pandas"):
        found.df()
    with pytest.raises(StoreError, match="pip install polars"):
        found.pl()


def test_rows_end_at_a_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_ROWS", 3)
    assert (len(store.sql("FROM range(3)")), store.sql("FROM range(3)").truncated) == (3, False)
    assert (len(store.sql("FROM range(4)")), store.sql("FROM range(4)").truncated) == (3, True)
    assert len(store.sql("FROM range(9)", max_rows=9)) == 9


SEE = [
    "SELECT owner FROM conversations",
    "SELECT owner FROM main.conversations",
    "SELECT owner FROM memory.main.conversations",
    "SELECT owner FROM agent_states",
    "SELECT owner FROM main.display_messages WHERE true OR owner = 'ben'",
    "SELECT owner FROM events UNION SELECT owner FROM conversations",
    "SELECT owner FROM query_table('conversations')",
    "SELECT owner FROM query('FROM conversations')",
    "SELECT owner FROM query('FROM ' || 'conver' || 'sations')",
    "SELECT DISTINCT owner FROM state_log",
    "SELECT DISTINCT c.owner FROM conversations c, display_messages d, events e",
]


@pytest.mark.parametrize("statement", SEE)
def test_a_scope_sees_the_rows_of_its_owner(filled: Store, statement: str) -> None:
    assert filled.sql(statement, scope="ben").fetchall() == [("ben",)]
    assert filled.sql(statement, scope="nobody").fetchall() == []


@pytest.mark.parametrize("statement", [text for text in SEE if "memory" not in text])
def test_without_the_copy_the_same_statements_see_both(filled: Store, statement: str) -> None:
    assert {found[0] for found in filled.sql(statement)} == {"anna", "ben"}


LOOK_AROUND = [
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM duckdb_views()",
    "SELECT * FROM duckdb_databases()",
    "SELECT * FROM duckdb_columns() WHERE NOT internal",
    "SELECT * FROM sqlite_master",
    "SUMMARIZE display_messages",
    "SHOW ALL TABLES",
]


@pytest.mark.parametrize("statement", LOOK_AROUND)
def test_a_scope_that_looks_around_finds_nothing_of_others(filled: Store, path: Path, statement: str) -> None:
    shown = repr(list(filled.sql(statement, scope="ben")))
    assert "anna" not in shown
    assert str(path) not in shown


ATTACKS = [
    "SELECT * FROM '{path}'",
    "SELECT * FROM read_csv('{path}')",
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "SELECT * FROM '{folder}/secret.csv'",
    "SELECT * FROM read_text('{folder}/secret.csv')",
    "SELECT * FROM read_blob('{path}')",
    "SELECT * FROM read_json('{folder}/secret.csv')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM meta",
    "SELECT * FROM incoming",
    "SELECT * FROM agents.main.conversations",
    "ATTACH '{path}' AS other",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "EXPLAIN ANALYZE SET enable_external_access = true",
    "RESET enable_external_access",
    "LOAD json",
    "COPY conversations TO '{folder}/out.csv'",
    "WITH x AS MATERIALIZED (COPY conversations TO '{folder}/out.csv') SELECT 1",
    "WITH d AS (DELETE FROM conversations RETURNING *) SELECT * FROM d",
    "SELECT * FROM duckdb_secrets()",
    "SELECT getenv('HOME')",
    "SELECT * FROM rows",
    "SELECT * FROM params",
]


@pytest.mark.parametrize("statement", ATTACKS)
def test_a_scope_cannot_get_out(filled: Store, path: Path, tmp_path: Path, statement: str) -> None:
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StoreError):
        filled.sql(statement.format(path=path, folder=tmp_path), scope="ben")
    assert not list(tmp_path.glob("out*"))
    assert len(filled.conversations("anna")) == 1


def test_with_the_tables_of_all_a_scope_would_see_everybody(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "run_for_owner", lambda cursor, _owner, *rest: query.run(cursor, *rest))
    assert len(filled.sql("SELECT owner FROM conversations", scope="ben")) == 2


def test_none_is_a_scope_and_not_everybody(filled: Store) -> None:
    with pytest.raises(StoreError, match="gave None"):
        filled.sql("SELECT owner FROM conversations", scope=None)
