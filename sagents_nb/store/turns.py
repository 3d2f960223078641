"""Turns into rows. Runs on the writer's thread only, which keeps in memory what it knows of recent conversations."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from sagents_nb.errors import StoreError, UnknownConversation
from sagents_nb.events import Event, ModelDelta
from sagents_nb.frozen import clean_text
from sagents_nb.ids import new_id
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.server.display import DisplayMessage, utc_now
from sagents_nb.server.persistence import Turn
from sagents_nb.store import leaks, log
from sagents_nb.store.encoding import check_text, encode
from sagents_nb.store.engine import Transaction
from sagents_nb.store.log import Key, Tail
from sagents_nb.store.schema import TABLES

KEPT_CARDS = 64
"""Conversations that the writer remembers; what it needs of others is read again when they are saved."""

MAX_TITLE = 255

_CARD = tuple(TABLES["conversations"][1])
_CHANGING = tuple(name for name in _CARD if name not in {"owner", "conversation_id", "inserted_at"})


@dataclass(slots=True)
class Card:
    """A conversation as the writer knows it: the columns of its row, and the end of its log.

    Attributes:
        stored: whether its row is in the table.
        tail: what the next State is compared with; None when it was not read yet.
    """

    owner: str
    conversation_id: str
    inserted_at: dt.datetime
    updated_at: dt.datetime
    title: str | None = None
    revision: int = 0
    n_messages: int = 0
    n_rows: int = 0
    interrupt: str | None = None
    forked_from: str | None = None
    forked_revision: int | None = None
    last_sequence: int = 0
    last_event_seq: int = 0
    stored: bool = False
    tail: Tail | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A turn as far as it can be written without looking at the database."""

    turn: Turn
    title: str | None
    rest: str | None
    added: list[list[Any]]
    changed: list[list[Any]]
    events: list[list[Any]]
    last_event_seq: int


_SEQUENCE, _ID, _CONTENT, _SEARCH, _STATUS, _METADATA, _ROW_REVISION, _UPDATED = (
    tuple(TABLES["display_messages"][1]).index(name)
    for name in ("sequence", "id", "content", "search_text", "status", "metadata", "revision", "updated_at")
)
_EVENT_REVISION = tuple(TABLES["events"][1]).index("revision")


def prepare(owner: str, scope: Any, turn: Turn) -> Prepared:
    """Check and encode a turn.

    Raises:
        StoreError: it holds the scope, or something that cannot be written; the text names the place.
    """
    forms = leaks.forms_of(scope)
    check_conversation_id(turn.conversation_id)
    title = check_title(turn.title) if turn.title is not None else None
    if turn.state is not None and forms:
        leaks.refuse_in_state(forms, turn.state)
    rest = log.rest_of(turn.state) if turn.state is not None else None
    events = [
        _event_row(owner, turn.conversation_id, event, forms)
        for event in turn.events
        if not isinstance(event, ModelDelta)  # the message they become is stored
    ]
    return Prepared(
        turn,
        title,
        rest,
        [_display_row(owner, turn.conversation_id, row, forms) for row in turn.added],
        [_display_row(owner, turn.conversation_id, row, forms) for row in turn.changed],
        events,
        # Also those that are not stored: numbers go on where they ended.
        max((event.seq for event in turn.events), default=0),
    )


