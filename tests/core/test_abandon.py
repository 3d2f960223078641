"""What becomes of an interrupt when the person writes something new, or when nobody knows of it any more."""

from __future__ import annotations

from typing import Any

import pytest

from sagents_nb import Agent, AgentError, Halt, Interrupt, Message, ScriptedModel, State, ToolCall, ToolResult, tool
from sagents_nb.events import HistoryRepaired
from sagents_nb.execution import repair


@tool
def ask() -> Interrupt:
    """Ask."""
    return Interrupt("question", "Which?")


@tool
def stop() -> Halt:
    """Stop."""
    return Halt("The budget is used up.")


@tool
def work() -> str:
    """Work."""
    return "worked"


GONE_ON = "The user did not respond to this and wrote a new message instead; proceed with their new request."
HALTED = "Tool halted: The budget is used up. The user has sent a new instruction since; follow that."

BATCHES: list[tuple[list[str], str, list[str]]] = [
    (["ask"], "question", [GONE_ON]),
    (["stop"], "halt", [HALTED]),
    (["ask", "work"], "question", [GONE_ON, "worked"]),
    (["ask", "ask"], "multiple", [GONE_ON, GONE_ON]),
    (["ask", "stop"], "halt", [GONE_ON, HALTED]),
    (["stop", "work", "ask"], "halt", [HALTED, "worked", GONE_ON]),
]


@pytest.mark.parametrize(("names", "kind", "told"), BATCHES)
async def test_a_new_message_answers_what_waited_with_what_happened(
    names: list[str], kind: str, told: list[str]
) -> None:
    calls = [ToolCall(name, id=f"c{place}") for place, name in enumerate(names)]
    model = ScriptedModel([calls, "as you like"])
    agent = Agent(model=model, tools=[ask, stop, work])
    waiting = await agent.execute("go")
    assert waiting.interrupt is not None
    assert (waiting.status, waiting.interrupt.kind) == ("interrupted", kind)
    pending = {item.tool_call_id for item in (waiting.interrupt, *waiting.interrupt.members)} - {None}
    assert pending == {call.id for call in calls if call.name != "work"}
    with pytest.raises(AgentError) as caught:
        await agent.execute(waiting.state)
    assert caught.value.type == "pending_interrupt"
    result = await agent.execute(State.from_json(waiting.state.to_json()).add_message("something else"))
    assert (result.text, result.interrupt) == ("as you like", None)
    results = model.requests[1].messages[2].tool_results
    assert [result.text for result in results] == told
    assert [result.is_error for result in results] == [text != "worked" for text in told]
    assert not any(result.is_interrupt for result in results)


def orphan() -> State:
    """A conversation that lost what one of its calls waited for: trimmed, edited, or saved by something else."""
    return State(
        messages=[
            Message("user", "go"),
            Message("assistant", "", tool_calls=[ToolCall("pay", id="c1"), ToolCall("work", id="c2")]),
            Message(
                "tool",
                tool_results=[
                    ToolResult("may I?", tool_call_id="c1", name="pay", is_interrupt=True),
                    ToolResult("worked", tool_call_id="c2", name="work"),
                ],
            ),
            Message("user", "and?"),
        ]
    )


async def nothing_waits_for_ever() -> Any:
    model = ScriptedModel(["done"])
    result = await Agent(model=model).execute(orphan())
    sent = model.requests[0].messages[2].tool_results
    assert [(item.tool_call_id, item.is_interrupt, item.is_error) for item in sent] == [
        ("c1", False, True),
        ("c2", False, False),
    ]
    assert "interrupted and could not be resumed" in sent[0].text
    assert "incompatible" in sent[0].text
    assert result.state.messages[2].tool_results == sent
    return [event.repairs for event in result.events if isinstance(event, HistoryRepaired)]


async def test_a_placeholder_that_nobody_answers_is_answered() -> None:
    assert await nothing_waits_for_ever() == [
        ("answered pay (c1), which waited for a person whom nobody asks any more",)
    ]


async def test_without_the_repair_it_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "repair_history", lambda messages: (messages, ()))
    monkeypatch.setattr("sagents_nb.execution.model_call.repair_history", lambda messages: (messages, ()))
    with pytest.raises(AssertionError):
        await nothing_waits_for_ever()


async def test_a_hook_that_interrupts_may_hand_over_a_state() -> None:
    from sagents_nb import Middleware

    class Asks(Middleware):
        def before_model(self, state: State, run: Any) -> Interrupt:
            return Interrupt("question", "Sure?", state=state.put_metadata("asked", value=True))

    result = await Agent(model=ScriptedModel([]), middleware=[Asks()]).execute("go")
    assert result.state.metadata == {"asked": True}
    assert result.interrupt is not None
    assert "state" not in result.interrupt.to_json()


async def test_a_tool_that_interrupts_may_hand_over_a_state() -> None:
    from sagents_nb import ToolContext

    @tool
    def asks(context: ToolContext) -> Interrupt:
        """Ask."""
        return Interrupt("question", "Sure?", state=context.state.put_metadata("asked", value=True))

    result = await Agent(model=ScriptedModel([ToolCall("asks")]), tools=[asks]).execute("go")
    assert (result.status, result.state.metadata) == ("interrupted", {"asked": True})
