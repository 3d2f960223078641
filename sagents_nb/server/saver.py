"""Turns on their way into the store: collected while one is being saved, nothing lost when saving fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sagents_nb.events import Event
from sagents_nb.server.display import DisplayMessage
from sagents_nb.server.persistence import Persistence, Turn
from sagents_nb.state import State


class Saver:
    """Saves turn after turn of one conversation, one at a time, from the runtime's loop.

    Args:
        persistence: where to.
        scope: for whom.
        conversation_id: which conversation.
        on_saved: called with the revision after each turn.
        on_failed: called with the error; what was to be saved stays and goes with the next turn.
    """

    def __init__(
        self,
        persistence: Persistence,
        scope: Any,
        conversation_id: str,
        *,
        on_saved: Callable[[int], object],
        on_failed: Callable[[Exception], object],
    ) -> None:
        self._persistence = persistence
        self._scope = scope
        self._empty = Turn(conversation_id)
        self._waiting = self._empty
        self._saving: asyncio.Task[None] | None = None
        self._on_saved = on_saved
        self._on_failed = on_failed

    def add(
        self,
        *,
        state: State | None = None,
        added: tuple[DisplayMessage, ...] = (),
        changed: tuple[DisplayMessage, ...] = (),
        events: tuple[Event, ...] = (),
        title: str | None = None,
    ) -> None:
        """Note what is to be saved with the next turn."""
        self._waiting = _merge(
            self._waiting, replace(self._empty, state=state, added=added, changed=changed, events=events, title=title)
        )

    def save(self) -> None:
        """Begin to save what was noted; returns at once."""
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save_all())

    async def flush(self) -> None:
        """Save what was noted and wait until it is durable, or has failed."""
        self.save()
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _save_all(self) -> None:
        while self._waiting is not self._empty:
            turn, self._waiting = self._waiting, self._empty
            try:
                revision = await asyncio.wrap_future(self._persistence.save_turn(self._scope, turn))
            except Exception as error:  # noqa: BLE001 - shown by on_failed, and the turn is kept
                self._waiting = _merge(turn, self._waiting)
                self._on_failed(error)
                return
            self._on_saved(revision)


def _merge(first: Turn, then: Turn) -> Turn:
    """Two turns as one: rows changed later replace the same rows of earlier."""
    later = {row.id: row for row in then.changed}
    new = {row.id for row in first.added}
    unchanged = tuple(row for row in first.changed if row.id not in later)
    return replace(
        first,
        state=then.state if then.state is not None else first.state,
        added=(*(later.get(row.id, row) for row in first.added), *then.added),
        changed=(*unchanged, *(row for row in then.changed if row.id not in new)),
        events=first.events + then.events,
        title=then.title or first.title,
    )
