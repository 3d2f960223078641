"""One loop: whichever way a run is started, its hooks run in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from sagents_nb import Agent, Message, Middleware, ModelRequest, ScriptedModel, State, ToolCall, ToolContext, tool
from sagents_nb.events import Event, HookEnded
from sagents_nb.execution import loop
from sagents_nb.hooks import HookRun

from .doubles import TIMEOUT


class Every(Middleware):
    """Has every hook around the model and the tools."""

    def before_agent(self, state: State, run: HookRun) -> None:
        pass

    async def before_model(self, state: State, run: HookRun) -> State:
        return state.put_metadata(self.name, run.cycle)

    async def wrap_model_call(
        self, request: ModelRequest, call_next: Callable[[ModelRequest], Awaitable[Message]]
    ) -> Message:
        return await call_next(request)

    def after_model(self, state: State, run: HookRun) -> None:
        pass

    async def wrap_tool_call(self, call: ToolCall, context: ToolContext, call_next: Any) -> Any:
        return await call_next(call)

    def after_agent(self, state: State, run: HookRun) -> None:
        pass


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def agent() -> Agent:
    turns: list[Any] = [ToolCall("add", {"a": 1, "b": 2}), [ToolCall("add", {"a": 3, "b": 3}), "and"], "6"]
    return Agent(model=ScriptedModel(turns), tools=[add], middleware=[Every(name="A"), Every(name="B")])


Order = list[tuple[str, str]]


def order(events: Iterable[Event]) -> Order:
    return [(event.hook, event.middleware) for event in events if isinstance(event, HookEnded)]


async def by_execute() -> Order:
    return order((await agent().execute("go")).events)


async def by_run() -> Order:
    return order((await asyncio.to_thread(agent().run, "go")).events)


async def by_stream() -> Order:
    return order([event async for event in agent().stream("go")])


async def by_session() -> Order:
    session = agent().session()
    session.send("go")
    assert await session.idle(TIMEOUT) == "idle"
    events = session.snapshot().events
    await session.aclose()
    return order(events)


async def by_resume() -> Order:
    """Paused wherever it can be: what the agent hooks of the further legs add is taken out."""
    running = agent()
    result = await running.execute("go", should_pause=lambda: True)
    found = order(result.events)
    for _ in range(20):
        if result.status != "paused":
            break
        result = await running.resume(State.from_json(result.state.to_json()), should_pause=lambda: True)
        found += order(result.events)
    assert result.status == "completed"
    inner = [entry for entry in found if not entry[0].endswith("_agent")]
    legs = found.count(("before_agent", "A"))
    assert legs == 6  # before each of three model calls, and before the tools of two answers
    for hook, names in (("before_agent", "AB"), ("after_agent", "BA")):
        assert [entry for entry in found if entry[0] == hook] == [(hook, name) for name in names] * legs
    return [("before_agent", "A"), ("before_agent", "B"), *inner, ("after_agent", "B"), ("after_agent", "A")]


EXPECTED: Order = [
    ("before_agent", "A"),
    ("before_agent", "B"),
    *(
        entry
        for tools in (1, 1, 0)
        for entry in [
            ("before_model", "A"),
            ("before_model", "B"),
            ("wrap_model_call", "B"),
            ("wrap_model_call", "A"),
            ("after_model", "B"),
            ("after_model", "A"),
            *[("wrap_tool_call", "B"), ("wrap_tool_call", "A")] * tools,
        ]
    ),
    ("after_agent", "B"),
    ("after_agent", "A"),
]


@pytest.mark.parametrize("way", [by_execute, by_run, by_stream, by_session, by_resume])
async def test_every_way_into_a_run_has_the_same_order(way: Callable[[], Awaitable[Order]]) -> None:
    assert await way() == EXPECTED


async def test_another_order_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(_run: object) -> None:
        pass

    monkeypatch.setattr(loop, "_before_agent", nobody)
    for way in (by_execute, by_stream, by_session):
        assert await way() != EXPECTED
