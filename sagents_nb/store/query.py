"""SQL that reads, and its result."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import duckdb

from sagents_nb.errors import StoreError
from sagents_nb.store.schema import NEEDED_BY, TABLES, VIEWS, create_tables
from sagents_nb.store.tables import html_table, text_table

MAX_ROWS = 100_000
"""Rows that are fetched by default: a result keeps no transaction open, so they are all in memory."""

_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)

Params = Sequence[Any] | Mapping[str, Any] | None


def run(cursor: duckdb.DuckDBPyConnection, query: str, params: Params, max_rows: int) -> SqlResult:
    """Run one reading statement.

    Args:
        cursor: in a read-only transaction: ``WITH d AS (DELETE … RETURNING *) SELECT …`` is a SELECT and deletes.
        query: SQL.
        params: values for ``?`` or ``$name``.
        max_rows: rows to fetch.

    Raises:
        StoreError: it is not one reading statement, or DuckDB refuses it.
    """
    try:
        statements = cursor.extract_statements(query)
    except duckdb.Error as error:
        raise StoreError(f"this is no SQL that DuckDB understands: {_words(error)}") from error
    if len(statements) != 1:
        raise StoreError(f"store.sql takes one statement, got {len(statements)}; call it once for each")
    if statements[0].type not in _READING:
        raise StoreError(
            f"store.sql reads: SELECT, WITH … SELECT, FROM, DESCRIBE or EXPLAIN, not {statements[0].type.name}. "
            "Only the store itself writes; store.rename_conversation, delete_conversation and fork change conversations"
        )
    if statements[0].type == duckdb.StatementType.EXPLAIN:
        _check_explained(cursor, query)
    try:
        cursor.execute(query, params if params is not None else [])
        rows = cursor.fetchmany(max_rows + 1)
        description = cursor.description or []
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise StoreError(f"DuckDB refuses this query: {_words(error)}{_advice(error)}") from error
    return SqlResult(
        [column[0] for column in description],
        [str(column[1]) for column in description],
        rows[:max_rows],
        truncated=len(rows) > max_rows,
    )


def _check_explained(cursor: duckdb.DuckDBPyConnection, query: str) -> None:
    """Refuse EXPLAIN of what does not read: with ANALYZE it would be run, a COMMIT for example."""
    raw = query.encode()
    tokens = [place for place, kind in duckdb.tokenize(query) if kind != duckdb.token_type.comment]
    words = [
        raw[start:end].decode().split()[0].upper() for start, end in zip(tokens, [*tokens[1:], len(raw)], strict=True)
    ]
    place = 1
    while words[place : place + 1] in (["ANALYZE"], ["VERBOSE"]):
        place += 1
    if words[place : place + 1] == ["("] and words[place + 1 : place + 2] in (["ANALYZE"], ["FORMAT"], ["VERBOSE"]):
        place = words.index(")", place) + 1
    explained = cursor.extract_statements(raw[tokens[place] :].decode())
    if len(explained) != 1 or explained[0].type != duckdb.StatementType.SELECT:
        raise StoreError(f"EXPLAIN of {words[place]}: ANALYZE would run it, and store.sql only reads")


def _words(error: Exception) -> str:
    return str(error).strip()


def _advice(error: Exception) -> str:
    text = str(error)
    if "file system operations are disabled" in text or "disabled through configuration" in text:
        return "\nstore.sql reads this store only, no files and no network: read the file in Python and join there"
    if "read-only mode" in text:
        return "\nstore.sql only reads"
    if isinstance(error, duckdb.OutOfMemoryException):
        return "\nAsk for less at once: WHERE conversation_id = …, of agent_states WHERE current, or fewer columns"
    if isinstance(error, duckdb.CatalogException) and "does not exist" in text:
        return "\nstore.tables() says what there is"
    return ""


class _Stream:
    """Rows on their way from one database into another, as an Arrow stream, which needs no pyarrow."""

    def __init__(self, relation: Any) -> None:
        self._relation = relation

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._relation.__arrow_c_stream__(requested_schema)


def run_for_owner(
    cursor: duckdb.DuckDBPyConnection, owner: str, query: str, params: Params, max_rows: int
) -> SqlResult:
    """`run` over one owner's rows.

    They are copied into a database of their own: what is not in it cannot be reached, however it is named. Rewriting
    the query or shadowing the tables would have to foresee every other way to name them.
    """
    private = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": "1GB",
            "threads": "2",
            "temp_directory": "",
        },
    )
    try:
        private.execute("SET enable_external_access = false")
        private.execute("SET python_enable_replacements = false")
        private.execute("SET TimeZone = 'UTC'")
        private.execute("SET enable_progress_bar = false")
        for statement in create_tables(comments=False):
            private.execute(statement)
        for table in _mentioned(query):
            rows = cursor.sql(f"SELECT * FROM {table} WHERE owner = $owner", params={"owner": owner})  # noqa: S608 - ours
            private.register("incoming", _Stream(rows))
            private.execute(f"INSERT INTO {table} SELECT * FROM incoming").fetchall()  # noqa: S608 - our own names
            private.unregister("incoming")
        private.execute("SET lock_configuration = true")
        private.execute("BEGIN TRANSACTION READ ONLY")
        return run(private, query, params, max_rows)
    finally:
        private.close()


def _mentioned(query: str) -> list[str]:
    """Tables that must be there: those whose name, or that of a view over them, is somewhere in the text."""
    text = query.lower()
    if "query" in text or "\\" in text:  # query('from ' || …), query_table(…), U&"\\0065vents": a name made of pieces
        return list(TABLES)
    wanted = [name for name in TABLES if name in text]
    for view in VIEWS:
        if view in text:
            wanted += NEEDED_BY[view]
    return list(dict.fromkeys(wanted))


class SqlResult:
    """Rows of a query, all in memory. Reads like a DuckDB relation.

    Args:
        columns: names of the columns.
        types: their DuckDB types.
        rows: the rows.
        truncated: whether there are more that were not fetched.

    Attributes:
        columns: names of the columns.
        types: their DuckDB types.
        truncated: whether there are more rows than were fetched.
    """

    def __init__(
        self,
        columns: Sequence[str],
        types: Sequence[str],
        rows: Sequence[tuple[Any, ...]],
        *,
        truncated: bool = False,
    ) -> None:
        self.columns = list(columns)
        self.types = list(types)
        self.truncated = truncated
        self._rows = list(rows)
        self._place = 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that were not fetched yet."""
        return self.fetchmany(len(self._rows))

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows, at most so many."""
        rows = self._rows[self._place : self._place + size]
        self._place += len(rows)
        return rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def df(self) -> Any:
        """As a pandas DataFrame.

        Raises:
            StoreError: pandas is not installed.
        """
        frame = _library("pandas").DataFrame.from_records(self._rows, columns=self.columns)
        self._warn()
        return frame

    def pl(self) -> Any:
        """As a polars DataFrame.

        Raises:
            StoreError: polars is not installed.
        """
        polars = _library("polars")
        # All rows, not the first hundred, decide on a column's type.
        frame = polars.DataFrame(self._rows, schema=self.columns, orient="row", infer_schema_length=None)
        self._warn()
        return frame

    def arrow(self) -> Any:
        """As a pyarrow Table.

        Raises:
            StoreError: pyarrow is not installed.
        """
        pyarrow = _library("pyarrow")
        arrays = [pyarrow.array([row[place] for row in self._rows]) for place in range(len(self.columns))]
        table = pyarrow.Table.from_arrays(arrays, names=self.columns)
        self._warn()
        return table

    def _warn(self) -> None:
        if self.truncated:
            warnings.warn(
                f"only the first {len(self._rows):,} rows were fetched; store.sql(…, max_rows=…) fetches more",
                stacklevel=3,
            )

    @property
    def _note(self) -> str:
        return ", and more that were not fetched: store.sql(…, max_rows=…)" if self.truncated else ""

    def __repr__(self) -> str:
        if self.columns == ["explain_key", "explain_value"]:
            return "\n".join(str(row[1]) for row in self._rows)
        return text_table(self.columns, self._rows, self._note)

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        if self.columns == ["explain_key", "explain_value"]:
            return {"text/plain": repr(self)}
        return {"text/plain": repr(self), "text/html": html_table(self.columns, self._rows, self._note)}


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise StoreError(f"this needs {name}: pip install {name}; or use fetchall() and .columns") from None
