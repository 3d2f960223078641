"""A run as a stream of its events."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from sagents_nb import Agent, AgentError, ChatModel, ModelError, ModelRequest, ScriptedModel, ToolCall, tool
from sagents_nb.events import ModelDelta
from sagents_nb.execution.stream import RunStream
from sagents_nb.models import Delta, StopDelta, TextDelta


@tool
async def work() -> str:
    """Work."""
    return "worked"


def agent() -> Agent:
    return Agent(model=ScriptedModel([ToolCall("work", id="c1"), "Hello there!"]), tools=[work])


class Endless(ChatModel):
    """Talks until it is closed."""

    name = "endless"

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        try:
            for number in range(1_000_000):
                yield TextDelta(f"{number} ")
                await asyncio.sleep(0.001)
            yield StopDelta()
        finally:
            self.closed.set()


async def test_every_event_comes_in_order_and_the_result_at_the_end() -> None:
    stream = agent().stream("go")
    assert stream.result is None
    events = [event async for event in stream]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[0].type, events[-1].type) == ("run_started", "run_ended")
    assert "".join(event.text for event in events if isinstance(event, ModelDelta)) == "Hello there!"
    assert stream.result is not None
    assert (stream.result.status, stream.result.text) == ("completed", "Hello there!")
    assert stream.state is stream.result.state
    executed = await agent().execute("go")
    assert [e.type for e in events if not isinstance(e, ModelDelta)] == [e.type for e in executed.events]


async def test_events_come_while_it_runs() -> None:
    model = Endless()
    async for event in Agent(model=model).stream("go"):
        if isinstance(event, ModelDelta):
            assert not model.closed.is_set()
            break
    await asyncio.wait_for(model.closed.wait(), 5)


async def leaves_by_break(stream: RunStream) -> None:
    async for event in stream:
        if isinstance(event, ModelDelta):
            break


async def leaves_by_an_exception(stream: RunStream) -> None:
    with pytest.raises(ZeroDivisionError):
        async for event in stream:
            if isinstance(event, ModelDelta):
                raise ZeroDivisionError


async def leaves_by_closing(stream: RunStream) -> None:
    async with aclosing(aiter(stream)) as events:
        async for event in events:
            if isinstance(event, ModelDelta):
                break


async def leaves_by_being_cancelled(stream: RunStream) -> None:
    async def read() -> None:
        async for event in stream:
            assert event is not None

    task = asyncio.ensure_future(read())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


WAYS = [leaves_by_break, leaves_by_an_exception, leaves_by_closing, leaves_by_being_cancelled]


async def leaving_cancels(leave: Callable[[RunStream], Awaitable[None]]) -> None:
    model = Endless()
    stream = Agent(model=model).stream("go")
    others = asyncio.all_tasks()
    await leave(stream)
    await asyncio.wait_for(model.closed.wait(), 1)
    for _ in range(100):
        if asyncio.all_tasks() == others:
            break
        await asyncio.sleep(0.005)
    assert asyncio.all_tasks() == others
    assert stream.result is None
    last = stream.state.messages[-1]
    assert (last.status, last.text.startswith("0 ")) == ("cancelled", True)


@pytest.mark.parametrize("leave", WAYS)
async def test_leaving_the_loop_cancels_the_run_and_keeps_what_it_reached(
    leave: Callable[[RunStream], Awaitable[None]],
) -> None:
    await leaving_cancels(leave)


async def test_without_cancelling_it_would_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Endless()
    legs: list[asyncio.Future[None]] = []
    start = asyncio.ensure_future

    class Deaf:
        """Stands before the leg and does not pass the cancellation on."""

        def __init__(self, leg: asyncio.Future[None]) -> None:
            legs.append(leg)
            self.leg = leg

        def __getattr__(self, name: str) -> object:
            return (lambda: True) if name in ("done", "cancelled") else getattr(self.leg, name)

    monkeypatch.setattr("sagents_nb.execution.stream.asyncio.ensure_future", lambda job: Deaf(start(job)))
    await leaves_by_break(Agent(model=model).stream("go"))
    gc.collect()
    await asyncio.sleep(0.05)
    assert not model.closed.is_set()
    monkeypatch.undo()
    legs[0].cancel()
    await asyncio.wait(legs)


async def test_a_failed_run_gives_all_its_events_and_then_raises() -> None:
    stream = Agent(model=ScriptedModel([ModelError("too much", type="overloaded_error")])).stream("go")
    seen: list[str] = []

    async def read() -> None:
        async for event in stream:
            seen.append(event.type)

    with pytest.raises(AgentError) as caught:
        await read()
    assert caught.value.type == "overloaded_error"
    assert seen[-1] == "run_ended"
    assert stream.result is None


async def test_what_cannot_run_is_refused_at_once() -> None:
    with pytest.raises(AgentError, match="nothing to answer"):
        agent().stream(agent().begin("x").state.with_messages(()))


async def test_a_stream_is_read_once() -> None:
    stream = agent().stream("go")
    async for _ in stream:
        pass
    with pytest.raises(RuntimeError, match="can be read once"):
        async for _ in stream:
            pass


async def test_a_slow_reader_loses_nothing() -> None:
    seen = []
    async for event in agent().stream("go"):
        await asyncio.sleep(0.002)
        seen.append(event.seq)
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) > 10


async def test_two_streams_of_one_agent_do_not_mix() -> None:
    answers = ScriptedModel(["one one one", "two two two"])
    agent_ = Agent(model=answers)

    async def read() -> tuple[str, set[str]]:
        text, runs = "", set()
        async for event in agent_.stream("go"):
            await asyncio.sleep(0)
            runs.add(event.run_id)
            text += event.text if isinstance(event, ModelDelta) else ""
        return text, runs

    (first, runs_1), (second, runs_2) = await asyncio.gather(read(), read())
    assert {first, second} == {"one one one", "two two two"}
    assert len(runs_1 | runs_2) == 2


async def test_the_options_of_execute_are_its_options() -> None:
    stream = agent().stream("go", until_tool="work")
    async for _ in stream:
        pass
    assert stream.result is not None
    assert stream.result.tool_result is not None
    assert stream.result.tool_result.text == "worked"
