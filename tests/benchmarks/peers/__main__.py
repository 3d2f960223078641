"""One measurement in a fresh process: ``python -m tests.benchmarks.peers CONTENDER MEASURE SECONDS`` prints JSON."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import statistics
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any

from tests.benchmarks.peers.memory import peak
from tests.benchmarks.peers.work import ANSWER, Contender

DELTAS = 2_000
AGENTS = 500
SLEEP = 0.05
TURNS = 200
BATCH = 0.02
"""Seconds of CPU that one sample should take at least, so that the clock's own grain does not matter."""

Samples = dict[str, list[float]]


async def spend(job: Callable[[], Awaitable[Any]], seconds: float) -> list[float]:
    """CPU seconds of one call of `job`: as many samples as fit into `seconds`, but at least five."""
    for _ in range(3):
        await job()
    gc.collect()
    start = time.process_time()
    await job()
    size = max(1, round(BATCH / max(time.process_time() - start, 1e-6)))
    samples: list[float] = []
    end = time.process_time() + seconds
    while len(samples) < 5 or time.process_time() < end:
        start = time.process_time()
        for _ in range(size):
            await job()
        samples.append((time.process_time() - start) / size)
    return samples


async def ask(toolkit: Contender, agent: Any, history: Any = None) -> Any:
    """One turn; the history after it."""
    text, history = await toolkit.turn(agent, history)
    if text != ANSWER:
        raise AssertionError(f"the turn ended with {text!r}")
    return history


async def count_hooks(toolkit: Contender, agent: Any) -> int:
    """How many hooks that do nothing run in one turn, counted from outside."""
    hooks = {code for kind in toolkit.idle for code in _codes(kind)}
    calls = 0

    def look(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code in hooks

    sys.setprofile(look)
    try:
        await ask(toolkit, agent)
    finally:
        sys.setprofile(None)
    return calls


def _codes(kind: type) -> list[CodeType]:
    return [value.__code__ for value in vars(kind).values() if isinstance(value, FunctionType)]


async def turn(toolkit: Contender, seconds: float, *, middlewares: int = 0, agent_hooks: bool = False) -> Samples:
    """A turn with one tool call, and the same without the toolkit."""
    agent = toolkit.agent(middlewares=middlewares, agent_hooks=agent_hooks)
    expected = middlewares * (6 if agent_hooks else 4)
    await ask(toolkit, agent)
    if (calls := await count_hooks(toolkit, agent)) != expected:
        raise AssertionError(f"{calls} hooks ran in a turn with {middlewares} middlewares, expected {expected}")
    alone = await spend(toolkit.alone, seconds / 4)
    return {"alone": alone, "turn": await spend(partial(ask, toolkit, agent), seconds)}


async def build(toolkit: Contender, seconds: float) -> Samples:
    """Make an agent."""

    async def job() -> None:
        toolkit.agent()

    return {"build": await spend(job, seconds)}


async def deltas(toolkit: Contender, seconds: float) -> Samples:
    """A run that streams, one that streams hardly anything, and the streaming without the toolkit."""

    async def job(agent: Any, expected: int) -> None:
        arrived = await toolkit.stream(agent)
        if arrived != expected:
            raise AssertionError(f"{arrived} deltas arrived, expected {expected}")

    return {
        "long": await spend(partial(job, toolkit.agent(deltas=DELTAS + 1), DELTAS + 1), seconds),
        "short": await spend(partial(job, toolkit.agent(deltas=1), 1), seconds / 4),
        "alone": await spend(partial(toolkit.alone_streaming, DELTAS), seconds / 4),
    }


async def agents(toolkit: Contender, _seconds: float) -> Samples:
    """A turn of each of many agents, all at once; their model sleeps before each of its two answers."""
    await ask(toolkit, toolkit.agent())
    crowd = [toolkit.agent(sleep=SLEEP) for _ in range(AGENTS)]
    gc.collect()
    memory, cpu, wall = peak(), time.process_time(), time.perf_counter()
    await asyncio.gather(*(ask(toolkit, agent) for agent in crowd))
    return {
        "cpu": [time.process_time() - cpu],
        "wall": [time.perf_counter() - wall],
        "memory": [float(peak() - memory)],
    }


async def conversation(toolkit: Contender, seconds: float) -> Samples:
    """Many turns in one conversation, in memory: CPU of a turn among the first and the last twenty."""
    result: Samples = {"first": [], "last": [], "all": []}
    end = time.process_time() + seconds
    agent = toolkit.agent()
    for _ in range(3):
        await ask(toolkit, agent)
    while not result["all"] or time.process_time() < end:
        agent, history, spent = toolkit.agent(), None, []
        gc.collect()
        for _ in range(TURNS):
            start = time.process_time()
            history = await ask(toolkit, agent, history)
            spent.append(time.process_time() - start)
        # The median of twenty turns: a garbage collection that falls into one of them says nothing about that turn.
        result["first"].append(statistics.median(spent[:20]))
        result["last"].append(statistics.median(spent[-20:]))
        result["all"].append(sum(spent) / TURNS)
    return result


MEASURES: dict[str, Callable[[Contender, float], Coroutine[Any, Any, Samples]]] = {
    "turn": turn,
    "middlewares": partial(turn, middlewares=5),
    "agent_hooks": partial(turn, middlewares=5, agent_hooks=True),
    "build": build,
    "deltas": deltas,
    "agents": agents,
    "conversation": conversation,
}


def calibrate() -> float:
    """CPU seconds of a loop that is always the same: what it takes longer today, the machine did."""
    best = 1.0
    for _ in range(5):
        start = time.process_time()
        total = 0
        for number in range(60_000):
            total += number % 7
        best = min(best, time.process_time() - start)
    return best


def main(contender: str, measure: str, seconds: str) -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    module = importlib.import_module(f"tests.benchmarks.peers.{contender}")
    before = calibrate()
    samples = asyncio.run(MEASURES[measure](module.contender, float(seconds)))
    print(json.dumps({"samples": samples, "calibration": [before, calibrate()]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
