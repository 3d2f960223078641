"""A session at one moment, complete, so that a view can be drawn from it alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sagents_nb.events import Event
from sagents_nb.server.display import DisplayMessage
from sagents_nb.state import State

SessionStatus: TypeAlias = Literal["idle", "running", "interrupted", "paused", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """Everything a view shows, and the number of the last event that is in it.

    Attributes:
        seq: every event with a higher number came after this snapshot.
        status: what the session does.
        error: what went wrong last, in words, while the status is ``"error"``.
        conversation_id: which conversation.
        agent_id: which agent.
        state: what the model sees.
        display_messages: what people see.
        streaming_text: the answer being streamed, as far as it came.
        streaming_thinking: the thought being streamed.
        queue: messages that wait for the present run to end.
        events: the latest events, oldest first, without the deltas; bounded.
    """

    seq: int
    status: SessionStatus
    error: str | None
    conversation_id: str
    agent_id: str
    state: State
    display_messages: tuple[DisplayMessage, ...]
    streaming_text: str = ""
    streaming_thinking: str = ""
    queue: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
