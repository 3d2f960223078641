"""States as an append-only log: each revision keeps a head and a tail of the messages before it, and adds its own.

Saving costs what a turn added; every revision can be read again; forking, summarising and editing need nothing special.
A row that keeps nothing is a keyframe: it holds the whole list, and reading begins there.
"""

from __future__ import annotations

import datetime as dt
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

from sagents_nb.messages import Message
from sagents_nb.state import State
from sagents_nb.store.encoding import encode, plain

KEYFRAME_AFTER = 256
"""Revisions after which the whole list is written again, once at least half of it is new since it was written last.

Without the second condition all keyframes of a conversation grow with the square of its length: after 20,000 turns of 1 kB
they were 780 MB. With it they are at most as much again as the messages, and so is what reading has to go through.
"""

Key: TypeAlias = tuple[str, str]
"""Owner and conversation."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What the next revision is compared with.

    Attributes:
        revision: of the last one saved, 0 for none.
        messages: its messages.
        keyframe: the revision reading begins at.
        added: messages added since that one.
    """

    revision: int = 0
    messages: tuple[Message, ...] = ()
    keyframe: int = 0
    added: int = 0


def common_ends(old: tuple[Message, ...], new: tuple[Message, ...]) -> tuple[int, int]:
    """How many messages two lists share at the head and, beyond it, at the tail."""
    limit = min(len(old), len(new))
    if all(map(operator.is_, old, new)):  # one pass without a call: the usual case, something was appended
        return limit, 0
    head = 0
    while head < limit and _same(old[head], new[head]):
        head += 1
    tail = 0
    while tail < limit - head and _same(old[-1 - tail], new[-1 - tail]):
        tail += 1
    return head, tail


def _same(old: Message, new: Message) -> bool:
    # By value: a State that was read again has the same messages as other objects, and writing them all again would cost
    # what writing every State in full costs. To Python 1, 1.0 and True are equal; in JSON they are not.
    return old is new or (old == new and old.model_dump_json() == new.model_dump_json())


def next_row(before: Tail, key: Key, state: State, now: dt.datetime, rest: str) -> tuple[list[Any], Tail]:
    """The row of the revision that follows.

    Args:
        before: the last one saved.
        key: whose it is.
        state: the State to save.
        now: time of saving, UTC.
        rest: the State without its messages, as JSON text.

    Returns:
        The row of ``state_log``, and what the revision after it is compared with.

    Raises:
        StoreError: a new message cannot be written.
    """
    messages, revision = state.messages, before.revision + 1
    head, tail = common_ends(before.messages, messages)
    new = len(messages) - head - tail
    grown = 2 * (before.added + new) >= len(messages)
    if head == tail == 0 or (revision - before.keyframe >= KEYFRAME_AFTER and grown):
        head = tail = 0
        after = Tail(revision, messages, revision, 0)
    else:
        after = Tail(revision, messages, before.keyframe, before.added + new)
    added = messages[head : len(messages) - tail]
    texts = encode(
        [plain(message, "a message of the State", nested=True) for message in added], "state.messages", first=head
    )
    row = [*key, revision, after.keyframe, head, tail, len(added), len(messages), texts, rest, now]
    return row, after


def rest_of(state: State) -> str:
    """The State without its messages, as JSON text.

    Raises:
        StoreError: something in it cannot be written.
    """
    return encode(plain(state.model_copy(update={"messages": ()}), "the State"), "state")


def read_tail(cursor: duckdb.DuckDBPyConnection, key: Key) -> Tail:
    """The tail as it stands in the table."""
    rows = _steps(cursor, key, None)
    if not rows:
        return Tail()
    revision, keyframe = rows[-1][0], rows[-1][1]
    messages = State.from_json({"messages": _fold(rows)}).messages
    return Tail(revision, messages, keyframe, sum(row[4] for row in rows[1:]))


def read(cursor: duckdb.DuckDBPyConnection, key: Key, revision: int | None = None) -> tuple[int, State] | None:
    """Put a revision together.

    Args:
        cursor: to read with.
        key: whose it is.
        revision: which, by default the newest.

    Returns:
        Its number and State; None when there is no such revision.
    """
    rows = _steps(cursor, key, revision)
    if not rows:
        return None
    return rows[-1][0], State.from_json({**json.loads(rows[-1][6]), "messages": _fold(rows)})


def _steps(cursor: duckdb.DuckDBPyConnection, key: Key, revision: int | None) -> list[tuple[Any, ...]]:
    which = "revision = ?" if revision is not None else "true ORDER BY revision DESC LIMIT 1"
    last = cursor.execute(
        f"SELECT revision, keyframe FROM state_log WHERE owner = ? AND conversation_id = ? AND {which}",  # noqa: S608 - ours
        [*key, *([] if revision is None else [revision])],
    ).fetchone()
    if last is None:
        return []
    return cursor.execute(
        "SELECT revision, keyframe, keep_prefix, keep_suffix, n_added, added, CASE WHEN revision = ? THEN rest END "
        "FROM state_log WHERE owner = ? AND conversation_id = ? AND revision BETWEEN ? AND ? ORDER BY revision",
        [last[0], *key, last[1], last[0]],
    ).fetchall()


def _fold(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    messages: list[Any] = []
    for _, _, head, tail, _, added, _ in rows:
        end = messages[len(messages) - tail :] if tail else []
        del messages[head:]
        messages += json.loads(added)
        messages += end
    return messages
