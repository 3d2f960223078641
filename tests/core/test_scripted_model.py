"""The model that says what it is told to say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Message,
    ModelError,
    ModelRequest,
    ScriptedModel,
    Text,
    Thinking,
    ToolCall,
    Usage,
    tool,
)
from sagents_nb.deltas import Delta, MessageBuilder, StopDelta, TextDelta, ToolCallDelta


@tool
async def ping() -> str:
    "Answer pong."
    return "pong"


async def streamed(model: ScriptedModel, request: ModelRequest | None = None) -> list[Delta]:
    return [delta async for delta in model.stream(request or ModelRequest())]


async def answer(turn: Any, **options: Any) -> Message:
    builder = MessageBuilder()
    for delta in await streamed(ScriptedModel([turn], **options)):
        builder.add(delta)
    return builder.build()


WHOLE = Message(
    "assistant",
    [Thinking(text="hm", signature="seal"), Text("It is sunny.")],
    tool_calls=[ToolCall("ping", {"a": "☃"}, id="c1")],
    usage=Usage(input_tokens=3),
    status="length",
    metadata={"stop_reason": "max_tokens"},
)

TURNS: list[tuple[Any, Message]] = [
    ("hi", Message("assistant", "hi")),
    ("", Message("assistant")),
    (ToolCall("ping", id="c"), Message("assistant", tool_calls=[ToolCall("ping", id="c")])),
    (
        ["first", ToolCall("ping", id="c"), "", ToolCall("ping", id="d")],
        Message("assistant", "first", tool_calls=[ToolCall("ping", id="c"), ToolCall("ping", id="d")]),
    ),
    ([], Message("assistant")),
    (WHOLE, WHOLE),
    (lambda request: "made", Message("assistant", "made")),
    (
        ToolCall("ping", {}, invalid_arguments='{"a": ', id="c"),
        Message("assistant", tool_calls=[ToolCall("ping", {}, invalid_arguments='{"a": ', id="c")]),
    ),
]


@pytest.mark.parametrize(("turn", "message"), TURNS, ids=range(len(TURNS)))
@pytest.mark.parametrize("chunk_size", [1, 3, 1000])
async def test_a_turn_of_each_kind(turn: Any, message: Message, chunk_size: int) -> None:
    assert await answer(turn, chunk_size=chunk_size) == message


async def test_texts_stream_in_small_pieces_and_calls_name_themselves_first() -> None:
    deltas = await streamed(ScriptedModel([["It is sunny.", ToolCall("ping", {"a": 1}, id="c")]]))
    assert deltas == [
        TextDelta("It is su", 0),
        TextDelta("nny.", 0),
        ToolCallDelta(1, id="c", name="ping"),
        ToolCallDelta(1, '{"a": 1}'),
        StopDelta(),
    ]


async def test_ids_it_makes_up_are_the_same_every_time_and_different_in_one_run() -> None:
    async def ids() -> list[str]:
        agent = Agent(
            model=ScriptedModel([[ToolCall("ping"), ToolCall("ping")], ToolCall("ping"), "done"]), tools=[ping]
        )
        result = await agent.execute("go")
        return [call.id for message in result.state.messages for call in message.tool_calls]

    assert await ids() == await ids() == ["call_1_1", "call_1_2", "call_3_1"]


async def test_it_remembers_what_it_was_asked() -> None:
    model = ScriptedModel(["one", "two"])
    agent = Agent(model=model, base_system_prompt="Be brief.")
    first = await agent.execute("go")
    await agent.execute(first.state.add_message("on"))
    assert [[m.text for m in request.messages] for request in model.requests] == [["go"], ["go", "one", "on"]]
    assert repr(model) == "ScriptedModel(2 turns, 2 used)"


async def test_an_exception_is_raised_as_the_providers() -> None:
    with pytest.raises(AgentError) as caught:
        await Agent(model=ScriptedModel([ModelError("down", type="overloaded")])).execute("go")
    assert (caught.value.type, caught.value.message) == ("overloaded", "down")


async def test_out_of_turns_says_what_to_do() -> None:
    model = ScriptedModel(["one"])
    agent = Agent(model=model)
    await agent.execute("go")
    with pytest.raises(AgentError) as caught:
        await agent.execute("again")
    assert caught.value.type == "script_exhausted"
    assert caught.value.message == (
        "the ScriptedModel has no turn 2: all 1 were used. Re-run the cell that makes the model, add turns, or make it "
        "with repeat=True"
    )
    with pytest.raises(AgentError, match="all 0 were used"):
        await Agent(model=ScriptedModel([], repeat=True)).execute("go")


async def test_it_begins_again_when_told_to() -> None:
    agent = Agent(model=ScriptedModel(["a", "b"], repeat=True))
    assert [(await agent.execute("go")).text for _ in range(5)] == ["a", "b", "a", "b", "a"]


async def test_a_long_text_does_not_keep_the_loop_for_itself() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    await streamed(ScriptedModel(["x" * 8 * 500]))
    ticking.cancel()
    assert ticks >= 5


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ("hi", {}, "ScriptedModel takes a list of turns: ScriptedModel(['hi'])"),
    (ToolCall("t", id="c"), {}, "ScriptedModel takes a list of turns: ScriptedModel([ToolCall("),
    (["ok", 3], {}, "turn 2 of the ScriptedModel is 3, a int; it is a str, a ToolCall, a list of these, a Message"),
    ([[3]], {}, "turn 1 of the ScriptedModel is [3], a list"),
    ([{"role": "user"}], {}, "turn 1 of the ScriptedModel is {'role': 'user'}, a dict"),
    ([], {"chunk_size": 0}, "ScriptedModel needs chunk_size of at least 1 and a delay of at least 0, got 0, 0"),
    ([], {"delay": -1}, "got 8, -1"),
]


@pytest.mark.parametrize(("turns", "options", "words"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_turn_is_refused_where_it_is_written(turns: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ScriptedModel(turns, **options)
    assert words in str(caught.value)


async def test_a_function_that_returns_no_turn_is_told() -> None:
    with pytest.raises(AgentError, match="what the scripted function returned of the ScriptedModel is 3, a int"):
        await Agent(model=ScriptedModel([lambda request: 3])).execute("go")
