"""What a run gave back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sagents_nb.errors import AgentError
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

    def require_tool_result(self) -> ToolResult:
        """The result of a tool that the program goes on with.

        Returns:
            That of the tool the run was to run until; of any other run the first one without error of the latest batch,
            or its last one.

        Raises:
            AgentError: the run stopped before (``"interrupted"``, ``"paused"``), or no tool ran (``"no_tool_result"``).
        """
        if self.status != "completed":
            raise AgentError(
                f"the run is {self.status}, so there is no result yet; .interrupt says what it waits for",
                type=self.status,
                state=self.state,
            )
        if self.tool_result is not None:
            return self.tool_result
        latest = next((message for message in reversed(self.state.messages) if message.role == "tool"), None)
        if latest is None or not latest.tool_results:
            raise AgentError("no tool ran, so there is no tool result", type="no_tool_result", state=self.state)
        good = (result for result in latest.tool_results if not result.is_error)
        return next(good, latest.tool_results[-1])

    def processed(self) -> Any:
        """The value for the program of `require_tool_result`.

        Raises:
            AgentError: as there; or the tool gave none (``"no_processed_content"``).
        """
        value = self.require_tool_result().processed
        if value is None:
            raise AgentError(
                "the tool gave no value for the program; it returns (text, value) to give one",
                type="no_processed_content",
                state=self.state,
            )
        return value

    def tool_arguments(self) -> dict[str, Any]:
        """What the model called the tool of `require_tool_result` with.

        Raises:
            AgentError: as there; or the call is not in the State any more (``"no_tool_arguments"``).
        """
        wanted = self.require_tool_result().tool_call_id
        for message in reversed(self.state.messages):  # an id may come twice: the latest call is meant
            for call in message.tool_calls:
                if call.id == wanted:
                    return dict(call.arguments)
        raise AgentError(f"the call {wanted} is not in the State", type="no_tool_arguments", state=self.state)

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        from sagents_nb import _late

        return {"text/plain": repr(self), "text/html": _late.result_html(self)}

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 200 else self.text[:199] + "…"
        return f"RunResult({self.status}, {len(self.state.messages)} messages, text={text!r})"
