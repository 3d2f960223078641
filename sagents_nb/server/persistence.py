"""What an agent server needs of a store, and its twin in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sagents_nb.events import Event
from sagents_nb.server.display import DisplayMessage
from sagents_nb.state import State


@dataclass(frozen=True, slots=True)
class Turn:
    """What is saved together, in one commit, or not at all.

    Attributes:
        conversation_id: whose turn it is; the conversation is made when it does not exist.
        state: the State as it is now, if it changed.
        added: new rows of the transcript.
        changed: rows that exist already, as they are now.
        events: what was recorded since the last turn.
        title: a new title for the conversation.
    """

    conversation_id: str
    state: State | None = None
    added: tuple[DisplayMessage, ...] = ()
    changed: tuple[DisplayMessage, ...] = ()
    events: tuple[Event, ...] = ()
    title: str | None = None


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation as it was saved last.

    Attributes:
        conversation_id: its id.
        title: its title, if it has one.
        revision: number of the last saved state, from 1; 0 when none was saved.
        state: that state.
        display_messages: the whole transcript, oldest first.
        last_event_seq: number of the last event saved, 0 for none.
    """

    conversation_id: str
    title: str | None
    revision: int
    state: State
    display_messages: tuple[DisplayMessage, ...]
    last_event_seq: int = 0


class Persistence(Protocol):
    """Where conversations are kept.

    The scope always comes first. It is mapped to an owner and never written anywhere; the conversation of
    another owner does not exist. Loading and saving return at once; what they return is done in another thread.
    """

    def owner_key(self, scope: Any) -> str:
        """The owner a scope stands for."""
        ...

    def load_conversation(self, scope: Any, conversation_id: str) -> Future[StoredConversation | None]:
        """The conversation, or None when this owner has none of that id."""
        ...

    def save_turn(self, scope: Any, turn: Turn) -> Future[int]:
        """Save a turn; the future holds the revision, once it is durable."""
        ...


def single_owner(_scope: Any) -> str:
    """Owner function for one person: every scope, None included, is the same owner."""
    return "local"


class MemoryPersistence:
    """Conversations of this process only; the twin of a store, for sessions without one.

    Args:
        owner: maps a scope to the owner's key.
    """

    def __init__(self, owner: Callable[[Any], Any] = single_owner) -> None:
        self._owner = owner
        self._lock = threading.Lock()
        self._conversations: dict[tuple[str, str], StoredConversation] = {}

    def owner_key(self, scope: Any) -> str:
        """See `Persistence`."""
        with self._lock:
            return str(self._owner(scope))

    def load_conversation(self, scope: Any, conversation_id: str) -> Future[StoredConversation | None]:
        """See `Persistence`."""
        done: Future[StoredConversation | None] = Future()
        key = (self.owner_key(scope), conversation_id)
        with self._lock:
            done.set_result(self._conversations.get(key))
        return done

    def save_turn(self, scope: Any, turn: Turn) -> Future[int]:
        """See `Persistence`."""
        key = (self.owner_key(scope), turn.conversation_id)
        done: Future[int] = Future()
        with self._lock:
            old = self._conversations.get(key) or StoredConversation(turn.conversation_id, None, 0, State(), ())
            rows = (*old.display_messages, *turn.added)
            if turn.changed:  # looking at every row costs a millisecond in a long conversation
                changed = {row.id: row for row in turn.changed}
                rows = tuple(changed.get(row.id, row) for row in rows)
            new = replace(
                old,
                display_messages=rows,
                title=turn.title or old.title,
                last_event_seq=turn.events[-1].seq if turn.events else old.last_event_seq,
            )
            if turn.state is not None:
                new = replace(new, state=turn.state, revision=old.revision + 1)
            self._conversations[key] = new
            done.set_result(new.revision)
        return done
