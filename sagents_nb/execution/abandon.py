"""What becomes of an interrupt when the person writes something new instead of answering."""

from __future__ import annotations

from sagents_nb.errors import AgentError
from sagents_nb.interrupts import PAUSE, PendingInterrupt
from sagents_nb.messages import Message, ToolResult
from sagents_nb.state import State

ABANDONED = "The user did not respond to this and wrote a new message instead; proceed with their new request."
HALTED = "Tool halted: {message} The user has sent a new instruction since; follow that."


def abandon(state: State) -> State:
    """Let go of the pending interrupt: every call that waited for the person is answered with what happened.

    Raises:
        AgentError: there is no new message.
    """
    interrupt = state.interrupt
    if interrupt is None:
        return state
    known = interrupt.continuation.messages if interrupt.continuation is not None else 0
    if len(state.messages) <= known or state.messages[-1].role != "user":
        go_on = (
            "the run is paused: go on with agent.resume(state)"
            if interrupt.kind == PAUSE
            else f"the State waits for a person ({interrupt.kind})"
        )
        raise AgentError(
            f"{go_on}, or add the user's next message with state.add_message('…')",
            type="pending_interrupt",
            state=state,
        )
    halts = {item.tool_call_id: item.message for item in _all(interrupt) if item.kind == "halt"}

    def settle(result: ToolResult) -> ToolResult:
        if not result.is_interrupt:
            return result
        halt = halts.get(result.tool_call_id)
        text = HALTED.format(message=halt) if halt else ABANDONED
        return ToolResult(text, tool_call_id=result.tool_call_id, name=result.name, is_error=True)

    def settled(message: Message) -> Message:
        if not any(result.is_interrupt for result in message.tool_results):
            return message
        return message.model_copy(update={"tool_results": tuple(settle(r) for r in message.tool_results)})

    return state.with_messages(settled(message) for message in state.messages).with_interrupt(None)


def _all(interrupt: PendingInterrupt) -> list[PendingInterrupt]:
    return [interrupt, *(inner for member in interrupt.members for inner in _all(member))]
