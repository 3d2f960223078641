"""The three channels: everybody who looks sees the same, and two agents never see each other's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sagents_nb import Agent, Message, Middleware, ModelRequest, ScriptedModel, State, ToolCall, ToolContext, tool
from sagents_nb.execution import run as run_module
from sagents_nb.hooks import HookRun


@dataclass(frozen=True)
class Scope:
    """For whom an agent runs."""

    user_id: int


Seen = list[tuple[str, Any, Any, Any]]


class Looks(Middleware):
    """Writes down what each hook sees of the channels."""

    seen: list[Any]

    def _look(self, where: str, state: State, run: HookRun) -> None:
        self.seen.append((where, run.scope, dict(run.tool_context), state.metadata.get("who")))
        run.local.setdefault("owners", set()).add(run.scope.user_id)
        assert run.local["owners"] == {run.scope.user_id}

    async def before_agent(self, state: State, run: HookRun) -> State:
        state = state.put_metadata("who", run.scope.user_id)
        self._look("before_agent", state, run)
        return state

    async def before_model(self, state: State, run: HookRun) -> None:
        self._look("before_model", state, run)
        await asyncio.sleep(0)

    async def after_model(self, state: State, run: HookRun) -> None:
        self._look("after_model", state, run)
        await asyncio.sleep(0)

    async def wrap_tool_call(self, call: ToolCall, context: ToolContext, call_next: Any) -> Any:
        who = context.state.metadata["who"]
        self.seen.append(("wrap_tool_call", context.scope, dict(context.tool_context), who))
        return await call_next(call)

    async def wrap_model_call(
        self, request: ModelRequest, call_next: Callable[[ModelRequest], Awaitable[Message]]
    ) -> Message:
        await asyncio.sleep(0)
        return await call_next(request)

    async def after_agent(self, state: State, run: HookRun) -> None:
        self._look("after_agent", state, run)


@tool
async def look(context: ToolContext) -> str:
    """Look, in the loop."""
    await asyncio.sleep(0)
    context.seen.append(("async tool", context.scope, plain(context), context.state.metadata["who"]))
    return str(context.flag)


@tool
def look_in_a_thread(context: ToolContext) -> str:
    """Look, in a thread."""
    context.seen.append(("sync tool", context.scope, plain(context), context.state.metadata["who"]))
    return str(context["flag"])


def plain(context: ToolContext) -> dict[str, Any]:
    return dict(context.tool_context)


def agent(user: int, seen: Seen, looks: Middleware) -> Agent:
    turns: list[Any] = [[ToolCall("look"), ToolCall("look_in_a_thread")], [ToolCall("look")], "done"]
    return Agent(
        model=ScriptedModel(turns),
        tools=[look, look_in_a_thread],
        middleware=[looks],
        scope=Scope(user),
        tool_context={"flag": f"flag {user}", "seen": seen},
    )


async def test_hooks_and_tools_see_the_same_channels() -> None:
    seen: Seen = []
    running = agent(1, seen, Looks(seen=seen))
    result = await running.execute("go")
    assert result.status == "completed"
    assert {where for where, *_ in seen} == {
        "before_agent",
        "before_model",
        "after_model",
        "wrap_tool_call",
        "async tool",
        "sync tool",
        "after_agent",
    }
    assert all(rest == [Scope(1), {"flag": "flag 1", "seen": seen}, 1] for _, *rest in seen)
    told = [item.text for message in result.state.messages for item in message.tool_results]
    assert told == ["flag 1"] * 3


async def two_agents_with_one_middleware() -> None:
    everything: Seen = []
    shared = Looks(seen=everything)
    own: dict[int, Seen] = {user: [] for user in range(1, 9)}
    agents = {user: agent(user, own[user], shared) for user in own}
    states = [State.from_text("go", conversation_id="the same id for all") for _ in agents]
    results = await asyncio.gather(*(each.execute(state) for each, state in zip(agents.values(), states, strict=True)))
    for user, result in zip(agents, results, strict=True):
        assert result.state.metadata == {"who": user}
        assert {(scope, extras["flag"], who) for _, scope, extras, who in own[user]} == {
            (Scope(user), f"flag {user}", user)
        }
    assert {(scope.user_id, extras["flag"], who) for _, scope, extras, who in everything} == {
        (user, f"flag {user}", user) for user in own
    }


async def test_agents_that_share_a_middleware_do_not_see_each_others_data() -> None:
    await two_agents_with_one_middleware()


async def test_were_the_notes_of_a_middleware_shared_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: dict[str, Any] = {}

    class Shared(HookRun):
        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, "local": shared})

    monkeypatch.setattr(run_module, "HookRun", Shared)
    with pytest.raises(Exception, match="AssertionError"):
        await two_agents_with_one_middleware()
