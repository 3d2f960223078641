"""Pauses: the run stops where it is, and goes on there, with nothing done twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sagents_nb import Agent, AgentError, Middleware, Pause, ScriptedModel, State, ToolCall, tool
from sagents_nb.events import Event, RunEnded
from sagents_nb.execution import run as run_module
from sagents_nb.hooks import HookRun
from sagents_nb.interrupts import Continuation

LOG: list[str] = []


@pytest.fixture(autouse=True)
def log() -> list[str]:
    LOG.clear()
    return LOG


@tool
async def work(n: int) -> str:
    """Work."""
    LOG.append(f"tool {n}")
    return f"worked {n}"


@tool
async def fails() -> str:
    """Fail."""
    LOG.append("tool fails")
    raise ValueError("no")


class Logs(Middleware):
    """Writes down every hook, and pauses in one of them, once."""

    pause_in: str = ""
    reason: Any = None

    async def _log(self, hook: str, run: HookRun) -> Pause | None:
        LOG.append(f"{hook}{' again' if run.resumed and hook.endswith('agent') else ''}")
        if hook == self.pause_in and not run.local.get("paused"):
            run.local["paused"] = True
            return Pause(self.reason)
        return None

    async def before_agent(self, state: State, run: HookRun) -> Any:
        return await self._log("before_agent", run)

    async def before_model(self, state: State, run: HookRun) -> Any:
        return await self._log("before_model", run)

    async def after_model(self, state: State, run: HookRun) -> Any:
        return await self._log("after_model", run)

    async def after_agent(self, state: State, run: HookRun) -> Any:
        return await self._log("after_agent", run)


def agent(pause_in: str = "", reason: Any = None, turns: Any = None) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(turns or [ToolCall("work", {"n": 1}, id="c1"), "done"])
    return Agent(model=model, tools=[work, fails], middleware=[Logs(pause_in=pause_in, reason=reason)]), model


HOOKS: list[tuple[str, int, list[str], list[str]]] = [
    # where it pauses, model calls until then, what happened in the first leg, what in the second
    (
        "before_agent",
        0,
        ["before_agent", "after_agent"],
        [
            "before_agent again",
            "before_model",
            "after_model",
            "tool 1",
            "before_model",
            "after_model",
            "after_agent again",
        ],
    ),
    (
        "before_model",
        0,
        ["before_agent", "before_model", "after_agent"],
        ["before_agent again", "after_model", "tool 1", "before_model", "after_model", "after_agent again"],
    ),
    (
        "after_model",
        1,
        ["before_agent", "before_model", "after_model", "after_agent"],
        ["before_agent again", "tool 1", "before_model", "after_model", "after_agent again"],
    ),
    (
        "after_agent",
        2,
        ["before_agent", "before_model", "after_model", "tool 1", "before_model", "after_model", "after_agent"],
        ["before_agent again", "after_agent again"],
    ),
]


async def stops_there_and_goes_on_there(hook: str, calls: int, first: list[str], second: list[str]) -> None:
    agent_, model = agent(hook)
    state = State.from_text("go", conversation_id="c")
    result = await agent_.execute(state)
    assert (result.status, len(model.requests), LOG) == ("paused", calls, first)
    LOG.clear()
    saved = State.from_json(result.state.to_json())  # as after a restart
    result = await agent_.resume(saved)
    assert (result.status, result.text, LOG) == ("completed", "done", second)
    assert len(model.requests) == 2
    assert [m.role for m in result.state.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.state.interrupt is None


@pytest.mark.parametrize(("hook", "calls", "first", "second"), HOOKS, ids=[row[0] for row in HOOKS])
async def test_a_hook_may_pause_and_the_run_goes_on_at_that_step(
    hook: str, calls: int, first: list[str], second: list[str]
) -> None:
    await stops_there_and_goes_on_there(hook, calls, first, second)


@pytest.mark.parametrize(("hook", "calls", "first", "second"), HOOKS[1:], ids=[row[0] for row in HOOKS[1:]])
async def test_were_the_place_forgotten_something_would_run_twice(
    hook: str, calls: int, first: list[str], second: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(**values: Any) -> Continuation:
        return Continuation(**{**values, "step": ""})

    monkeypatch.setattr(run_module, "Continuation", forgetful)
    with pytest.raises((AssertionError, AgentError)):
        await stops_there_and_goes_on_there(hook, calls, first, second)


async def test_the_reason_is_on_the_state() -> None:
    for reason in ({"cause": "store_unreachable"}, "lunch", None):
        agent_, _ = agent("before_model", reason)
        result = await agent_.execute(State.from_text("go", conversation_id="c"))
        assert result.status == "paused"
        assert [m.text for m in result.state.messages] == ["go"]
        assert result.interrupt is not None
        assert result.interrupt.kind == "pause"
        assert result.interrupt.data.get("reason") == reason
        assert result.interrupt.message == (reason if isinstance(reason, str) else "paused")


async def test_the_pause_button_stops_before_the_tools() -> None:
    agent_, model = agent()

    def press(event: Event) -> None:
        if not model.requests[1:]:
            assert agent_.pause() == 1

    result = await agent_.execute("go", callbacks={"on_llm_new_delta": press})
    assert (result.status, LOG) == ("paused", ["before_agent", "before_model", "after_model", "after_agent"])
    assert [m.role for m in result.state.messages] == ["user", "assistant"]
    result = await agent_.resume(result.state)
    assert (result.text, len(model.requests)) == ("done", 2)
    assert LOG.count("tool 1") == 1


async def test_the_pause_button_during_the_last_answer_comes_too_late() -> None:
    agent_, _ = agent(turns=["done"])
    result = await agent_.execute("go", callbacks={"on_llm_new_delta": lambda _event: agent_.pause()})
    assert (result.status, result.text) == ("completed", "done")
    assert agent_.pause() == 0


async def test_the_pause_button_stops_before_the_next_model_call() -> None:
    agent_, model = agent()
    result = await agent_.execute("go", callbacks={"on_tool_execution_completed": lambda _event: agent_.pause()})
    assert (result.status, len(model.requests)) == ("paused", 1)
    assert [m.role for m in result.state.messages] == ["user", "assistant", "tool"]
    assert (await agent_.resume(result.state)).text == "done"


async def test_the_pause_button_may_be_pressed_from_any_thread_and_for_one_conversation() -> None:
    reached, go_on = asyncio.Event(), threading.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        reached.set()
        while not go_on.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return "waited"

    model = ScriptedModel([ToolCall("wait"), ToolCall("wait"), "done", "done"])
    agent_ = Agent(model=model, tools=[wait])
    runs = [asyncio.ensure_future(agent_.execute(State.from_text("go", conversation_id=each))) for each in ("a", "b")]
    await reached.wait()
    await asyncio.sleep(0.05)
    asked: list[int] = []

    def press() -> None:
        asked.append(agent_.pause("a"))
        go_on.set()

    threading.Thread(target=press).start()
    first, second = await asyncio.gather(*runs)
    assert (first.status, second.status, asked) == ("paused", "completed", [1])


async def test_a_predicate_is_asked_before_model_calls_and_before_tools() -> None:
    agent_, _ = agent()
    asked: list[list[str]] = []

    def should_pause() -> bool:
        asked.append(list(LOG))
        return False

    await agent_.execute("go", should_pause=should_pause)
    logs = [[], ["before_model", "after_model"], ["tool 1"], ["before_model", "after_model"]]
    seen: list[str] = []
    steps = []
    for each in asked:
        steps.append([entry for entry in each[len(seen) :] if entry != "before_agent"])
        seen = each
    assert steps == logs


async def test_a_predicate_pauses() -> None:
    agent_, model = agent()
    result = await agent_.execute("go", should_pause=lambda: True)
    assert (result.status, len(model.requests)) == ("paused", 0)
    result = await agent_.resume(result.state, should_pause=lambda: bool(model.requests))
    assert (result.status, len(model.requests)) == ("paused", 1)
    assert (await agent_.resume(result.state)).text == "done"


async def test_what_was_used_up_travels_with_the_pause() -> None:
    agent_, model = agent(turns=[ToolCall("fails", id=f"c{n}") for n in range(5)])
    result = await agent_.execute("go", should_pause=lambda: LOG.count("tool fails") == 2)
    assert result.status == "paused"
    with pytest.raises(AgentError) as caught:
        await agent_.resume(State.from_json(result.state.to_json()))
    assert caught.value.type == "exceeded_failure_count"
    assert len(model.requests) == 3

    agent_, model = agent(turns=[ToolCall("work", {"n": n}, id=f"c{n}") for n in range(5)])
    LOG.clear()
    result = await agent_.execute("go", max_runs=3, should_pause=lambda: "tool 1" in LOG)
    with pytest.raises(AgentError) as caught:
        await agent_.resume(result.state)
    assert (caught.value.type, len(model.requests)) == ("exceeded_max_runs", 3)


async def test_the_tool_it_runs_until_travels_with_the_pause() -> None:
    agent_, model = agent(turns=[ToolCall("fails", id="c1"), ToolCall("work", {"n": 1}, id="c2"), "never"])
    result = await agent_.execute("go", until_tool_success=["work"], should_pause=lambda: bool(LOG[3:]))
    assert result.status == "paused"
    result = await agent_.resume(State.from_json(result.state.to_json()))
    assert result.tool_result is not None
    assert (result.tool_result.tool_call_id, len(model.requests)) == ("c2", 2)


async def test_a_new_message_lets_go_of_a_pause() -> None:
    agent_, model = agent(turns=[ToolCall("work", {"n": 1}, id="c1"), "instead"])
    paused = await agent_.execute("go", should_pause=lambda: bool(model.requests))
    result = await agent_.execute(paused.state.add_message("something else"))
    assert (result.text, result.state.interrupt) == ("instead", None)
    assert "tool 1" not in LOG
    assert "not executed" in result.state.messages[2].tool_results[0].text


WRONG: list[tuple[Callable[[State], State], str]] = [
    (lambda state: state.with_interrupt(None), "the State is not that of a run that was stopped; agent.resume goes on"),
    (lambda state: State.from_text("hi"), "is not that of a run that was stopped"),
]


@pytest.mark.parametrize(("spoil", "words"), WRONG)
async def test_only_what_was_paused_is_resumed(spoil: Callable[[State], State], words: str) -> None:
    agent_, _ = agent()
    paused = await agent_.execute("go", should_pause=lambda: True)
    with pytest.raises(AgentError) as caught:
        await agent_.resume(spoil(paused.state))
    assert caught.value.type == "nothing_to_resume"
    assert words in caught.value.message
    with pytest.raises(AgentError, match=r"the run is paused: go on with agent.resume\(state\), or add"):
        await agent_.execute(paused.state)


async def test_the_record_says_paused() -> None:
    agent_, _ = agent("before_model")
    result = await agent_.execute(State.from_text("go", conversation_id="c"))
    ended = [event for event in result.events if isinstance(event, RunEnded)]
    assert [event.status for event in ended] == ["paused"]
    resumed = await agent_.resume(result.state)
    assert [event.status for event in resumed.events if isinstance(event, RunEnded)] == ["completed"]
    assert resumed.events[0].to_json()["resumed"] is True


async def test_a_session_that_pauses_says_so_and_its_next_message_goes_on() -> None:
    model = ScriptedModel([ToolCall("work", {"n": 1}, id="c1"), "done", "more"])
    agent_ = Agent(model=model, tools=[work], middleware=[Logs(pause_in="after_model")])
    session = agent_.session()
    session.send("go")
    assert await session.idle(20) == "paused"
    assert session.status == "paused"
    session.send("and now?")
    assert await session.idle(20) == "idle"
    assert session.state.messages[-1].text == "done"
    await session.aclose()


async def test_a_pause_before_the_first_answer_is_not_let_go_of_by_the_old_message() -> None:
    agent_, model = agent()
    paused = await agent_.execute("go", should_pause=lambda: True)
    assert paused.state.messages[-1].role == "user"
    with pytest.raises(AgentError, match="the run is paused"):
        await agent_.execute(paused.state)
    assert model.requests == []
    assert (await agent_.execute(paused.state.add_message("and?"))).text == "done"