class TurnWriter:
    """Writes turns, and knows what is durable.

    What a transaction writes is known only once it is committed: a State that was not saved is never the one the next is
    compared with.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Key, Card] = OrderedDict()
        self._pending: dict[Key, Card | None] = {}
        self._clock = dt.datetime.min.replace(tzinfo=dt.UTC)

    def save(self, transaction: Transaction, owner: str, prepared: Prepared) -> int:
        """Write a turn; gives the revision."""
        turn = prepared.turn
        key = (owner, turn.conversation_id)
        card = self._card(transaction, key) or self._new_card(key)
        if turn.state is not None and prepared.rest is not None:
            self._add_state(transaction, card, turn, prepared.rest)
        for row in prepared.added + prepared.changed:
            row[_ROW_REVISION] = card.revision
        fresh = [row for row in prepared.added if row[_SEQUENCE] > card.last_sequence]
        if len({row[_ID] for row in fresh}) < len(fresh):  # two rows of one id: the later one is what it is now
            fresh = list({row[_ID]: row for row in fresh}.values())
        self._add_rows(transaction, card, fresh)
        # A row that is there already is changed, one that is not is added: nothing is doubled and nothing lost, also when
        # the conversation was deleted meanwhile.
        numbers = {row[_ID] for row in fresh}
        self._put_rows(transaction, card, [row for row in prepared.added if row[_ID] not in numbers] + prepared.changed)
        for row in prepared.events:
            row[_EVENT_REVISION] = card.revision
        transaction.add("events", prepared.events)
        card.last_event_seq = max(card.last_event_seq, prepared.last_event_seq)
        card.title = prepared.title or card.title
        card.updated_at = self._now()
        return card.revision

    def fork(self, transaction: Transaction, key: Key, revision: int | None, title: str | None) -> str:
        """Begin a conversation with a State of another one and the transcript up to it; gives its id."""
        source = self._existing(transaction, key)
        transaction.flush()
        found = log.read(transaction.cursor, key, revision)
        if found is None:
            raise UnknownConversation(no_revision(key[1], revision, source.revision))
        number, state = found
        owner, new = key[0], new_id()
        card = self._new_card((owner, new))
        card.title, card.forked_from, card.forked_revision = title or source.title, key[1], number
        state = state.model_copy(update={"conversation_id": new})
        if state.interrupt is not None:  # each is answered once; this one may be answered again
            state = state.with_interrupt(_asked_again(state.interrupt))
        self._add_state(transaction, card, Turn(new, state=state), log.rest_of(state))
        columns = ", ".join(
            {"conversation_id": "?", "id": "CAST(uuidv7() AS VARCHAR)", "revision": "1"}.get(name, name)
            for name in TABLES["display_messages"][1]
        )
        transaction.cursor.execute(
            f"INSERT INTO display_messages SELECT {columns} FROM display_messages "  # noqa: S608 - our own names
            "WHERE owner = ? AND conversation_id = ? AND revision <= ? ORDER BY sequence",
            [new, *key, number],
        ).fetchall()
        row = transaction.cursor.execute(
            "SELECT count(*), coalesce(max(sequence), 0) FROM display_messages WHERE owner = ? AND conversation_id = ?",
            [owner, new],
        ).fetchone()
        assert row is not None
        card.n_rows, card.last_sequence = row
        return new

    def rename(self, transaction: Transaction, key: Key, title: str | None) -> None:
        """Give a conversation another title."""
        card = self._existing(transaction, key)
        if card.title != title:
            card.title = title
            card.updated_at = self._now()

    def delete(self, transaction: Transaction, key: Key) -> None:
        """Delete a conversation and all that belongs to it."""
        self._existing(transaction, key)
        transaction.flush()
        for table in ("events", "display_messages", "state_log", "conversations"):
            transaction.cursor.execute(
                f"DELETE FROM {table} WHERE owner = ? AND conversation_id = ?",  # noqa: S608 - our own names
                [*key],
            ).fetchall()
        self._pending[key] = None

    # What the engine tells.

    def finish(self, transaction: Transaction) -> None:
        """Write the index cards of the conversations that changed."""
        new = []
        for card in self._pending.values():
            if card is None:
                continue
            if not card.stored:
                new.append([getattr(card, name) for name in _CARD])
                card.stored = True
            else:
                transaction.cursor.execute(
                    f"UPDATE conversations SET {', '.join(f'{name} = ?' for name in _CHANGING)} "  # noqa: S608 - ours
                    "WHERE owner = ? AND conversation_id = ?",
                    [*(getattr(card, name) for name in _CHANGING), card.owner, card.conversation_id],
                ).fetchall()
        transaction.add("conversations", new)

    def committed(self) -> None:
        """What was written is durable, and so it is known."""
        for key, card in self._pending.items():
            self._known.pop(key, None)
            if card is not None:
                self._known[key] = card
        self._pending.clear()
        while len(self._known) > KEPT_CARDS:
            self._known.popitem(last=False)

    def undone(self) -> None:
        """Nothing was written. A failed COMMIT may leave it open what was: read it again."""
        for key in self._pending:
            self._known.pop(key, None)
        self._pending.clear()

    # Parts.

    def _card(self, transaction: Transaction, key: Key) -> Card | None:
        if key in self._pending:
            return self._pending[key]
        known = self._known.get(key)
        if known is not None:
            card = replace(known)
        else:
            row = transaction.cursor.execute(
                f"SELECT {', '.join(_CARD)} FROM conversations "  # noqa: S608 - our own names
                "WHERE owner = ? AND conversation_id = ?",
                [*key],
            ).fetchone()
            if row is None:
                return None
            card = Card(**dict(zip(_CARD, row, strict=True)), stored=True)
        self._pending[key] = card
        return card

    def _new_card(self, key: Key) -> Card:
        now = self._now()
        card = Card(*key, inserted_at=now, updated_at=now, tail=Tail())
        self._pending[key] = card
        return card

    def _existing(self, transaction: Transaction, key: Key) -> Card:
        card = self._card(transaction, key)
        if card is None:
            raise UnknownConversation(no_conversation(key[1]))
        return card

    def _now(self) -> dt.datetime:
        """Now, and never the same twice: what was saved last comes first in the list."""
        self._clock = max(utc_now(), self._clock + dt.timedelta(microseconds=1))
        return self._clock

    def _add_state(self, transaction: Transaction, card: Card, turn: Turn, rest: str) -> None:
        assert turn.state is not None
        key = (card.owner, card.conversation_id)
        if card.tail is None:
            transaction.flush()
            card.tail = log.read_tail(transaction.cursor, key)
        row, card.tail = log.next_row(card.tail, key, turn.state, self._now(), rest)
        transaction.add("state_log", [row])
        card.revision = card.tail.revision
        card.n_messages = len(turn.state.messages)
        card.interrupt = turn.state.interrupt.kind if turn.state.interrupt is not None else None

    def _add_rows(self, transaction: Transaction, card: Card, rows: list[list[Any]]) -> None:
        if rows:
            transaction.add("display_messages", rows)
            card.n_rows += len(rows)
            card.last_sequence = max(card.last_sequence, *(row[_SEQUENCE] for row in rows))

    def _put_rows(self, transaction: Transaction, card: Card, rows: list[list[Any]]) -> None:
        if not rows:
            return
        wanted = {row[_ID]: row for row in rows}  # of two changes of one row the later one is what it is now
        transaction.flush()
        there = dict(
            transaction.cursor.execute(
                "SELECT id, content FROM display_messages "
                "WHERE owner = ? AND conversation_id = ? AND list_contains(?, id)",
                [card.owner, card.conversation_id, list(wanted)],
            ).fetchall()
        )
        for name, row in wanted.items():
            if name not in there:
                continue
            changes = {
                "status": row[_STATUS],
                "metadata": row[_METADATA],
                "updated_at": row[_UPDATED] or self._now(),
            }
            # Only then: one changed text makes the next checkpoint write all texts of its row group again.
            if there[name] != row[_CONTENT]:
                changes |= {"content": row[_CONTENT], "search_text": row[_SEARCH]}
            transaction.cursor.execute(
                f"UPDATE display_messages SET {', '.join(f'{column} = ?' for column in changes)} "  # noqa: S608 - ours
                "WHERE owner = ? AND conversation_id = ? AND id = ?",
                [*changes.values(), card.owner, card.conversation_id, name],
            ).fetchall()
        self._add_rows(transaction, card, [row for name, row in wanted.items() if name not in there])


def check_conversation_id(conversation_id: Any) -> str:
    """The id itself, if it can be one.

    Raises:
        StoreError: it is no text, or an empty one.
    """
    if not isinstance(conversation_id, str) or not conversation_id:
        raise StoreError(
            f"{conversation_id!r} ({type(conversation_id).__name__}) is no conversation id; it is a text that is not "
            "empty. store.conversations(scope) lists them"
        )
    return check_text(conversation_id, "conversation_id")


def check_title(title: Any) -> str | None:
    """The title without blanks around it; None for a blank one.

    Raises:
        StoreError: it is no text, or too long.
    """
    if not isinstance(title, str):
        raise StoreError(f"a title is a text, got {title!r}, a {type(title).__name__}")
    if len(title) > MAX_TITLE:
        raise StoreError(f"the title has {len(title)} characters; give it at most {MAX_TITLE}")
    return clean_text(title).strip() or None


def no_conversation(conversation_id: str) -> str:
    """That an owner has no such conversation, in words."""
    return f"there is no conversation {conversation_id!r} for this owner; store.conversations(scope) lists them"


def no_revision(conversation_id: str, revision: int | None, newest: int) -> str:
    """That a conversation has no such revision, in words."""
    if not newest:
        return f"the conversation {conversation_id!r} has no saved State yet"
    return (
        f"the conversation {conversation_id!r} has no revision {revision!r}, only 1 to {newest}; "
        "store.history(scope, conversation_id) lists them"
    )


def _asked_again(interrupt: PendingInterrupt) -> PendingInterrupt:
    members = tuple(_asked_again(member) for member in interrupt.members)
    return interrupt.replace(id=new_id(), members=members)


def _display_row(owner: str, conversation_id: str, row: DisplayMessage, forms: list[Any]) -> list[Any]:
    path = f"display row {row.sequence}"
    if forms:
        leaks.refuse(forms, row.content, f"{path}.content")
        leaks.refuse(forms, row.metadata, f"{path}.metadata")
    return [
        owner,
        conversation_id,
        row.sequence,
        check_text(row.id, f"{path}.id"),
        row.message_type,
        row.content_type,
        encode(row.content, f"{path}.content"),
        clean_text(row.text),
        None if row.tool_call_id is None else clean_text(row.tool_call_id),
        row.status,
        encode(row.metadata, f"{path}.metadata"),
        0,
        row.inserted_at,
        row.updated_at,
    ]


def _event_row(owner: str, conversation_id: str, event: Event, forms: list[Any]) -> list[Any]:
    data = event.to_json()
    if forms:
        for name, value in data.items():
            leaks.refuse(forms, value, f"event {event.seq}.{name}")
    call = data.get("call") or {}
    message = data.get("message")
    usage = (message.get("usage") or {}) if isinstance(message, dict) else {}
    values = {
        **{name: data.get(name) for name in ("cycle", "middleware", "hook", "model", "name", "status", "duration")},
        **{name: data.get(name) for name in ("changed", "error")},
        "owner": owner,
        "conversation_id": conversation_id,
        "run_id": event.run_id or None,
        "seq": event.seq,
        "type": event.type,
        "happened_at": dt.datetime.fromtimestamp(event.at, dt.UTC),
        "tool_name": call.get("name"),
        "tool_call_id": call.get("id"),
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "revision": 0,
        "data": encode(data, f"event {event.seq}"),
    }
    return [clean_text(value) if isinstance(value := values[name], str) else value for name in TABLES["events"][1]]
