"""SQL that reads, and its result."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from sagents_nb.errors import StoreError

MAX_ROWS = 100_000
"""Rows of a result that are fetched; a result keeps no transaction open, so they are all in memory."""

SHOWN_ROWS = 100
SHOWN_CHARACTERS = 200

_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


def run(cursor: duckdb.DuckDBPyConnection, query: str, params: Sequence[Any] | Mapping[str, Any] | None) -> SqlResult:
    """Run one reading statement in a read-only transaction.

    Args:
        cursor: of its own, so that it can be interrupted.
        query: SQL.
        params: values for ``?`` or ``$name``.

    Raises:
        StoreError: it is not one reading statement, or DuckDB refuses it.
    """
    try:
        statements = cursor.extract_statements(query)
    except duckdb.Error as error:
        raise StoreError(f"this is no SQL that DuckDB understands: {error}") from error
    if len(statements) != 1:
        raise StoreError(f"store.sql takes one statement, got {len(statements)}; call it once for each")
    if statements[0].type not in _READING:
        raise StoreError(
            f"store.sql reads: SELECT, WITH … SELECT, FROM, DESCRIBE or EXPLAIN, not {statements[0].type.name}. "
            "The store itself writes; to change a copy, use duckdb on a file made with Store.snapshot(path)"
        )
    _refuse_hidden(query)
    try:
        # The kind of statement is not enough: WITH d AS (DELETE … RETURNING *) SELECT … is a SELECT too.
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        try:
            cursor.execute(query, params if params is not None else [])
            description = cursor.description or []
            rows = cursor.fetchmany(MAX_ROWS + 1)
        finally:
            cursor.rollback()
    except duckdb.Error as error:
        raise StoreError(f"DuckDB refuses this query: {error}") from error
    except RuntimeError as error:
        if "interrupted" in str(error).lower():  # how DuckDB reports Ctrl-C in the main thread
            raise KeyboardInterrupt from error
        raise
    return SqlResult(
        [column[0] for column in description],
        [str(column[1]) for column in description],
        rows[:MAX_ROWS],
        truncated=len(rows) > MAX_ROWS,
    )


def _refuse_hidden(query: str) -> None:
    """Refuse what a read-only transaction lets through: files that are written, settings that are changed."""
    words = _words(query)
    for before, word, after in zip(words, words[1:], words[2:], strict=False):
        # WITH x AS MATERIALIZED (COPY t TO 'file') …; a column or function of that name is followed by a sign.
        if (before, word) == ("(", "COPY") and (after == "(" or after[:1] in '"_' or after[:1].isalpha()):
            raise StoreError(f"store.sql reads, and COPY writes a file; {_INSTEAD}")
    if words[:1] != ["EXPLAIN"]:
        return
    place = 1
    if words[1:2] == ["("] and words[2] in _EXPLAIN_OPTIONS:
        place = words.index(")") + 1
    while words[place] in _EXPLAIN_OPTIONS:
        place += 1
    if words[place] not in _EXPLAINED:
        raise StoreError(f"EXPLAIN of {words[place]}: ANALYZE would run it, and store.sql reads; {_INSTEAD}")


def _words(query: str) -> list[str]:
    raw = query.encode()
    tokens = duckdb.tokenize(query)
    words = []
    for (start, kind), (end, _) in zip(tokens, [*tokens[1:], (len(raw), None)], strict=True):
        if kind != duckdb.token_type.comment:
            words.append(raw[start:end].decode(errors="replace").strip().upper())
    return words


_EXPLAIN_OPTIONS = ("ANALYZE", "VERBOSE", "FORMAT")
_EXPLAINED = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "DESCRIBE", "SHOW", "SUMMARIZE", "(")
_INSTEAD = "to keep a result, .df().to_csv(path)"


class SqlResult:
    """Rows of a query, all in memory.

    Attributes:
        columns: names of the columns.
        types: their DuckDB types.
        truncated: whether there were more rows than `MAX_ROWS`.
    """

    def __init__(
        self, columns: list[str], types: list[str], rows: list[tuple[Any, ...]], *, truncated: bool = False
    ) -> None:
        self.columns = columns
        self.types = types
        self.truncated = truncated
        self._rows = rows
        self._place = 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that were not fetched yet."""
        return self.fetchmany(len(self._rows))

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows."""
        rows = self._rows[self._place : self._place + size]
        self._place += len(rows)
        return rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def df(self) -> Any:
        """As a pandas DataFrame."""
        return _need("pandas").DataFrame(self._rows, columns=self.columns)

    def pl(self) -> Any:
        """As a polars DataFrame."""
        return _need("polars").DataFrame(self._rows, schema=self.columns, orient="row")

    def __repr__(self) -> str:
        shown = [[_text(value, 60) for value in row] for row in self._rows[:20]]
        widths = [max([len(name), *(len(row[place]) for row in shown)]) for place, name in enumerate(self.columns)]
        lines = [" | ".join(name.ljust(width) for name, width in zip(self.columns, widths, strict=True)).rstrip()]
        lines.append("-+-".join("-" * width for width in widths))
        lines += [
            " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown
        ]
        return "\n".join([*lines, self._footer(20)])

    def _footer(self, shown: int) -> str:
        count = f"{len(self._rows):,}{' or more' if self.truncated else ''}"
        words = f"{count} row{'' if len(self._rows) == 1 else 's'}"
        return f"({words})" if len(self._rows) <= shown else f"({words}, the first {shown} shown)"

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_text(value, SHOWN_CHARACTERS))}</td>" for value in row) + "</tr>"
            for row in self._rows[:SHOWN_ROWS]
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return {"text/plain": repr(self), "text/html": f"{table}<p><small>{self._footer(SHOWN_ROWS)}</small></p>"}


def _text(value: Any, limit: int) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list)) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _need(library: str) -> Any:
    from importlib import import_module

    try:
        return import_module(library)
    except ImportError:
        raise StoreError(f"this needs {library}: pip install {library}; or use fetchall() and .columns") from None
