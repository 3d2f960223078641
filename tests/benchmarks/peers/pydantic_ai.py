"""Pydantic AI; its nearest to a middleware is a capability."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model as BaseModel, ModelRequestParameters, StreamedResponse

from tests.benchmarks.peers.work import ANSWER, LOOKED_UP, PIECE, QUESTION, Contender


async def pieces_of(deltas: int) -> AsyncIterator[str]:
    for _ in range(deltas):
        yield PIECE


@dataclass
class Stream(StreamedResponse):
    deltas: int = 0
    model_name = "fake"
    provider_name = "fake"
    provider_url = None
    timestamp = datetime(2026, 1, 1, tzinfo=UTC)

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        async for piece in pieces_of(self.deltas):
            for event in self._parts_manager.handle_text_delta(vendor_part_id=0, content=piece):
                yield event

    async def close_stream(self) -> None:
        pass


class Model(BaseModel):
    model_name = "fake"
    system = "fake"

    def __init__(self, sleep: float = 0.0, deltas: int = 0) -> None:
        super().__init__()
        self.sleep = sleep
        self.deltas = deltas

    async def request(self, messages: list[Any], settings: Any, parameters: Any) -> ModelResponse:
        if self.sleep:
            await asyncio.sleep(self.sleep)
        part: Any
        if isinstance(messages[-1].parts[-1], UserPromptPart):
            part = ToolCallPart("lookup", {"item": 7}, tool_call_id=f"call_{len(messages)}")
        else:
            part = TextPart(ANSWER)
        return ModelResponse(parts=[part], model_name="fake")

    @asynccontextmanager
    async def request_stream(
        self, messages: list[Any], settings: Any, parameters: Any, context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        yield Stream(model_request_parameters=parameters, deltas=self.deltas)


async def lookup(item: int) -> str:
    """Look an item up.

    Args:
        item: its number
    """
    return LOOKED_UP


PARAMETERS = ModelRequestParameters()
FIRST = ModelRequest(parts=[UserPromptPart(QUESTION)])
SECOND = ModelRequest(parts=[ToolReturnPart("lookup", "", tool_call_id="call_1")])
MODEL = Model()


class Idle(AbstractCapability[Any]):
    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        return response


class IdleAround(Idle):
    async def before_run(self, ctx: Any) -> None:
        pass

    async def after_run(self, ctx: Any, *, result: Any) -> Any:
        return result


class PydanticAI(Contender):
    idle = (Idle, IdleAround)

    def agent(self, *, middlewares: int = 0, agent_hooks: bool = False, sleep: float = 0.0, deltas: int = 0) -> Any:
        kind = IdleAround if agent_hooks else Idle
        return Agent(Model(sleep, deltas), tools=[lookup], capabilities=[kind() for _ in range(middlewares)])

    async def turn(self, agent: Any, history: Any = None) -> tuple[str, Any]:
        result = await agent.run(QUESTION, message_history=history)
        return result.output, result.all_messages()

    async def stream(self, agent: Any) -> int:
        pieces = 0
        async with agent.run_stream(QUESTION) as result:
            # Without a debounce: by default the deltas of a tenth of a second come as one.
            async for piece in result.stream_text(delta=True, debounce_by=None):
                pieces += piece == PIECE
        return pieces

    async def alone(self) -> None:
        await MODEL.request([FIRST], None, PARAMETERS)
        await lookup(item=7)
        await MODEL.request([FIRST, SECOND], None, PARAMETERS)

    async def alone_streaming(self, deltas: int) -> None:
        async for _ in pieces_of(deltas):
            pass


contender = PydanticAI()
