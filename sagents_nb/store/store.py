"""The store: conversations, what the model sees, what people see, and the trace, in one DuckDB file."""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import html
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import duckdb

from sagents_nb.errors import StoreError
from sagents_nb.events import Event, ModelDelta
from sagents_nb.frozen import clean_text, thaw
from sagents_nb.ids import new_id
from sagents_nb.server.display import DisplayMessage, utc_now
from sagents_nb.server.persistence import StoredConversation, Turn
from sagents_nb.state import State
from sagents_nb.store import log, query
from sagents_nb.store.engine import Engine
from sagents_nb.store.owners import OwnerFunction, Owners, refuse_scope
from sagents_nb.store.query import SqlResult
from sagents_nb.store.schema import EXPLAINED, QUERIED

_ROW = (
    "conversation_id, id, sequence, message_type, content_type, content, tool_call_id, status, metadata, "
    "inserted_at, updated_at"
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The index card of a conversation.

    Attributes:
        conversation_id: its id.
        title: its title, if it has one.
        inserted_at: when it began, UTC.
        updated_at: when something was last saved, UTC.
        revision: number of its newest State.
        messages: messages in that State.
    """

    conversation_id: str
    title: str | None
    inserted_at: dt.datetime
    updated_at: dt.datetime
    revision: int
    messages: int


@dataclass(frozen=True, slots=True)
class Revision:
    """One saved State of a conversation.

    Attributes:
        revision: its number, from 1.
        inserted_at: when it was saved, UTC.
        messages: messages in it.
        added: messages that are not in the one before.
    """

    revision: int
    inserted_at: dt.datetime
    messages: int
    added: int


class Store:
    """A database file, or one in memory. Safe to use from any thread.

    ``Store(path)`` of a file that this process holds already gives back the living store. Every method that reads takes
    the scope first; another owner's row does not exist.

    Args:
        path: the file; made when it does not exist.
        owner: maps a scope to its owner's key (a str, int or UUID). Without it there is one local owner, and the scope
            may be None.

    Raises:
        StoreError: the file cannot be used, or is open with another owner function.
        StoreLocked: another process holds it.
    """

    _engine: Engine
    _owners: Owners
    _tails: log.Tails

    def __new__(cls, path: str | os.PathLike[str], owner: OwnerFunction | None = None) -> Self:
        """Give back the living store of this file, or open it."""
        real = Path(os.path.realpath(path))
        with _lock:
            living = _living.get(real)
            if living is not None and not living.closed:
                if not living._owners.same(owner):
                    raise StoreError(
                        f"{real} is open in this process with another owner function; use that store, or close() it first"
                    )
                return living  # type: ignore[return-value]
            store = cls._make(real, owner)
            _living[real] = store
            return store

    @classmethod
    def memory(cls, owner: OwnerFunction | None = None) -> Self:
        """A store that ends with the process."""
        return cls._make(None, owner)

    @classmethod
    def snapshot(cls, path: str | os.PathLike[str], owner: OwnerFunction | None = None) -> Self:
        """A read-only copy of a file that another process holds, as of now.

        Args:
            path: the file.
            owner: as of `Store`.

        Raises:
            StoreError: there is no such file, or this very process holds it.
        """
        real = Path(os.path.realpath(path))
        with _lock:
            living = _living.get(real)
        if living is not None and not living.closed:
            # Opening and closing it here would drop DuckDB's lock on it.
            raise StoreError(f"this process holds {real} itself; Store({str(path)!r}) gives that store")
        if not real.is_file():
            raise StoreError(f"there is no file {real} to copy")
        folder = Path(tempfile.mkdtemp(prefix="sagents-snapshot-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        copy = folder / real.name
        for _ in range(20):
            before = _stamp(real)
            for suffix in ("", ".wal"):
                if Path(f"{real}{suffix}").exists():
                    shutil.copyfile(f"{real}{suffix}", f"{copy}{suffix}")
                else:
                    Path(f"{copy}{suffix}").unlink(missing_ok=True)
            if _stamp(real) == before:  # nothing was written meanwhile
                return cls._make(copy, owner, read_only=True)
        raise StoreError(f"{real} is written all the time; try again when its kernel is less busy")

    @classmethod
    def _make(cls, path: Path | None, owner: OwnerFunction | None, *, read_only: bool = False) -> Self:
        store = super().__new__(cls)
        store._owners = Owners(owner)
        store._tails = log.Tails()
        store._engine = Engine(
            path, read_only=read_only, on_commit=store._tails.commit, on_rollback=store._tails.rollback
        )
        atexit.register(store.close)
        return store

    # What agent servers use.

    def owner_key(self, scope: Any) -> str:
        """The owner that a scope stands for."""
        return self._owners.key(scope)

    def save_turn(self, scope: Any, turn: Turn) -> Future[int]:
        """Save a turn in one commit; the future holds the revision once it is durable.

        Raises:
            StoreError: in the future, when the turn holds the scope or cannot be written; nothing of it is then.
        """
        owner = self._owners.key(scope)
        try:
            refuse_scope(scope, _values(turn))
        except StoreError as error:
            refused: Future[int] = Future()
            refused.set_exception(error)
            return refused
        return self._engine.write(lambda cursor: self._write_turn(cursor, owner, turn))

    def load_conversation(self, scope: Any, conversation_id: str) -> Future[StoredConversation | None]:
        """The conversation as it was saved last; None when this owner has none of that id."""
        key = (self._owners.key(scope), conversation_id)

        def read(cursor: duckdb.DuckDBPyConnection) -> StoredConversation | None:
            with _as_of_now(cursor):
                return look(cursor)

        def look(cursor: duckdb.DuckDBPyConnection) -> StoredConversation | None:
            card = cursor.execute(
                "SELECT title FROM conversations WHERE owner = ? AND conversation_id = ?", [*key]
            ).fetchone()
            if card is None:
                return None
            revision, state = log.read(cursor, key) or (0, State())
            last = cursor.execute(
                "SELECT max(seq) FROM events WHERE owner = ? AND conversation_id = ?", [*key]
            ).fetchone()
            return StoredConversation(
                conversation_id=conversation_id,
                title=card[0],
                revision=revision,
                state=state,
                display_messages=_display(cursor, key),
                last_event_seq=(last[0] if last else None) or 0,
            )

        return self._engine.read(read)

    def _write_turn(self, cursor: duckdb.DuckDBPyConnection, owner: str, turn: Turn) -> int:
        key = (owner, turn.conversation_id)
        now = utc_now()
        cursor.execute(
            "INSERT INTO conversations VALUES (?, ?, ?, NULL, NULL, ?, ?) ON CONFLICT (owner, conversation_id) "
            "DO UPDATE SET updated_at = excluded.updated_at, title = coalesce(excluded.title, conversations.title)",
            [*key, None if turn.title is None else clean_text(turn.title), now, now],
        )
        if turn.added:
            _insert(cursor, "display_messages", [_display_row(owner, row) for row in turn.added])
        for row in turn.changed:
            cursor.execute(
                "UPDATE display_messages SET status = ?, content = ?, metadata = ?, updated_at = ? "
                "WHERE owner = ? AND conversation_id = ? AND id = ?",
                [row.status, log.dumps(row.content), log.dumps(row.metadata), row.updated_at or now, *key, row.id],
            )
        events = [event for event in turn.events if not isinstance(event, ModelDelta)]
        if events:
            _insert(cursor, "events", [_event_row(key, event) for event in events])
        if turn.state is None:
            tail = self._tails.get(key) or log.read_tail(cursor, key)
            return tail.revision
        return log.append(cursor, self._tails, key, turn.state, now)

    # What people use.

    def conversations(self, scope: Any = None) -> list[Conversation]:
        """The owner's conversations, newest first."""
        owner = self._owners.key(scope)
        rows = self._read(
            """
            SELECT c.conversation_id, c.title, c.inserted_at, c.updated_at,
              coalesce(s.revision, 0), coalesce(s.n_messages, 0)
            FROM conversations c LEFT JOIN (
              SELECT conversation_id, max(revision) AS revision, arg_max(n_messages, revision) AS n_messages
              FROM state_log WHERE owner = $owner GROUP BY conversation_id) s USING (conversation_id)
            WHERE c.owner = $owner ORDER BY c.updated_at DESC, c.conversation_id DESC
            """,
            {"owner": owner},
        )
        return [Conversation(*row) for row in rows]

    def display_messages(
        self, scope: Any, conversation_id: str, *, limit: int | None = None, before: int | None = None
    ) -> list[DisplayMessage]:
        """What people see of a conversation, oldest first.

        Args:
            scope: for whom.
            conversation_id: which conversation.
            limit: only the latest so many.
            before: only those with a smaller ``sequence``, to page backwards.
        """
        key = (self._owners.key(scope), conversation_id)
        return list(self._engine.read(lambda cursor: _display(cursor, key, limit, before)).result())

    def load_state(self, scope: Any, conversation_id: str | Mapping[str, Any], *, revision: int | None = None) -> State:
        """The State of a conversation.

        Args:
            scope: for whom.
            conversation_id: which conversation; a mapping with that key does too.
            revision: an older one, see `history`.

        Raises:
            StoreError: this owner has no such conversation or revision.
        """
        if isinstance(conversation_id, Mapping):
            conversation_id = str(conversation_id["conversation_id"])
        key = (self._owners.key(scope), conversation_id)
        found = self._engine.read(lambda cursor: log.read(cursor, key, revision)).result()
        if found is None:
            which = "a saved state" if revision is None else f"the revision {revision}"
            raise StoreError(
                f"there is no conversation {conversation_id!r} with {which} for this owner; "
                "store.conversations(scope) and store.history(scope, conversation_id) list what there is"
            )
        return found[1]

    def history(self, scope: Any, conversation_id: str) -> list[Revision]:
        """The revisions of a conversation's State, oldest first."""
        owner = self._owners.key(scope)
        rows = self._read(
            "SELECT revision, inserted_at, n_messages, n_added FROM state_log "
            "WHERE owner = ? AND conversation_id = ? ORDER BY revision",
            [owner, conversation_id],
        )
        return [Revision(*row) for row in rows]

    def fork(self, scope: Any, conversation_id: str, revision: int | None = None, *, title: str | None = None) -> str:
        """Begin a new conversation from a State of another one. The transcript begins empty.

        Args:
            scope: for whom.
            conversation_id: which conversation.
            revision: from which State, by default the newest.
            title: of the new one.

        Returns:
            Id of the new conversation.

        Raises:
            StoreError: this owner has no such conversation or revision.
        """
        state = self.load_state(scope, conversation_id, revision=revision)
        owner, new = self._owners.key(scope), new_id()
        turn = Turn(new, state=state.model_copy(update={"conversation_id": new}), title=title)

        def write(cursor: duckdb.DuckDBPyConnection) -> None:
            self._write_turn(cursor, owner, turn)
            cursor.execute(
                "UPDATE conversations SET forked_from = ?, forked_revision = coalesce(?, ("
                "SELECT max(revision) FROM state_log WHERE owner = ? AND conversation_id = ?)) "
                "WHERE owner = ? AND conversation_id = ?",
                [conversation_id, revision, owner, conversation_id, owner, new],
            )

        self._engine.write(write).result()
        return new

    def rename_conversation(self, scope: Any, conversation_id: str, title: str) -> None:
        """Give a conversation another title.

        Raises:
            StoreError: this owner has no such conversation.
        """
        key = (self._owners.key(scope), conversation_id)
        self._change_card(
            key, "UPDATE conversations SET title = ? WHERE owner = ? AND conversation_id = ?", [clean_text(title), *key]
        )

    def delete_conversation(self, scope: Any, conversation_id: str) -> None:
        """Delete a conversation with all that belongs to it.

        Raises:
            StoreError: this owner has no such conversation.
        """
        key = (self._owners.key(scope), conversation_id)

        def write(cursor: duckdb.DuckDBPyConnection) -> None:
            _require(cursor, key)
            for table in ("events", "display_messages", "state_log", "conversations"):
                cursor.execute(f"DELETE FROM {table} WHERE owner = ? AND conversation_id = ?", [*key])  # noqa: S608
            self._tails.forget(key)

        self._engine.write(write).result()

    def events(self, scope: Any, conversation_id: str) -> list[dict[str, Any]]:
        """The recorded trace of a conversation, oldest first, as JSON objects."""
        owner = self._owners.key(scope)
        rows = self._read(
            "SELECT data FROM events WHERE owner = ? AND conversation_id = ? ORDER BY seq", [owner, conversation_id]
        )
        return [json.loads(row[0]) for row in rows]

    def sql(
        self, query_text: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, scope: Any = ...
    ) -> SqlResult:
        """Run one reading statement.

        Args:
            query_text: SQL; `tables` says over what.
            params: values for ``?`` or ``$name``.
            scope: see only this owner's rows. Left out, it is the view of whoever holds the file: all owners.

        Raises:
            StoreError: it is not one reading statement, or DuckDB refuses it.
        """
        if scope is ...:
            with self._engine.own_cursor() as cursor:
                return query.run(cursor, query_text, params)
        with self._private_copy(self._owners.key(scope)) as private:
            return query.run(private, query_text, params)

    def _private_copy(self, owner: str) -> duckdb.DuckDBPyConnection:
        """This owner's rows in a database of their own: what is not in it cannot be reached, however it is named."""
        private = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
        private.execute("SET TimeZone = 'UTC'")
        with self._engine.own_cursor() as cursor, _as_of_now(cursor):
            for name in QUERIED:
                found = cursor.execute(f"SELECT * FROM {name} WHERE owner = ?", [owner])  # noqa: S608 - our own names
                columns = ", ".join(f'"{column[0]}" {column[1]}' for column in found.description or [])
                rows = found.fetchall()
                private.execute(f"CREATE TABLE {name} ({columns})")
                if rows:
                    _insert(private, name, rows)
        # Last, since it cannot be taken back: no files, no network, no other database.
        private.execute("SET enable_external_access = false")
        private.execute("SET lock_configuration = true")
        return private

    def tables(self) -> SqlResult:
        """The tables and views for SQL, their columns, and what they are for."""
        columns = dict(
            self._read(
                "SELECT table_name, string_agg(column_name, ', ' ORDER BY column_index) "
                "FROM duckdb_columns() WHERE NOT internal GROUP BY table_name",
                [],
            )
        )
        rows: list[tuple[Any, ...]] = [(name, words, columns.get(name, "")) for name, words in EXPLAINED.items()]
        return SqlResult(["table", "what it holds", "columns"], ["VARCHAR"] * 3, rows)

    @property
    def path(self) -> Path | None:
        """The file, None in memory."""
        return self._engine.path

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._engine.closed

    def close(self) -> None:
        """Write what waits and let go of the file. Closing twice does nothing."""
        self._engine.close()
        atexit.unregister(self.close)
        with _lock:
            if self.path is not None and _living.get(self.path) is self:
                del _living[self.path]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = f"{self._engine.name!r}" if self.path is not None else "in memory"
        return f"Store({where}{', read-only' if self._engine.read_only else ''}{', closed' if self.closed else ''})"

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        if self.closed:
            return {"text/plain": repr(self)}
        table = self.tables()._repr_mimebundle_()["text/html"]
        return {"text/plain": repr(self), "text/html": f"<p><strong>{html.escape(repr(self))}</strong></p>{table}"}

    def _read(self, statement: str, params: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._engine.read(
            lambda cursor: cursor.execute(statement, params).fetchall()
        ).result()
        return rows

    def _change_card(self, key: log.Key, statement: str, params: list[Any]) -> None:
        def write(cursor: duckdb.DuckDBPyConnection) -> None:
            _require(cursor, key)
            cursor.execute(statement, params)

        self._engine.write(write).result()


# Kept here, where a cell that runs again finds it.
_lock = threading.RLock()
_living: dict[Path, Store] = {}


@contextlib.contextmanager
def _as_of_now(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Several statements that see the same commits."""
    cursor.begin()
    try:
        yield
    finally:
        cursor.rollback()


def _stamp(path: Path) -> list[tuple[int, int]]:
    found = []
    for file in (path, Path(f"{path}.wal")):
        if file.exists():
            status = file.stat()
            found.append((status.st_mtime_ns, status.st_size))
    return found


def _require(cursor: duckdb.DuckDBPyConnection, key: log.Key) -> None:
    if not cursor.execute("SELECT 1 FROM conversations WHERE owner = ? AND conversation_id = ?", [*key]).fetchone():
        raise StoreError(f"there is no conversation {key[1]!r} for this owner; store.conversations(scope) lists them")


def _values(turn: Turn) -> list[tuple[str, Any]]:
    """Everything of a turn in which somebody could have put a scope."""
    values: list[tuple[str, Any]] = []
    if turn.state is not None:
        values.append(("state.metadata", turn.state.metadata))
        if turn.state.interrupt is not None:
            values.append(("state.interrupt.data", turn.state.interrupt.data))
            for place, member in enumerate(turn.state.interrupt.members):
                values.append((f"state.interrupt.members[{place}].data", member.data))
        for place, message in enumerate(turn.state.messages):
            if message.metadata:
                values.append((f"state.messages[{place}].metadata", message.metadata))
    for row in (*turn.added, *turn.changed):
        values += [
            (f"display row {row.sequence}.content", row.content),
            (f"display row {row.sequence}.metadata", row.metadata),
        ]
    # Thawed: what an event carries is no frozen JSON, and a tuple in it is saved as a list.
    values += [(f"event {event.seq}.data", thaw(event.data)) for event in turn.events if hasattr(event, "data")]
    return values


def _insert(cursor: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Append many rows; planning a statement for them costs several times as much."""
    appender = cursor.appender(table)
    try:
        appender.append_rows([[clean_text(v) if isinstance(v, str) else v for v in row] for row in rows])
        appender.flush()
    except BaseException:
        appender.clear()
        raise


def _display_row(owner: str, row: DisplayMessage) -> list[Any]:
    return [
        owner,
        row.conversation_id,
        row.id,
        row.sequence,
        row.message_type,
        row.content_type,
        log.dumps(row.content),
        row.tool_call_id,
        row.text,
        row.status,
        log.dumps(row.metadata),
        row.inserted_at,
        row.updated_at,
    ]


def _display(
    cursor: duckdb.DuckDBPyConnection, key: log.Key, limit: int | None = None, before: int | None = None
) -> tuple[DisplayMessage, ...]:
    rows = cursor.execute(
        f"SELECT {_ROW} FROM display_messages WHERE owner = ? AND conversation_id = ? "  # noqa: S608 - our own names
        "AND sequence < coalesce(?, 9223372036854775807) ORDER BY sequence DESC LIMIT ?",
        [*key, before, limit],
    ).fetchall()
    names = [name.strip() for name in _ROW.split(",")]
    found = []
    for row in reversed(rows):
        values = dict(zip(names, row, strict=True))
        values["content"], values["metadata"] = json.loads(values["content"]), json.loads(values["metadata"])
        found.append(DisplayMessage(**values))
    return tuple(found)


def _event_row(key: log.Key, event: Event) -> list[Any]:
    data = event.to_json()
    call = data.get("call") or {}
    return [
        *key,
        event.seq,
        event.run_id or None,
        event.type,
        dt.datetime.fromtimestamp(event.at, dt.UTC),
        data.get("cycle"),
        data.get("middleware"),
        data.get("hook"),
        call.get("name") or data.get("model") or data.get("name"),
        data.get("status"),
        data.get("duration"),
        data.get("changed"),
        data.get("error"),
        log.dumps(data),
    ]
