"""The OpenAI Agents SDK; its nearest to a middleware is `RunHooks`, which observe and cannot change anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, ModelResponse, RunConfig, RunHooks, Runner, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model as BaseModel
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from tests.benchmarks.peers.work import ANSWER, LOOKED_UP, PIECE, QUESTION, Contender

set_tracing_disabled(True)
SETTINGS = RunConfig(tracing_disabled=True)


def said(text: str) -> ResponseOutputMessage:
    content = [ResponseOutputText(annotations=[], text=text, type="output_text")]
    return ResponseOutputMessage(id="m", content=content, role="assistant", status="completed", type="message")


class Model(BaseModel):
    def __init__(self, sleep: float = 0.0, deltas: int = 0) -> None:
        self.sleep = sleep
        self.deltas = deltas

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        if self.sleep:
            await asyncio.sleep(self.sleep)
        output: Any
        if isinstance(input, str) or input[-1].get("role") == "user":
            output = ResponseFunctionToolCall(
                arguments='{"item": 7}', call_id=f"call_{len(input)}", name="lookup", type="function_call"
            )
        else:
            output = said(ANSWER)
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        for number in range(self.deltas):
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=PIECE,
                item_id="m",
                logprobs=[],
                output_index=0,
                sequence_number=number,
                type="response.output_text.delta",
            )
        response = Response(
            id="r",
            created_at=0,
            model="fake",
            object="response",
            output=[said(PIECE * self.deltas)],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(response=response, sequence_number=self.deltas, type="response.completed")


async def look_up(item: int) -> str:
    """Look an item up.

    Args:
        item: its number
    """
    return LOOKED_UP


lookup = function_tool(look_up, name_override="lookup")


class Idle:
    async def before_model(self, *_: Any) -> None:
        pass

    async def after_model(self, *_: Any) -> None:
        pass


class IdleAround(Idle):
    async def before_agent(self, *_: Any) -> None:
        pass

    async def after_agent(self, *_: Any) -> None:
        pass


class Several(RunHooks[Any]):
    """A run takes one `RunHooks`; this one asks several."""

    def __init__(self, members: list[Any]) -> None:
        self.members = members

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        for member in self.members:
            await member.before_model(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        for member in self.members:
            await member.after_model(context, agent, response)


class SeveralAround(Several):
    async def on_agent_start(self, context: Any, agent: Any) -> None:
        for member in self.members:
            await member.before_agent(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        for member in self.members:
            await member.after_agent(context, agent, output)


class OpenAIAgents(Contender):
    idle = (Idle, IdleAround)

    def agent(self, *, middlewares: int = 0, agent_hooks: bool = False, sleep: float = 0.0, deltas: int = 0) -> Any:
        agent: Any = Agent(name="agent", model=Model(sleep, deltas), tools=[lookup])
        hooks: Several | None = None
        if middlewares and agent_hooks:
            hooks = SeveralAround([IdleAround() for _ in range(middlewares)])
        elif middlewares:
            hooks = Several([Idle() for _ in range(middlewares)])
        return agent, hooks

    async def turn(self, agent: Any, history: Any = None) -> tuple[str, Any]:
        one, hooks = agent
        messages = [*(history or ()), {"role": "user", "content": QUESTION}]
        result = await Runner.run(one, messages, hooks=hooks, run_config=SETTINGS)
        return result.final_output, result.to_input_list()

    async def stream(self, agent: Any) -> int:
        pieces = 0
        one, hooks = agent
        result = Runner.run_streamed(one, QUESTION, hooks=hooks, run_config=SETTINGS)
        async for event in result.stream_events():
            pieces += event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        return pieces

    async def alone(self) -> None:
        model = Model()
        await model.get_response(None, QUESTION)
        await look_up(item=7)
        await model.get_response(None, [{"type": "function_call_output"}])

    async def alone_streaming(self, deltas: int) -> None:
        async for _ in Model(deltas=deltas).stream_response():
            pass


contender = OpenAIAgents()
