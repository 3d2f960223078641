"""The store: conversations, what the model sees, what people see, and the trace, in one DuckDB file."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from sagents_nb.errors import StoreError, UnknownConversation
from sagents_nb.server.display import DisplayMessage
from sagents_nb.server.persistence import StoredConversation, Turn
from sagents_nb.state import State
from sagents_nb.store import log, query, registry, snapshot, turns
from sagents_nb.store.engine import Engine, is_replaced
from sagents_nb.store.owners import OwnerFunction, Owners
from sagents_nb.store.query import Params, SqlResult
from sagents_nb.store.schema import TABLES, explained
from sagents_nb.store.tables import Listing, html_table
from sagents_nb.store.turns import check_conversation_id, check_title, no_conversation, no_revision
from sagents_nb.waiting import result_of

_ALL = object()
"""Default of ``scope`` in `Store.sql`: None is a scope like others there."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The index card of a conversation.

    Attributes:
        conversation_id: its id.
        title: its title, if it has one.
        inserted_at: when it began, UTC.
        updated_at: when something of it was saved last, UTC.
        revision: number of its newest State, 0 before the first.
        messages: messages in that State: what the model sees.
        rows: rows of its transcript: what people see.
        interrupt: kind of the interrupt it waits at, if it waits for a person.
        forked_from: the conversation it was forked from.
    """

    conversation_id: str
    title: str | None
    inserted_at: dt.datetime
    updated_at: dt.datetime
    revision: int
    messages: int
    rows: int
    interrupt: str | None
    forked_from: str | None


@dataclass(frozen=True, slots=True)
class Revision:
    """One saved State of a conversation.

    Attributes:
        revision: its number, from 1.
        inserted_at: when it was saved, UTC.
        messages: messages in it.
        added: messages that are not in the one before.
        keyframe: whether the whole list was written with it; `added` is then all of them.
    """

    revision: int
    inserted_at: dt.datetime
    messages: int
    added: int
    keyframe: bool


class Store:
    """A database file, or one in memory. Safe to use from any thread; a fork of the process cannot use it.

    ``Store(path)`` of a file that this process holds already gives back the living store, also when the cell that made
    it runs again. Every method that reads takes the scope first; the rows of another owner do not exist.

    Args:
        path: the file; made when it does not exist.
        owner: maps a scope to its owner's key: a str, an int, a UUID, or a tuple of str and int. Without it there is one
            local owner, and the scope may be None.

    Raises:
        StoreError: the file cannot be used, or is open here with another owner function. Two functions are the same when
            they are made of the same code, defaults, closure and globals, wherever the code stands.
        StoreLocked: another process holds it.
    """

    _engine: Engine
    _owners: Owners
    _writer: turns.TurnWriter
    _end: weakref.finalize[..., Store]

    def __new__(cls, path: str | os.PathLike[str], owner: OwnerFunction | None = None) -> Self:
        """Give back the living store of this file, or open it."""
        if os.fspath(path) == ":memory:":
            raise StoreError("a store in memory is made with Store.memory()")
        real = Path(os.path.realpath(Path(path).expanduser()))
        with registry.lock:
            living = registry.find(real)
            if living is not None and is_replaced(living._engine):
                warnings.warn(
                    f"{real} was deleted or replaced while it was open: what was saved since is lost with the old file",
                    stacklevel=2,
                )
                living.close()
                living = None
            if living is not None:
                if not living._owners.same(owner):
                    raise StoreError(
                        f"{real} is open in this process with another owner function; use that store, or close() it first"
                    )
                return living  # type: ignore[return-value]
            store = cls._make(real, owner)
            registry.living[real] = store
            return store

    @classmethod
    def memory(cls, owner: OwnerFunction | None = None) -> Self:
        """A store in memory. It ends when nothing refers to it any more.

        Args:
            owner: as of `Store`.
        """
        return cls._make(None, owner)

    @classmethod
    def snapshot(cls, path: str | os.PathLike[str], owner: OwnerFunction | None = None) -> Self:
        """A read-only copy of a file that another process holds, as it is now.

        Args:
            path: the file.
            owner: as of `Store`.

        Raises:
            StoreError: there is no such file, it is no store, or this very process holds it.
        """
        real = Path(os.path.realpath(Path(path).expanduser()))
        with registry.lock:
            if registry.find(real) is not None:
                # Opening and closing it here would drop DuckDB's lock on it.
                raise StoreError(f"this process holds {real} itself; Store({str(path)!r}) gives that store")
        folder = Path(tempfile.mkdtemp(prefix="sagents-snapshot-"))
        try:
            store = cls._make(snapshot.copy_files(real, folder), owner, folder=folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        store._engine.name = f"copy of {real}"
        return store

    @classmethod
    def _make(cls, path: Path | None, owner: OwnerFunction | None, *, folder: Path | None = None) -> Self:
        store = super().__new__(cls)
        store._owners = Owners(owner)
        store._writer = turns.TurnWriter()
        store._engine = Engine(path, keeper=store._writer, read_only=folder is not None)
        # Also at exit. The threads know the engine, not the store: one in memory that is forgotten ends.
        store._end = weakref.finalize(store, _let_go, store._engine, folder, os.getpid())
        return store

    # What agent servers use.

    def owner_key(self, scope: Any) -> str:
        """The owner that a scope stands for: what the column `owner` holds.

        Raises:
            StoreError: the owner function failed, or gave nothing that can be a key.
        """
        return self._owners.key(scope)

    def save_turn(self, scope: Any, turn: Turn) -> Future[int]:
        """Save a turn in one commit.

        Args:
            scope: for whom.
            turn: what is new. Deltas among the events are left out.

        Returns:
            Future of the revision, once the turn is durable. It raises StoreError, naming the place, when the turn holds
            the scope or something that cannot be written; then nothing of it is written, and nothing before it is lost.

        Raises:
            StoreClosed: the store was closed.
            StoreError: the owner function does not know the scope.
        """
        owner = self._key(scope)
        return self._engine.write(
            lambda transaction, prepared: self._writer.save(transaction, owner, prepared),
            prepare=lambda: turns.prepare(owner, scope, turn),
        )

    def load_conversation(self, scope: Any, conversation_id: str) -> Future[StoredConversation | None]:
        """The conversation as it was saved last.

        Args:
            scope: for whom.
            conversation_id: which conversation.

        Returns:
            Future of it; of None when this owner has none of that id.

        Raises:
            StoreClosed: the store was closed.
            StoreError: the owner function does not know the scope.
        """
        key = (self._key(scope), check_conversation_id(conversation_id))

        def read(cursor: duckdb.DuckDBPyConnection) -> StoredConversation | None:
            card = cursor.execute(
                "SELECT title, last_event_seq FROM conversations WHERE owner = ? AND conversation_id = ?", [*key]
            ).fetchone()
            if card is None:
                return None
            revision, state = log.read(cursor, key) or (0, State())
            return StoredConversation(
                conversation_id=conversation_id,
                title=card[0],
                revision=revision,
                state=state,
                display_messages=tuple(_display(cursor, key)),
                last_event_seq=card[1],
            )

        return self._engine.submit(read)

    # What people use.

    def conversations(self, scope: Any = None) -> Listing[Conversation]:
        """The owner's conversations, the one saved last first."""
        owner = self._key(scope)
        rows = self._rows(
            "SELECT conversation_id, title, inserted_at, updated_at, revision, n_messages, n_rows, interrupt, forked_from "
            "FROM conversations WHERE owner = ? ORDER BY updated_at DESC, conversation_id DESC",
            [owner],
        )
        return Listing((Conversation(*row) for row in rows), [item.name for item in fields(Conversation)])

    def display_messages(
        self, scope: Any, conversation_id: str, limit: int | None = None, before: int | None = None
    ) -> Listing[DisplayMessage]:
        """What people see of a conversation, oldest first; empty when this owner has none of that id.

        Args:
            scope: for whom.
            conversation_id: which conversation.
            limit: only the latest so many.
            before: only rows with a smaller ``sequence``, to page backwards.

        Raises:
            StoreError: `limit` or `before` is no number from 0.
        """
        for name, value in (("limit", limit), ("before", before)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise StoreError(f"{name}={value!r} is no number from 0; leave it out for no {name}")
        key = (self._key(scope), check_conversation_id(conversation_id))
        return self._engine.run(lambda cursor: _display(cursor, key, limit, before))

    def load_state(self, scope: Any, conversation_id: str | Mapping[str, Any], revision: int | None = None) -> State:
        """The State of a conversation.

        Args:
            scope: for whom.
            conversation_id: which conversation; a mapping with that key does too.
            revision: an older one, see `history`.

        Raises:
            UnknownConversation: this owner has no such conversation or revision.
        """
        if isinstance(conversation_id, Mapping):
            conversation_id = conversation_id.get("conversation_id", "")
        key = (self._key(scope), check_conversation_id(conversation_id))
        if revision is not None and (isinstance(revision, bool) or not isinstance(revision, int)):
            raise StoreError(f"revision={revision!r} is no number; store.history(scope, conversation_id) lists them")

        def read(cursor: duckdb.DuckDBPyConnection) -> State:
            found = log.read(cursor, key, revision)
            if found is not None:
                return found[1]
            row = cursor.execute(
                "SELECT revision FROM conversations WHERE owner = ? AND conversation_id = ?", [*key]
            ).fetchone()
            raise UnknownConversation(no_revision(key[1], revision, row[0]) if row else no_conversation(key[1]))

        return self._engine.run(read)

    def history(self, scope: Any, conversation_id: str) -> Listing[Revision]:
        """The revisions of a conversation's State, oldest first; empty when this owner has none of that id."""
        key = (self._key(scope), check_conversation_id(conversation_id))
        rows = self._rows(
            "SELECT revision, inserted_at, n_messages, n_added, keyframe = revision FROM state_log "
            "WHERE owner = ? AND conversation_id = ? ORDER BY revision",
            [*key],
        )
        return Listing((Revision(*row) for row in rows), [item.name for item in fields(Revision)])

    def events(self, scope: Any, conversation_id: str) -> list[dict[str, Any]]:
        """The recorded trace of a conversation as JSON objects, oldest first; empty when this owner has none of that id."""
        key = (self._key(scope), check_conversation_id(conversation_id))
        rows = self._rows(
            "SELECT data FROM events WHERE owner = ? AND conversation_id = ? ORDER BY seq, happened_at", [*key]
        )
        return [json.loads(row[0]) for row in rows]

    def fork(self, scope: Any, conversation_id: str, revision: int | None = None, *, title: str | None = None) -> str:
        """Begin a new conversation from a State of another one, with the transcript up to it.

        A pending interrupt may be answered again in the new one. Nothing is shared: either can be deleted.

        Args:
            scope: for whom.
            conversation_id: which conversation.
            revision: from which State, by default the newest.
            title: of the new one, by default the same.

        Returns:
            Id of the new conversation.

        Raises:
            UnknownConversation: this owner has no such conversation or revision.
        """
        key = (self._key(scope), check_conversation_id(conversation_id))
        words = check_title(title) if title is not None else None
        new: str = self._change(lambda transaction: self._writer.fork(transaction, key, revision, words))
        return new

    def rename_conversation(self, scope: Any, conversation_id: str, title: str) -> None:
        """Give a conversation another title; a blank one takes it away.

        Raises:
            UnknownConversation: this owner has no such conversation.
        """
        key = (self._key(scope), check_conversation_id(conversation_id))
        words = check_title(title)
        self._change(lambda transaction: self._writer.rename(transaction, key, words))

    def delete_conversation(self, scope: Any, conversation_id: str) -> None:
        """Delete a conversation with all that belongs to it.

        Raises:
            UnknownConversation: this owner has no such conversation.
        """
        key = (self._key(scope), check_conversation_id(conversation_id))
        self._change(lambda transaction: self._writer.delete(transaction, key))

    def sql(
        self, query_text: str, params: Params = None, *, scope: Any = _ALL, max_rows: int | None = None
    ) -> SqlResult:
        """Run one reading statement, in a read-only transaction, without files and network.

        Args:
            query_text: SQL; `tables` says over what.
            params: values for ``?`` or ``$name``.
            scope: see only this owner's rows, which are copied into a database of their own first. Left out, it is the
                view of whoever holds the file: all owners.
            max_rows: rows to fetch, by default `MAX_ROWS`; ``.truncated`` tells whether there were more.

        Raises:
            StoreError: it is not one reading statement, or DuckDB refuses it.
        """
        limit = query.MAX_ROWS if max_rows is None else max_rows
        if scope is _ALL:
            return self._engine.run(lambda cursor: query.run(cursor, query_text, params, limit))
        owner = self._key(scope)
        return self._engine.run(lambda cursor: query.run_for_owner(cursor, owner, query_text, params, limit))

    def tables(self) -> SqlResult:
        """The tables and views for `sql`, their columns, and what they mean."""
        self._engine.check()
        return SqlResult(["table", "column", "type", "meaning"], ["VARCHAR"] * 4, explained())

    # The file.

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
        with registry.lock:
            self._end()
            for path, store in list(registry.living.items()):
                if store is self:
                    del registry.living[path]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(self._engine.name)
        return f"Store({where}{', read-only' if self._engine.read_only else ''}{', closed' if self.closed else ''})"

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        if self.closed:
            return {"text/plain": repr(self)}
        counts = [(name, *self._rows(f"SELECT count(*) FROM {name}", [])[0], TABLES[name][0]) for name in TABLES]  # noqa: S608 - ours
        plain = "\n".join([repr(self), *(f"  {name}: {count:,}" for name, count, _ in counts)])
        return {
            "text/plain": plain,
            "text/html": html_table(["table", "rows", "what it holds"], counts, "", repr(self)),
        }

    def _key(self, scope: Any) -> str:
        self._engine.check()
        return self._owners.key(scope)

    def _rows(self, statement: str, params: list[Any]) -> list[tuple[Any, ...]]:
        return self._engine.run(lambda cursor: cursor.execute(statement, params).fetchall())

    def _change(self, change: Any) -> Any:
        written = self._engine.write(lambda transaction, _: change(transaction), prepare=lambda: None)
        return result_of(written)


def _let_go(engine: Engine, folder: Path | None, pid: int) -> None:
    engine.close()
    if folder is not None and os.getpid() == pid:  # a fork leaves its parent's copy alone
        shutil.rmtree(folder, ignore_errors=True)


_DISPLAY = tuple(name for name in TABLES["display_messages"][1] if name in DisplayMessage.model_fields)


def _display(
    cursor: duckdb.DuckDBPyConnection, key: log.Key, limit: int | None = None, before: int | None = None
) -> Listing[DisplayMessage]:
    rows = cursor.execute(
        f"SELECT {', '.join(_DISPLAY)} FROM display_messages WHERE owner = ? AND conversation_id = ? "  # noqa: S608 - ours
        "AND sequence < coalesce(?, 9223372036854775807) ORDER BY sequence DESC, id DESC LIMIT ?",
        [*key, before, limit],
    ).fetchall()
    found = []
    for row in reversed(rows):
        values = dict(zip(_DISPLAY, row, strict=True))
        values["content"], values["metadata"] = json.loads(values["content"]), json.loads(values["metadata"])
        found.append(DisplayMessage(**values))
    return Listing(found, ("sequence", "message_type", "content_type", "text", "status"))
