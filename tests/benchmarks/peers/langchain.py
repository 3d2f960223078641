"""LangChain's `create_agent`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from tests.benchmarks.peers.work import ANSWER, LOOKED_UP, PIECE, QUESTION, Contender


class Model(BaseChatModel):
    sleep: float = 0.0
    deltas: int = 0

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Model:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        if isinstance(messages[-1], HumanMessage):
            call = {"name": "lookup", "args": {"item": 7}, "id": f"call_{len(messages)}", "type": "tool_call"}
            message = AIMessage(content="", tool_calls=[call])
        else:
            message = AIMessage(content=ANSWER)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        if self.sleep:
            await asyncio.sleep(self.sleep)
        return self._generate(messages)

    async def _astream(self, messages: list[Any], *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for _number in range(self.deltas):
            yield ChatGenerationChunk(message=AIMessageChunk(content=PIECE))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", chunk_position="last"))


@tool
async def lookup(item: int) -> str:
    """Look an item up."""
    return LOOKED_UP


FIRST = [HumanMessage(QUESTION)]
SECOND = [HumanMessage(QUESTION), ToolMessage("", tool_call_id="call_1")]
MODEL = Model()


class Idle(AgentMiddleware):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    @property
    def name(self) -> str:
        return f"idle_{self.number}"

    async def abefore_model(self, state: Any, runtime: Any) -> None:
        pass

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        pass


class IdleAround(Idle):
    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        pass

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        pass


class LangChain(Contender):
    idle = (Idle, IdleAround)
    create = staticmethod(create_agent)

    def agent(self, *, middlewares: int = 0, agent_hooks: bool = False, sleep: float = 0.0, deltas: int = 0) -> Any:
        kind = IdleAround if agent_hooks else Idle
        stack = [kind(number) for number in range(middlewares)]
        return self.create(Model(sleep=sleep, deltas=deltas), [lookup], middleware=stack)

    async def turn(self, agent: Any, history: Any = None) -> tuple[str, Any]:
        result = await agent.ainvoke({"messages": [*(history or ()), HumanMessage(QUESTION)]})
        return result["messages"][-1].content, result["messages"]

    async def stream(self, agent: Any) -> int:
        pieces = 0
        messages = {"messages": [HumanMessage(QUESTION)]}
        async for chunk, _metadata in agent.astream(messages, stream_mode="messages"):
            pieces += chunk.content == PIECE
        return pieces

    async def alone(self) -> None:
        await MODEL._agenerate(FIRST)
        await lookup.coroutine(item=7)
        await MODEL._agenerate(SECOND)

    async def alone_streaming(self, deltas: int) -> None:
        async for _ in Model(deltas=deltas)._astream([]):
            pass


contender: Contender = LangChain()
