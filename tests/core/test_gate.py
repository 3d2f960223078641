"""The gate: what a person has to approve does not run without, whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ApprovalRequest,
    ConfigurationError,
    Interrupt,
    Message,
    Middleware,
    ScriptedModel,
    State,
    ToolCall,
    tool,
)
from sagents_nb.events import HookEnded
from sagents_nb.execution import gate as gate_module, steps
from sagents_nb.execution.gate import digest
from sagents_nb.execution.loop import run_leg
from sagents_nb.execution.modes import Mode
from sagents_nb.hooks import HookRun

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def ran() -> list[Any]:
    RAN.clear()
    return RAN


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    RAN.append(("delete", path))
    return "deleted"


@tool
async def look() -> str:
    """Look around."""
    RAN.append("look")
    return "seen"


class Guard(Middleware):
    """Wants to be asked before something is deleted."""

    def needs_approval(self, call: ToolCall, run: HookRun) -> ApprovalRequest | None:
        return ApprovalRequest(description="It is gone then.") if call.name == "delete" else None


class AsyncGuard(Guard):
    """The same, awaiting."""

    async def needs_approval(self, call: ToolCall, run: HookRun) -> ApprovalRequest | None:  # type: ignore[override]
        return super().needs_approval(call, run)


def agent(*turns: Any, middleware: Any = (), **options: Any) -> Agent:
    return Agent(model=ScriptedModel(turns), tools=[delete, look], middleware=[*middleware, Guard()], **options)


CALL = ToolCall("delete", {"path": "/a"}, id="c1")


@pytest.mark.parametrize("guard", [Guard, AsyncGuard])
async def test_the_run_stops_before_any_tool_of_the_message_runs(guard: type[Guard]) -> None:
    model = ScriptedModel([[CALL, ToolCall("look", id="c2")], "never"])
    running = Agent(model=model, tools=[delete, look], middleware=[guard()])
    result = await running.execute("go")
    assert (result.status, RAN, len(model.requests)) == ("interrupted", [], 1)
    assert [m.role for m in result.state.messages] == ["user", "assistant"]
    assert result.interrupt is not None
    assert (result.interrupt.kind, result.interrupt.source, result.interrupt.message) == (
        "approval",
        guard.__name__,
        "Approve delete?",
    )
    assert result.interrupt.data["requests"] == [
        {
            "tool_call_id": "c1",
            "tool_name": "delete",
            "arguments": {"path": "/a"},
            "allowed_decisions": ["approve", "edit", "reject"],
            "description": "It is gone then.",
            "digest": digest("delete", {"path": "/a"}),
        }
    ]
    assert result.interrupt.continuation is not None
    assert result.interrupt.continuation.step == "run_tools"
    assert State.from_json(result.state.to_json()) == result.state


async def test_what_needs_no_approval_runs() -> None:
    result = await agent(ToolCall("look"), "done").execute("go")
    assert (result.text, RAN) == ("done", ["look"])


async def test_a_new_message_lets_go_of_it_and_nothing_ran() -> None:
    running = agent(CALL, "as you like")
    waiting = await running.execute("go")
    result = await running.execute(waiting.state.add_message("do not"))
    assert (result.text, RAN) == ("as you like", [])
    assert "not executed" in result.state.messages[2].tool_results[0].text


async def test_an_approval_is_worth_its_digest() -> None:
    for approved, runs in ((digest("delete", {"path": "/a"}), True), (digest("delete", {"path": "/b"}), False)):
        RAN.clear()
        run = agent(CALL, "done").begin("go")
        run.approved.add(approved)
        await run_leg(run)
        assert (run.outcome, bool(RAN)) == ("completed" if runs else "interrupted", runs)


DIGESTS: list[tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]], bool]] = [
    (("t", {"a": 1, "b": [1, {"c": None}]}), ("t", {"b": [1, {"c": None}], "a": 1}), True),
    (("t", {"a": 1}), ("u", {"a": 1}), False),
    (("t", {"a": 1}), ("t", {"a": "1"}), False),
    (("t", {"a": 1}), ("t", {"a": True}), False),
    (("t", {"a": 1}), ("t", {"a": 1.5}), False),
    (("t", {"a": "x"}), ("t", {"a": "x "}), False),
    (("t", {}), ("t", {"a": None}), False),
    (("t", {"a": ["b"]}), ("t", {"a": "b"}), False),
]


@pytest.mark.parametrize(("one", "other", "same"), DIGESTS)
def test_a_digest_names_one_call(
    one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]], same: bool
) -> None:
    assert (digest(*one) == digest(*other)) is same


class Swaps(Middleware):
    """Makes another call of the one that was asked for."""

    async def wrap_tool_call(self, call: ToolCall, context: Any, call_next: Any) -> Any:
        return await call_next(call.replace(name="delete", arguments={"path": "/etc"}))


class Insists(Middleware):
    """Puts a call into the conversation itself, after the model has answered."""

    def after_model(self, state: State, run: HookRun) -> State | None:
        if run.cycle > 1:
            return None
        return state.with_messages([*state.messages[:-1], state.messages[-1].replace(tool_calls=(CALL,))])


async def by_a_wrap_hook() -> None:
    await agent(ToolCall("look", id="c1"), "done", middleware=[Swaps()]).execute("go")


async def by_another_approved_call() -> None:
    """Approved was /a; what a wrap hook makes of it is /etc."""
    run = agent(CALL, "done", middleware=[Swaps()]).begin("go")
    run.approved.add(digest("delete", {"path": "/a"}))
    await run_leg(run)


async def by_a_hook_that_puts_the_call_in() -> None:
    await agent("Hello.", "done", middleware=[Insists()]).execute("go")


async def by_a_mode_without_the_step() -> None:
    raw = Mode("raw", tuple(step for step in steps.CYCLE if step is not gate_module.gate))
    await agent(CALL, "done", mode=raw).execute("go")


WAYS = [by_a_wrap_hook, by_another_approved_call, by_a_hook_that_puts_the_call_in, by_a_mode_without_the_step]


@pytest.mark.parametrize("way", WAYS)
async def test_there_is_no_way_around_it(way: Callable[[], Any]) -> None:
    await way()
    assert RAN == []


async def no_door(_run: object, _call: object) -> None:
    """Everything may pass."""


async def no_gate(_run: object) -> None:
    """Nobody is asked."""


@pytest.mark.parametrize("way", WAYS)
async def test_without_gate_and_door_there_would_be(way: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.execution.tool_calls.refusal", no_door)
    if way is by_a_hook_that_puts_the_call_in:
        monkeypatch.setattr(gate_module.gate, "__code__", no_gate.__code__)
    await way()
    assert RAN != []


async def test_the_model_is_told_what_was_not_run() -> None:
    result = await agent(ToolCall("look", id="c1"), "done", middleware=[Swaps()]).execute("go")
    (answer,) = result.state.messages[2].tool_results
    assert answer.is_error
    assert answer.text == (
        "Tool call delete needs a person's approval for exactly these arguments and has none, so it was not run."
    )
    assert (answer.tool_call_id, result.text) == ("c1", "done")


async def test_a_hook_that_interrupts_is_asked_about_before_the_gate() -> None:
    class Asks(Middleware):
        def after_model(self, state: State, run: HookRun) -> Interrupt:
            return Interrupt("question", "Sure?")

    result = await agent(CALL, middleware=[Asks()]).execute("go")
    assert result.interrupt is not None
    assert result.interrupt.kind == "question"
    assert result.interrupt.continuation is not None
    assert result.interrupt.continuation.step == "check_pause"


async def test_arguments_that_are_no_json_are_not_asked_about() -> None:
    broken = Message("assistant", "", tool_calls=[ToolCall("delete", {}, id="c1", invalid_arguments="{path")])
    result = await agent(broken, "done").execute("go")
    assert (result.text, RAN) == ("done", [])


async def test_a_guard_that_fails_lets_nothing_run() -> None:
    class Broken(Middleware):
        def needs_approval(self, call: ToolCall, run: HookRun) -> Any:
            raise ZeroDivisionError

    class Wrong(Middleware):
        def needs_approval(self, call: ToolCall, run: HookRun) -> Any:
            return True

    for guard, words in (
        (Broken(), "Broken.needs_approval raised ZeroDivisionError"),
        (Wrong(), "it returned a bool; needs_approval returns an ApprovalRequest, or None"),
    ):
        running = Agent(model=ScriptedModel([CALL]), tools=[delete], middleware=[guard])
        with pytest.raises(AgentError) as caught:
            await running.execute("go")
        assert caught.value.type == "middleware_error"
        assert words in caught.value.message
        assert RAN == []


async def test_asking_is_recorded_like_every_hook() -> None:
    result = await agent(CALL).execute("go")
    asked = [event for event in result.events if isinstance(event, HookEnded) and event.hook == "needs_approval"]
    assert [(event.middleware, event.cycle) for event in asked] == [("Guard", 1)]


def test_one_middleware_decides() -> None:
    with pytest.raises(ConfigurationError, match="Guard and AsyncGuard both decide what a person has to approve"):
        Agent(model=ScriptedModel([]), middleware=[Guard(), AsyncGuard()])


def test_the_agent_explains_who_decides() -> None:
    assert "needs_approval: Guard" in agent().explain()
