"""Turns on their way into the store: collected while one is being saved, nothing lost when saving fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sagents_nb.errors import StoreError
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
        self._conversation_id = conversation_id
        self._saving: asyncio.Task[None] | None = None
        self._on_saved = on_saved
        self._on_failed = on_failed
        self._noted: State | None = None
        self._clear()

    def _clear(self) -> None:
        # Lists and dicts, not a Turn: noting one event must not cost more the longer the store is out of order.
        self._state: State | None = None
        self._added: dict[str, DisplayMessage] = {}
        self._changed: dict[str, DisplayMessage] = {}
        self._events: list[Event] = []
        self._title: str | None = None

    def add(
        self,
        *,
        state: State | None = None,
        added: tuple[DisplayMessage, ...] = (),
        changed: tuple[DisplayMessage, ...] = (),
        events: tuple[Event, ...] = (),
        title: str | None = None,
    ) -> None:
        """Note what is to be saved with the next turn; a row changed later replaces what was noted of it."""
        if state is not None and state is not self._noted:  # the same State again is no new revision
            self._state = self._noted = state
        for row in added:
            self._added[row.id] = row
        for row in changed:
            (self._added if row.id in self._added else self._changed)[row.id] = row
        self._events += events
        self._title = title or self._title

    @property
    def has_unsaved(self) -> bool:
        """Whether anything noted waits to be saved."""
        return bool(self._state is not None or self._added or self._changed or self._events or self._title)

    def save(self) -> None:
        """Begin to save what was noted; returns at once."""
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save_all())

    async def flush(self) -> None:
        """Save what was noted and wait until it is durable, or has failed."""
        if self._saving is not None:  # if that one fails, this turn still gets a try of its own
            await asyncio.shield(self._saving)
        self.save()
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _save_all(self) -> None:
        while self.has_unsaved:
            turn = Turn(
                self._conversation_id,
                state=self._state,
                added=tuple(self._added.values()),
                changed=tuple(self._changed.values()),
                events=tuple(self._events),
                title=self._title,
            )
            self._clear()
            try:
                revision = await self._save_one(turn)
            except Exception as error:  # shown by on_failed, and the turn is kept
                self._put_back(turn)
                self._on_failed(error)
                return
            self._on_saved(revision)

    async def _save_one(self, turn: Turn) -> int:
        saving = self._persistence.save_turn(self._scope, turn)
        try:
            return await asyncio.wrap_future(saving)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # A store that closes cancels what waits in it. That is a failure like others, not the end of this task.
            raise StoreError("the store gave the turn up") from None

    def _put_back(self, turn: Turn) -> None:
        newer = (self._state, self._added, self._changed, self._events, self._title)
        self._clear()
        self.add(added=turn.added, changed=turn.changed, events=turn.events, title=turn.title)
        state, added, changed, events, title = newer
        self._state = turn.state if state is None else state
        self.add(added=tuple(added.values()), changed=tuple(changed.values()), events=tuple(events), title=title)
