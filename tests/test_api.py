"""The public contract: the documented examples run as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from sagents_nb import (
    Agent,
    AgentError,
    AnthropicModel,
    ConfigurationError,
    File,
    Image,
    Message,
    Middleware,
    ScriptedModel,
    State,
    Text,
    Thinking,
    Todo,
    ToolCall,
    ToolContext,
    ToolResult,
    Usage,
    tool,
)


@tool
def get_weather(city: str) -> str:
    """Current weather in a city.

    Args:
        city: name of the city
    """
    return f"Sunny in {city}"


async def test_a_run() -> None:
    model = ScriptedModel([ToolCall("get_weather", {"city": "Oslo"}), "It is sunny in Oslo."])
    agent = Agent(model=model, tools=[get_weather], base_system_prompt="Be brief.")
    result = await agent.execute(State.from_text("Weather in Oslo?"))
    assert result.status == "completed"
    assert result.text == "It is sunny in Oslo."
    assert [m.role for m in result.state.messages] == ["user", "assistant", "tool", "assistant"]
    assert model.requests[0].system == "Be brief."
    assert model.requests[0].tools[0].input_schema["required"] == ["city"]
    assert get_weather("Oslo") == "Sunny in Oslo"


def test_a_run_from_code_that_does_not_await() -> None:
    assert Agent(model=ScriptedModel(["hi"])).run("hello").text == "hi"


async def test_hooks_and_the_sandwich() -> None:
    class Tracer(Middleware):
        tag: str
        log: list[str]

        def before_model(self, state: State, run: Any) -> State:
            self.log.append(f"{self.tag}.before")
            return state

        async def after_model(self, state: State, run: Any) -> None:
            self.log.append(f"{self.tag}.after")

    log: list[str] = []
    agent = Agent(
        model=ScriptedModel(["hi"]),
        middleware=[Tracer(name="A", tag="A", log=log), Tracer(name="B", tag="B", log=log)],
    )
    await agent.execute(State.from_text("hello"))
    assert log == ["A.before", "B.before", "B.after", "A.after"]
    assert agent.stack.order("before_model") == ["A", "B"]
    assert Agent(model=ScriptedModel([]), middleware=[Tracer(tag="x", log=log), Tracer(tag="y", log=log)]).stack.order(
        "before_model"
    ) == ["Tracer", "Tracer-2"]
    told = agent.explain()
    assert "before_model: A → B" in told
    assert "after_model: B → A" in told


async def test_the_three_channels() -> None:
    @dataclass(frozen=True)
    class Scope:
        user_id: int

    seen: list[Any] = []

    @tool
    def whoami(context: ToolContext) -> tuple[str, State]:
        "Who am I?"
        seen.extend(
            [
                context.scope,
                context.feature_flags,
                context["feature_flags"],
                dict(context.tool_context),
                context.state.metadata["seen"],
                context.agent_id,
                context.tool_call_id,
                context.conversation_id,
            ]
        )
        return "ok", context.state.put_metadata("last", "whoami")

    agent = Agent(
        model=ScriptedModel([ToolCall("whoami", id="c1"), "done"]),
        tools=[whoami],
        scope=Scope(42),
        tool_context={"feature_flags": {"beta": True}},
        agent_id="agent-1",
    )
    state = State.from_text("who?", metadata={"seen": 1}, conversation_id="conv-1")
    result = await agent.execute(state)
    flags = {"beta": True}
    assert seen == [Scope(42), flags, flags, {"feature_flags": flags}, 1, "agent-1", "c1", "conv-1"]
    assert result.state.metadata == {"seen": 1, "last": "whoami"}
    assert agent.all_tools["whoami"].input_schema["properties"] == {}


def test_claude_is_made_as_documented() -> None:
    assert AnthropicModel("claude-sonnet-4-5", max_tokens=4096).max_tokens == 4096
    local = AnthropicModel("m", base_url="http://127.0.0.1:8080", api_key="x")
    assert Agent(model=local).model is local


def test_the_shapes_of_values() -> None:
    assert ToolCall("n", {"a": 1}, id="c").id == "c"
    assert ToolResult("text").text == "text"
    assert Message("user", "hi").content == (Text("hi"),)
    assert Message("user", ["a", Text("b")]).text == "a\n\nb"
    assert Message("user", [Image(url="u"), File(name="f", url="u"), Thinking(text="t")]).text == ""
    total = Usage(input_tokens=1, output_tokens=2) + Usage(input_tokens=3, cache_read_tokens=4, cache_write_tokens=5)
    assert total == Usage(input_tokens=4, output_tokens=2, cache_read_tokens=4, cache_write_tokens=5)
    state = State.from_text("x").put_metadata("k", [1])
    assert state.get_metadata("k") == [1]
    assert state.get_metadata("no", "default") == "default"
    assert State.from_json(state.to_json()) == state
    assert State(messages=[Message("user", "x")]).messages == (Message("user", "x"),)
    assert Todo(id=1, content="c").status == "pending"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Agent(modle=1), TypeError, "Agent has no option 'modle' (did you mean 'model'?)"),  # type: ignore[call-arg]
        (lambda: Agent(), ConfigurationError, "Agent got no model; give it one: Agent(model=AnthropicModel("),
        (lambda: Agent(model="gpt"), ConfigurationError, "Agent got the model 'gpt', a str"),
        (
            lambda: Agent(model=ScriptedModel([]), tools=[get_weather, get_weather]),
            ConfigurationError,
            "two tools are named 'get_weather'; rename one with @tool(name='…')",
        ),
        (
            lambda: Agent(model=ScriptedModel([]), middleware=[Middleware]),
            ConfigurationError,
            "Middleware is the class; put an instance in the list: Middleware()",
        ),
        (lambda: Agent(model=ScriptedModel([]), middleware=[3]), ConfigurationError, "3 in middleware is a int"),
        (lambda: Agent(model=ScriptedModel([]), tools="x"), ConfigurationError, "'x' is no tool"),
        (
            lambda: Agent(model=ScriptedModel([]), tool_context=[("secret", 1)]),
            ConfigurationError,
            "Agent(tool_context=…) takes a dict with string keys, got a list",
        ),
        (
            lambda: Agent(model=ScriptedModel([]), callbacks={"on_llm_delta": print}),
            ConfigurationError,
            "there is no callback 'on_llm_delta' (did you mean 'on_llm_new_delta'?)",
        ),
        (lambda: State(mesages=[]), ValidationError, "mesages"),  # type: ignore[call-arg]
        (lambda: Message("usr", "x"), ValidationError, "'user', 'assistant', 'tool' or 'system'"),  # type: ignore[arg-type]
        (lambda: ScriptedModel("hi"), ConfigurationError, "ScriptedModel takes a list of turns: ScriptedModel(['hi'])"),
        (lambda: ScriptedModel([3]), ConfigurationError, "turn 1 of the ScriptedModel is 3, a int"),  # type: ignore[list-item]
    ],
)
def test_bad_input_is_answered_with_what_to_type(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)


async def test_a_model_out_of_turns_says_so_and_loses_nothing() -> None:
    with pytest.raises(AgentError, match="all 1 were used. Re-run the cell that makes the model") as caught:
        await Agent(model=ScriptedModel([ToolCall("get_weather", {"city": "X"})]), tools=[get_weather]).execute("go")
    assert caught.value.type == "script_exhausted"
    assert [m.role for m in caught.value.state.messages] == ["user", "assistant", "tool"]


async def test_neither_scope_nor_tool_context_is_in_any_repr() -> None:
    agent = Agent(
        model=ScriptedModel(["hi"]),
        scope={"token": "SCOPE-SECRET"},
        tool_context={"key": "CONTEXT-SECRET"},
        middleware=[Middleware()],
    )
    result = await agent.execute("hello")
    shown = [repr(agent), str(agent), repr(result), repr(result.state), repr(agent.stack), agent.explain()]
    for value in (agent, result, result.state, agent.stack):
        shown += [str(part) for part in value._repr_mimebundle_().values()]
    shown += [repr(event) + str(event.to_json()) for event in result.events]
    assert not [text for text in shown if "SECRET" in text]
