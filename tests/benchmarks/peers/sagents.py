"""This project."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sagents_nb import Agent, Message, Middleware, State, tool
from sagents_nb.deltas import Delta, StopDelta, TextDelta, ToolCallDelta
from sagents_nb.events import ModelDelta
from sagents_nb.hooks import HookRun
from sagents_nb.models import ChatModel, ModelRequest
from tests.benchmarks.peers.work import ANSWER, LOOKED_UP, PIECE, QUESTION, Contender


class Model(ChatModel):
    def __init__(self, sleep: float = 0.0, deltas: int = 0) -> None:
        self.sleep = sleep
        self.deltas = deltas

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        if self.sleep:
            await asyncio.sleep(self.sleep)
        if self.deltas:
            for _ in range(self.deltas):
                yield TextDelta(PIECE)
        elif request.messages[-1].role == "user":
            yield ToolCallDelta(0, '{"item": 7}', id=f"call_{len(request.messages)}", name="lookup")
        else:
            yield TextDelta(ANSWER)
        yield StopDelta()


@tool
async def lookup(item: int) -> str:
    """Look an item up.

    Args:
        item: its number
    """
    return LOOKED_UP


FIRST = ModelRequest(messages=(Message("user", QUESTION),))
SECOND = ModelRequest(messages=(Message("user", QUESTION), Message("tool")))


class Idle(Middleware):
    async def before_model(self, state: State, run: HookRun) -> None:
        pass

    async def after_model(self, state: State, run: HookRun) -> None:
        pass


class IdleAround(Idle):
    async def before_agent(self, state: State, run: HookRun) -> None:
        pass

    async def after_agent(self, state: State, run: HookRun) -> None:
        pass


class Sagents(Contender):
    idle = (Idle, IdleAround)

    def agent(self, *, middlewares: int = 0, agent_hooks: bool = False, sleep: float = 0.0, deltas: int = 0) -> Agent:
        kind = IdleAround if agent_hooks else Idle
        return Agent(model=Model(sleep, deltas), tools=[lookup], middleware=[kind() for _ in range(middlewares)])

    async def turn(self, agent: Agent, history: State | None = None) -> tuple[str, State]:
        result = await agent.execute((history or State()).add_message(Message("user", QUESTION)))
        return result.text, result.state

    async def stream(self, agent: Agent) -> int:
        pieces = 0
        async for event in agent.stream(QUESTION):
            pieces += isinstance(event, ModelDelta) and isinstance(event.delta, TextDelta)
        return pieces

    async def alone(self) -> None:
        model = Model()
        async for _ in model.stream(FIRST):
            pass
        await lookup.function(item=7)
        async for _ in model.stream(SECOND):
            pass

    async def alone_streaming(self, deltas: int) -> None:
        async for _ in Model(deltas=deltas).stream(ModelRequest()):
            pass


contender = Sagents()
