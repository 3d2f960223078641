"""The calls that are to run next."""

from __future__ import annotations

from sagents_nb.messages import ToolCall
from sagents_nb.state import State


def waiting_calls(state: State) -> tuple[ToolCall, ...]:
    """The calls of the last message, if it is a complete message of the model."""
    last = state.messages[-1] if state.messages else None
    if last is None or last.role != "assistant" or last.status != "complete":
        return ()
    return last.tool_calls
