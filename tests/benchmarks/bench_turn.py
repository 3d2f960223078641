"""What the toolkit itself costs: CPU of a turn with one tool call, the tool and the scripted model taken off.

Run it: ``python tests/benchmarks/bench_turn.py``. Machines are noisy; the minimum of many small batches says what the
code costs, the median what this machine made of it today.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from sagents_nb import Agent, Message, Middleware, ScriptedModel, State, ToolCall, tool
from sagents_nb.deltas import MessageBuilder
from sagents_nb.hooks import HookRun
from sagents_nb.models import ModelRequest

BATCHES = 100
TURNS = 20
"""Runs in a batch; each run is two model calls and one tool call."""


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


class Idle(Middleware):
    """Overrides the four State hooks and does nothing in them."""

    def before_agent(self, state: State, run: HookRun) -> None:
        pass

    def before_model(self, state: State, run: HookRun) -> None:
        pass

    def after_model(self, state: State, run: HookRun) -> None:
        pass

    def after_agent(self, state: State, run: HookRun) -> None:
        pass


def scripted() -> ScriptedModel:
    return ScriptedModel([ToolCall("add", {"a": 1, "b": 2}), "3"], repeat=True)


async def measure(job: Callable[[], Awaitable[object]]) -> list[float]:
    """CPU seconds of one call of `job`, batch by batch."""
    await job()
    spent = []
    for _ in range(BATCHES):
        before = time.process_time()
        for _ in range(TURNS):
            await job()
        spent.append((time.process_time() - before) / TURNS)
    return spent


async def main() -> None:
    model = scripted()
    messages = (Message("user", "1 + 2?"),)

    async def model_and_tool_alone() -> None:
        for _ in range(2):
            builder = MessageBuilder()
            async for delta in model.stream(ModelRequest(messages=messages)):
                builder.add(delta)
            builder.build()
        await add.function(a=1, b=2)
        model.requests.clear()

    print(f"{BATCHES} batches of {TURNS} runs; milliseconds of CPU for a run of two model calls and one tool call")
    print(f"{'':34}{'minimum':>9}{'median':>9}")
    base = await measure(model_and_tool_alone)
    print(f"{'model and tool alone':34}{min(base) * 1e3:9.3f}{statistics.median(base) * 1e3:9.3f}")
    for count in (0, 5):
        model = scripted()
        stack = [Idle(name=f"Idle{number}") for number in range(count)]
        agent = Agent(model=model, tools=[add], middleware=stack)
        state = State(messages=messages)

        async def run(agent: Agent = agent, state: State = state, model: ScriptedModel = model) -> None:
            await agent.execute(state)
            model.requests.clear()

        spent = await measure(run)
        least, middle = min(spent) - min(base), statistics.median(spent) - statistics.median(base)
        print(f"{f'toolkit, {count} middlewares':34}{least * 1e3:9.3f}{middle * 1e3:9.3f}")


if __name__ == "__main__":
    asyncio.run(main())
