"""States as an append-only log: each revision keeps a head and a tail of the messages before it, and adds its own.

Saving costs what a turn added; every revision can be read again; forking, summarising and editing need nothing special.
A row that keeps nothing is a keyframe: it holds the whole list.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

from sagents_nb.frozen import clean_text
from sagents_nb.messages import Message
from sagents_nb.state import State

KEYFRAME_EVERY = 256
"""Revisions after which the whole list is written again, so that reading never follows a longer chain."""

KEPT_TAILS = 64
"""Conversations whose last messages the writer remembers; others are read again when they are saved."""

Key: TypeAlias = tuple[str, str]
"""Owner and conversation."""


def dumps(value: Any) -> str:
    """Compact JSON text that DuckDB can hold."""
    return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def common_ends(old: tuple[Message, ...], new: tuple[Message, ...]) -> tuple[int, int]:
    """How many messages two lists share at the head and, beyond it, at the tail, down to the type of a number."""
    limit = min(len(old), len(new))
    head = 0
    while head < limit and _same(old[head], new[head]):
        head += 1
    tail = 0
    while tail < limit - head and _same(old[-1 - tail], new[-1 - tail]):
        tail += 1
    return head, tail


def _same(old: Message, new: Message) -> bool:
    # To Python 1, 1.0 and True are equal; in JSON they are not.
    return old is new or (old == new and dumps(old.to_json()) == dumps(new.to_json()))


@dataclass(frozen=True, slots=True)
class Tail:
    """What the next revision is compared with.

    Attributes:
        revision: of the last one saved, 0 for none.
        messages: its messages.
        since_keyframe: revisions written since the last keyframe.
    """

    revision: int = 0
    messages: tuple[Message, ...] = ()
    since_keyframe: int = 0


class Tails:
    """The tails of recent conversations. What a transaction writes counts only once it is committed."""

    def __init__(self) -> None:
        self._committed: OrderedDict[Key, Tail] = OrderedDict()
        self._pending: dict[Key, Tail] = {}

    def get(self, key: Key) -> Tail | None:
        """The tail, if it is remembered."""
        return self._pending.get(key) or self._committed.get(key)

    def put(self, key: Key, tail: Tail) -> None:
        """Note what the present transaction wrote."""
        self._pending[key] = tail

    def forget(self, key: Key) -> None:
        """Read this conversation again when it is next saved."""
        self._pending.pop(key, None)
        self._committed.pop(key, None)

    def commit(self) -> None:
        """The transaction is durable."""
        for key, tail in self._pending.items():
            self._committed[key] = tail
            self._committed.move_to_end(key)
        self._pending.clear()
        while len(self._committed) > KEPT_TAILS:
            self._committed.popitem(last=False)

    def rollback(self) -> None:
        """The transaction was undone."""
        self._pending.clear()


def append(cursor: duckdb.DuckDBPyConnection, tails: Tails, key: Key, state: State, now: Any) -> int:
    """Add a revision.

    Args:
        cursor: in a transaction.
        tails: what was written before.
        key: whose it is.
        state: the State to save.
        now: time of saving, UTC.

    Returns:
        The revision.
    """
    before = tails.get(key) or read_tail(cursor, key)
    messages = state.messages
    head, tail = common_ends(before.messages, messages)
    keyframe = before.revision == 0 or before.since_keyframe + 1 >= KEYFRAME_EVERY
    if keyframe:
        head = tail = 0
    if head == tail == 0:
        keyframe = True
    added = messages[head : len(messages) - tail]
    rest = state.model_copy(update={"messages": ()}).to_json()
    revision = before.revision + 1
    cursor.execute(
        "INSERT INTO state_log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            *key,
            revision,
            head,
            tail,
            len(added),
            len(messages),
            dumps([message.to_json() for message in added]),
            dumps(rest),
            now,
        ],
    )
    tails.put(key, Tail(revision, messages, 0 if keyframe else before.since_keyframe + 1))
    return revision


def read_tail(cursor: duckdb.DuckDBPyConnection, key: Key) -> Tail:
    """The tail as it stands in the table."""
    found = read(cursor, key)
    if found is None:
        return Tail()
    revision, state = found
    row = cursor.execute(
        "SELECT max(revision) FROM state_log WHERE owner = ? AND conversation_id = ? "
        "AND keep_prefix = 0 AND keep_suffix = 0",
        [*key],
    ).fetchone()
    return Tail(revision, state.messages, revision - (row[0] if row and row[0] else revision))


def read(cursor: duckdb.DuckDBPyConnection, key: Key, revision: int | None = None) -> tuple[int, State] | None:
    """Put a revision together.

    Args:
        cursor: to read with.
        key: whose it is.
        revision: which, by default the newest.

    Returns:
        Its number and State; None when there is no such revision.
    """
    rows = cursor.execute(
        """
        SELECT revision, keep_prefix, keep_suffix, added, rest FROM state_log
        WHERE owner = $owner AND conversation_id = $conversation AND revision <= coalesce($revision, revision)
          AND revision >= (
            SELECT max(revision) FROM state_log
            WHERE owner = $owner AND conversation_id = $conversation AND revision <= coalesce($revision, revision)
              AND keep_prefix = 0 AND keep_suffix = 0)
        ORDER BY revision
        """,
        {"owner": key[0], "conversation": key[1], "revision": revision},
    ).fetchall()
    if not rows or (revision is not None and rows[-1][0] != revision):
        return None
    messages: list[Any] = []
    for _, head, tail, added, _ in rows:
        messages = messages[:head] + json.loads(added) + (messages[len(messages) - tail :] if tail else [])
    number, rest = rows[-1][0], json.loads(rows[-1][4])
    return number, State.from_json({**rest, "messages": messages})
