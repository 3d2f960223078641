"""What a run gave back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sagents_nb.events import Event
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.messages import ToolResult, Usage
from sagents_nb.state import State


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Attributes:
        status: ``"completed"``, ``"interrupted"`` (it waits for a person) or ``"paused"``.
        state: the State afterwards; go on from it.
        agent: the agent that ran.
        events: what happened, in order, streamed deltas left out; bounded to the latest.
        tool_result: result of the tool an until-tool run waited for.
        usage: tokens of all its model calls.
    """

    status: Literal["completed", "interrupted", "paused"]
    state: State
    agent: Any = field(repr=False)
    events: tuple[Event, ...] = field(default=(), repr=False)
    tool_result: ToolResult | None = None
    usage: Usage = field(default_factory=Usage, repr=False)

    @property
    def text(self) -> str:
        """Text of the last assistant message."""
        return self.state.last_text

    @property
    def interrupt(self) -> PendingInterrupt | None:
        """Why it waits for a person, if it does."""
        return self.state.interrupt

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        from sagents_nb import _late

        return {"text/plain": repr(self), "text/html": _late.result_html(self)}

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 200 else self.text[:199] + "…"
        return f"RunResult({self.status}, {len(self.state.messages)} messages, text={text!r})"
