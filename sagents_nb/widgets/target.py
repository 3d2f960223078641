"""What a view looks at: a session, an agent, a stack or a result, made alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagents_nb.errors import ConfigurationError
from sagents_nb.server.snapshot import SessionSnapshot
from sagents_nb.state import State
from sagents_nb.views.pages import agent_title, state_rows

if TYPE_CHECKING:
    from sagents_nb.views._types import AgentLike, StackLike
    from sagents_nb.widgets.mirror import Mirror


@dataclass(frozen=True, slots=True)
class Target:
    """What a view looks at.

    Attributes:
        stack: always there.
        agent: None for a bare stack.
        session: only of a session; without one nothing changes.
        result: only of a result.
    """

    stack: StackLike
    agent: AgentLike | None = None
    session: Any = None
    result: Any = None

    @classmethod
    def of(cls, what: Any, *, view: str) -> Target:
        """Find out what it is.

        Args:
            what: a session, an agent, a stack or a result.
            view: name of the view, for the error.

        Raises:
            ConfigurationError: it is none of these.
        """
        if hasattr(what, "subscribe_callback") and hasattr(what, "snapshot"):
            return cls(what.agent.stack, what.agent, session=what)
        if hasattr(what, "events") and hasattr(what, "state") and hasattr(what, "agent"):
            return cls(what.agent.stack, what.agent, result=what)
        if hasattr(what, "stack"):
            return cls(what.stack, what)
        if hasattr(what, "entries") and hasattr(what, "order"):
            return cls(what)
        raise ConfigurationError(
            f"{view} shows a session, an agent, a stack or a result, got {what!r}, a {type(what).__name__}; "
            f"for a conversation: {view}(agent.session())"
        )

    @property
    def title(self) -> str:
        """What to write over a view."""
        return agent_title(self.agent) if self.agent is not None else "Stack"

    def snapshot(self) -> SessionSnapshot:
        """Everything to draw, at this moment; from any thread."""
        if self.session is not None:
            snapshot: SessionSnapshot = self.session.snapshot()
            return snapshot
        agent_id = str(getattr(self.agent, "agent_id", "") or "")
        state, events = State(), ()
        if self.result is not None:
            state, events = self.result.state, tuple(self.result.events)
        waits = self.result is not None and self.result.status == "interrupted"
        return SessionSnapshot(
            seq=0,
            status="interrupted" if waits else "idle",
            error=None,
            conversation_id="",
            agent_id=agent_id,
            state=state,
            display_messages=tuple(state_rows(state, events)),
            events=events,
        )

    def state(self, mirror: Mirror) -> State:
        """The State now."""
        state: State = self.session.state if self.session is not None else mirror.state
        return state
