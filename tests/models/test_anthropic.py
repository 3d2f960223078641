"""AnthropicModel, through the real SDK, against a real server on loopback."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from sagents_nb import (
    Agent,
    AgentError,
    AnthropicModel,
    ConfigurationError,
    File,
    Image,
    Message,
    Middleware,
    ModelError,
    State,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    tool,
)
from sagents_nb.events import ModelDelta, ModelEnded, ModelFailed
from sagents_nb.execution import model_call
from sagents_nb.models import MessageBuilder, ModelRequest, anthropic
from tests.support import messages_server
from tests.support.cancelled import state_reached
from tests.support.messages_server import (
    MessagesServer,
    drop,
    hang_up,
    http_error,
    redacted_thinking,
    refusal,
    reply,
    stall,
    stream_error,
    text,
    thinking,
    tool_use,
)


@tool
def get_weather(city: str) -> str:
    """Current weather in a city."""
    return f"Sunny in {city}"


@asynccontextmanager
async def claude(script: Sequence[Any], **options: Any) -> AsyncIterator[tuple[AnthropicModel, MessagesServer]]:
    with MessagesServer(script) as server:
        model = AnthropicModel("claude-test", base_url=server.url, api_key="sk-test-secret", **options)
        try:
            yield model, server
        finally:
            await model.aclose()


async def test_text_streams_in_pieces_and_becomes_one_message() -> None:
    async with claude([reply(text("Hello, world!", chunks=5))]) as (model, server):
        result = await Agent(model=model, base_system_prompt="Be brief.").execute("Hi")
        seen = [event.message.text for event in result.events if isinstance(event, ModelEnded)]
    assert result.text == "Hello, world!"
    assert seen == ["Hello, world!"]
    body = server.requests[0].body
    assert body["model"] == "claude-test"
    assert body["max_tokens"] == 4096
    assert body["stream"] is True
    assert [block["text"] for block in body["system"]] == ["Be brief."]
    assert body["messages"][0]["role"] == "user"
    assert body["messages"][0]["content"][0]["text"] == "Hi"


async def test_every_piece_arrives_while_the_answer_is_still_coming() -> None:
    pieces: list[str] = []
    async with claude([reply(text("one two three four", chunks=4))]) as (model, _):
        agent = Agent(model=model, callbacks={"on_llm_new_delta": lambda event: pieces.append(event.text)})
        await agent.execute("count")
    assert [piece for piece in pieces if piece] == ["one ", "two ", "thre", "e fo", "ur"]


async def test_a_tool_call_whose_json_comes_in_pieces_runs_and_its_result_is_sent_back() -> None:
    script = [
        reply(text("Let me look."), tool_use("get_weather", {"city": "Oslo"}), stop_reason="tool_use"),
        reply(text("It is sunny in Oslo.")),
    ]
    async with claude(script) as (model, server):
        result = await Agent(model=model, tools=[get_weather]).execute("Weather in Oslo?")
    assert [m.role for m in result.state.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.text == "It is sunny in Oslo."
    call = result.state.messages[1].tool_calls[0]
    assert (call.name, call.arguments) == ("get_weather", {"city": "Oslo"})
    second = server.requests[1].body["messages"]
    assert [m["role"] for m in second] == ["user", "assistant", "user"]
    assert second[1]["content"][1] == {
        "type": "tool_use",
        "id": call.id,
        "name": "get_weather",
        "input": {"city": "Oslo"},
    }
    answer = second[2]["content"][0]
    assert (answer["type"], answer["tool_use_id"]) == ("tool_result", call.id)
    assert answer["content"][0]["text"] == "Sunny in Oslo"
    offered = server.requests[0].body["tools"][0]
    assert offered["name"] == "get_weather"
    assert offered["description"] == "Current weather in a city."
    assert offered["input_schema"]["required"] == ["city"]


async def test_thoughts_keep_their_signature_and_go_back_as_they_came() -> None:
    script = [
        reply(
            thinking("Hm, Oslo.", signature="c2Vh"),
            redacted_thinking("c2VjcmV0"),
            tool_use("get_weather", {"city": "Oslo"}),
            stop_reason="tool_use",
        ),
        reply(text("Sunny.")),
    ]
    async with claude(script, thinking_budget=1024) as (model, server):
        result = await Agent(model=model, tools=[get_weather]).execute("Weather?")
    assert result.state.messages[1].content == (
        Thinking(text="Hm, Oslo.", signature="c2Vh"),
        Thinking(redacted="c2VjcmV0"),
    )
    assert server.requests[0].body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert server.requests[1].body["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "Hm, Oslo.", "signature": "c2Vh"},
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
    ]


async def test_usage_and_the_ids_of_the_request_are_kept() -> None:
    usage = {
        "input_tokens": 25,
        "output_tokens": 7,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 2,
    }
    async with claude([reply(text("Hi."), usage=usage)]) as (model, _):
        result = await Agent(model=model).execute("Hi")
    message = result.state.messages[-1]
    assert message.usage == Usage(input_tokens=25, output_tokens=7, cache_read_tokens=3, cache_write_tokens=2)
    assert message.metadata["stop_reason"] == "end_turn"
    assert message.metadata["request_id"].startswith("req_")


@pytest.mark.parametrize(
    ("turn", "status", "said"),
    [
        (reply(text("Cut off he"), stop_reason="max_tokens"), "length", "Cut off he"),
        (reply(text("Too much"), stop_reason="model_context_window_exceeded"), "length", "Too much"),
        (refusal(text("I cannot")), "refused", "I cannot"),
        (reply(text("So"), stop_reason="a_reason_of_tomorrow"), "complete", "So"),
        (reply(text("Stop here"), stop_reason="stop_sequence"), "complete", "Stop here"),
    ],
)
async def test_how_the_answer_ended_is_its_status(turn: Any, status: str, said: str) -> None:
    async with claude([turn]) as (model, _):
        result = await Agent(model=model).execute("Go")
    assert result.status == "completed"
    assert result.state.messages[-1].status == status
    assert result.text == said


async def test_why_it_refused_is_kept_with_the_message() -> None:
    async with claude([refusal(text("I cannot"), explanation="too risky", category="cyber")]) as (model, _):
        result = await Agent(model=model).execute("Go")
    details = result.state.messages[-1].metadata["stop_details"]
    assert details["explanation"] == "too risky"


async def test_an_empty_answer_is_no_error_and_is_never_sent_back() -> None:
    async with claude([reply(), reply(text("Here I am."))]) as (model, server):
        agent = Agent(model=model)
        first = await agent.execute("Hello?")
        second = await agent.execute(first.state.add_message("Still there?"))
    assert first.text == ""
    assert second.text == "Here I am."
    assert [m["role"] for m in server.requests[1].body["messages"]] == ["user"]


async def test_malformed_tool_json_is_an_error_result_that_the_model_sees() -> None:
    script = [
        reply(tool_use("get_weather", raw_json='{"city": "Os'), stop_reason="tool_use"),
        reply(text("Sorry.")),
    ]
    async with claude(script) as (model, server):
        result = await Agent(model=model, tools=[get_weather]).execute("Weather?")
    answer = result.state.messages[2].tool_results[0]
    assert answer.is_error
    assert "not a JSON object" in answer.text
    assert server.requests[1].body["messages"][2]["content"][0]["is_error"] is True
    assert result.text == "Sorry."


RETRIED = [
    pytest.param(http_error(429, retry_after=0.05), "rate_limit_exceeded", id="429"),
    pytest.param(http_error(529), "overloaded", id="529"),
    pytest.param(http_error(500), "api_error", id="500"),
    pytest.param(hang_up(), "connection_error", id="connection-cut"),
    pytest.param(hang_up("reset"), "connection_error", id="connection-reset"),
    pytest.param(stream_error("overloaded_error"), "overloaded", id="error-event-first"),
    pytest.param(stream_error("api_error"), "api_error", id="api-error-event-first"),
    pytest.param(stream_error("timeout_error"), "timeout", id="timeout-event-first"),
    pytest.param(http_error(408, kind="timeout_error"), "timeout", id="408"),
    pytest.param(http_error(409, kind="conflict_error"), "conflict_error", id="409"),
    pytest.param(http_error(502, body="<html>Bad gateway</html>"), "api_error", id="502-of-a-proxy"),
    pytest.param(http_error(503, body="overloaded"), "api_error", id="503-of-a-proxy"),
    pytest.param(http_error(504), "timeout", id="504"),
    pytest.param(http_error(529, body="<html>"), "overloaded", id="529-of-a-proxy"),
    pytest.param(drop(after=(), how="end"), "incomplete_stream", id="ends-without-an-end"),
]


@pytest.mark.parametrize(("fault", "kind"), RETRIED)
async def test_a_passing_fault_before_the_answer_is_asked_again(
    fault: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 0.1)
    async with claude([fault, reply(text("There."))]) as (model, server):
        result = await Agent(model=model).execute("Hi")
    failed = [event for event in result.events if isinstance(event, ModelFailed)]
    assert result.text == "There."
    assert [(event.error_type, event.attempt) for event in failed] == [(kind, 1)]
    assert failed[0].retry_in is not None
    assert len(server.requests) == 2
    assert server.requests[0].body == server.requests[1].body


async def test_the_wait_before_another_try_is_what_the_provider_asked_for() -> None:
    async with claude([http_error(429, retry_after=0.3), reply(text("There."))]) as (model, _):
        started = time.monotonic()
        result = await Agent(model=model).execute("Hi")
    assert time.monotonic() - started >= 0.3
    assert [event.retry_in for event in result.events if isinstance(event, ModelFailed)] == [0.3]


@pytest.mark.parametrize(
    ("fault", "kind", "word"),
    [
        (http_error(400), "invalid_request_error", "Invalid"),
        (http_error(401), "authentication_error", "x-api-key"),
        (http_error(402, "No credit left", kind="billing_error"), "billing_error", "No credit left"),
        (http_error(403), "permission_error", "permission"),
        (http_error(404), "not_found_error", "Not found"),
        (http_error(413), "request_too_large", "maximum size"),
        (http_error(401, body="<html>Log in</html>"), "authentication_error", "HTTP 401: <html>Log in</html>"),
        (http_error(413, body="<html>" + "x" * 500), "request_too_large", "xxx…"),
        (http_error(422, body="{}"), "invalid_request_error", "HTTP 422"),
        (http_error(500, headers={"x-should-retry": "false"}), "api_error", "Internal"),
        (stream_error("invalid_request_error", "Prompt is too long"), "invalid_request_error", "Prompt is too long"),
    ],
)
async def test_a_lasting_fault_ends_the_run_at_once_with_its_type(fault: Any, kind: str, word: str) -> None:
    async with claude([fault]) as (model, server):
        with pytest.raises(AgentError) as caught:
            await Agent(model=model).execute("Hi")
    assert caught.value.type == kind
    assert word in str(caught.value)
    assert [m.role for m in caught.value.state.messages] == ["user"]
    assert len(server.requests) == 1


async def test_the_id_of_the_request_is_in_the_error_for_the_providers_support() -> None:
    async with claude([http_error(400)]) as (model, _):
        with pytest.raises(AgentError, match=r"\(request req_0000\)") as caught:
            await Agent(model=model).execute("Hi")
    cause = caught.value.__cause__
    assert isinstance(cause, ModelError)
    assert (cause.request_id, cause.status_code) == ("req_0000", 400)


async def test_a_time_to_wait_that_is_no_number_is_left_to_the_loop() -> None:
    async with claude([http_error(429, headers={"retry-after": value}) for value in ("nan", "soon")]) as (model, _):
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                await answer(model)
            assert caught.value.retry_after is None


async def test_after_three_tries_the_fault_is_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 0.05)
    async with claude([http_error(529)] * 3) as (model, server):
        with pytest.raises(AgentError) as caught:
            await Agent(model=model).execute("Hi")
    assert caught.value.type == "overloaded"
    assert len(server.requests) == 3


BROKEN = [
    pytest.param(drop(after=text("It is col")), "connection_error", id="dropped"),
    pytest.param(stream_error("overloaded_error", after=text("It is col")), "overloaded", id="error-event"),
]


@pytest.mark.parametrize(("fault", "kind"), BROKEN)
async def test_a_break_in_the_text_keeps_what_was_said_and_the_next_message_works(fault: Any, kind: str) -> None:
    async with claude([fault, reply(text("It is cold."))]) as (model, server):
        agent = Agent(model=model)
        with pytest.raises(AgentError) as caught:
            await agent.execute("Weather?")
        state = caught.value.state
        again = await agent.execute(state.add_message("Go on"))
    assert caught.value.type == kind
    assert (state.messages[-1].text, state.messages[-1].status) == ("It is col", "stream_error")
    assert again.text == "It is cold."
    assert [m["role"] for m in server.requests[1].body["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("after", [None, text("It is col")])
async def test_silence_is_a_timeout(after: Any) -> None:
    async with claude([stall(after=after)], timeout=0.2) as (model, server):
        with pytest.raises(ModelError, match="timed out") as caught:
            await answer(model)
        await asyncio.to_thread(server.wait_for_disconnects)
    assert (caught.value.type, caught.value.retryable) == ("timeout", True)


async def test_a_broken_answer_tells_what_it_cost_so_far() -> None:
    async with claude([drop(after=text("It is col"))]) as (model, _):
        with pytest.raises(AgentError) as caught:
            await Agent(model=model).execute("Weather?")
    assert caught.value.state.messages[-1].usage == Usage(input_tokens=25, output_tokens=1)


async def test_an_answer_that_is_no_json_is_an_error_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_server, "HALF_AN_EVENT", b"event: content_block_delta\ndata: {not json\n\n")
    async with claude([drop(after=text("It"), how="end", mid_line=True)]) as (model, _):
        with pytest.raises(ModelError, match="the answer cannot be read: JSONDecodeError") as caught:
            await answer(model)
    assert (caught.value.type, caught.value.retryable) == ("invalid_response", True)


async def test_a_break_in_the_json_of_a_call_leaves_the_half_call_out() -> None:
    fault = drop(after=[text("Let me look."), tool_use("get_weather", raw_json='{"city": "Os')])
    async with claude([fault, reply(text("Again."))]) as (model, _):
        agent = Agent(model=model, tools=[get_weather])
        with pytest.raises(AgentError) as caught:
            await agent.execute("Weather?")
        again = await agent.execute(caught.value.state.add_message("Go on"))
    broken = caught.value.state.messages[-1]
    assert (broken.text, broken.tool_calls, broken.status) == ("Let me look.", (), "stream_error")
    assert again.text == "Again."


async def test_a_break_before_anything_worth_keeping_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 0.05)
    fault = drop(after=tool_use("get_weather", raw_json='{"city": "Os'))
    async with claude([fault, reply(text("Again."))]) as (model, server):
        result = await Agent(model=model, tools=[get_weather]).execute("Weather?")
    assert [message.text for message in result.state.messages] == ["Weather?", "Again."]
    assert len(server.requests) == 2


async def test_cancelling_closes_the_connection_and_keeps_the_partial_text() -> None:
    async with claude([stall(after=text("Once upon a")), reply(text("Fine."))]) as (model, server):
        seen = asyncio.Event()
        agent = Agent(model=model, callbacks={"on_llm_new_delta": lambda _event: seen.set()})
        task = asyncio.ensure_future(agent.execute("Tell me a story"))
        await asyncio.wait_for(seen.wait(), 5)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        left = await asyncio.to_thread(server.wait_for_disconnects)
        state = state_reached(caught.value)
        again = await agent.execute(state.add_message("Never mind"))
    assert len(left) == 1
    assert (state.messages[-1].text, state.messages[-1].status) == ("Once upon a", "cancelled")
    assert again.text == "Fine."


async def test_images_files_and_repeated_call_ids_go_over_the_wire_as_the_api_wants_them() -> None:
    history = (
        Message(
            "user", [Text("What is this?"), Image(data="aGk=", media_type="image/png"), Image(url="https://x/y.png")]
        ),
        Message("assistant", [], tool_calls=[ToolCall("get_weather", {"city": "A"}, id="c 1")]),
        Message("tool", tool_results=[ToolResult("one", tool_call_id="c 1", name="get_weather")]),
        Message("assistant", [Thinking(text="no seal")], tool_calls=[ToolCall("get_weather", {"city": "B"}, id="c 1")]),
        Message("tool", tool_results=[ToolResult("two", tool_call_id="c 1", name="get_weather")]),
        Message("user", "And now?"),
    )
    async with claude([reply(text("ok"))]) as (model, server):
        await Agent(model=model, tools=[get_weather]).execute(State(messages=history))
    sent = server.requests[0].body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user", "assistant", "user"]
    assert sent[0]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert sent[0]["content"][2]["source"] == {"type": "url", "url": "https://x/y.png"}
    assert [block["id"] for m in sent for block in m["content"] if block["type"] == "tool_use"] == ["c_1", "c_1-2"]
    assert [b["tool_use_id"] for m in sent for b in m["content"] if b["type"] == "tool_result"] == ["c_1", "c_1-2"]
    assert [block["type"] for block in sent[4]["content"]] == ["tool_result", "text"]


async def test_what_never_changes_is_marked_for_the_prompt_cache() -> None:
    async with claude([reply(text("ok")), reply(text("ok"))]) as (model, server):
        await Agent(model=model, tools=[get_weather], base_system_prompt="Be brief.").execute("Hi")
        model.cache = False
        await Agent(model=model, tools=[get_weather], base_system_prompt="Be brief.").execute("Hi")
    marked, plain = (request.body for request in server.requests)
    for blocks in (marked["system"], marked["tools"], marked["messages"][-1]["content"]):
        assert blocks[-1]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in str(plain)


async def test_without_a_key_no_request_is_made_and_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    expected = r"no API key: set the environment variable ANTHROPIC_API_KEY"
    with MessagesServer([reply(text("never"))]) as server, pytest.raises(AgentError, match=expected) as caught:
        await Agent(model=AnthropicModel("m", base_url=server.url)).execute("Hi")
    assert caught.value.type == "authentication_error"
    assert server.requests == []


async def test_the_key_is_sent_and_shown_nowhere() -> None:
    async with claude([http_error(401)]) as (model, server):
        agent = Agent(model=model)
        with pytest.raises(AgentError) as caught:
            await agent.execute("Hi")
    assert "authorization" in server.requests[0].headers
    shown = [repr(model), str(model), repr(agent), repr(vars(model)), str(caught.value), repr(caught.value.state)]
    assert not [text for text in shown if "sk-test-secret" in text]


def test_one_model_serves_two_event_loops() -> None:
    with MessagesServer([reply(text("one")), reply(text("two"))]) as server:
        model = AnthropicModel("m", base_url=server.url, api_key="k")

        async def ask() -> str:
            try:
                return (await Agent(model=model).execute("Hi")).text
            finally:
                await model.aclose()

        assert [asyncio.run(ask()), asyncio.run(ask())] == ["one", "two"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "needs a model's name, got ''"),
        ({"name": "m", "max_tokens": 0}, "is at least 1, got 0"),
        ({"name": "m", "timeout": 0}, "is a number of seconds above 0, got 0"),
        ({"name": "m", "thinking_budget": 10}, "at least 1024 and below max_tokens"),
        ({"name": "m", "thinking_budget": 5000}, "below max_tokens (4096), got 5000"),
    ],
)
def test_settings_out_of_range_are_refused_when_the_model_is_made(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AnthropicModel(**options)
    assert text in str(caught.value)


async def test_deltas_of_the_wire_have_the_attempt_they_belong_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 0.05)
    attempts: list[int] = []

    def note(event: ModelDelta) -> None:
        attempts.append(event.attempt)

    async with claude([http_error(529), reply(text("Hi."))]) as (model, _):
        await Agent(model=model, callbacks={"on_llm_new_delta": note}).execute("Hi")
    assert set(attempts) == {2}


# -- settings -------------------------------------------------------------------------------------


async def answer(model: AnthropicModel, **request: Any) -> Message:
    builder = MessageBuilder()
    asked = ModelRequest(**{"messages": (Message("user", "Hi"),), **request})
    async for delta in model.stream(asked):
        builder.add(delta)
    return builder.build()


async def test_options_reach_the_api_whether_the_sdk_names_them_or_not() -> None:
    options = {
        "stop_sequences": ["END"],
        "temperature": 0.5,
        "top_k": 3,
        "service_tier": "auto",
        "betas": ["one-2026-01-01", "two-2026-01-01"],
        "headers": {"X-Proxy": "proxy-secret"},
    }
    async with claude([reply(text("ok"))] * 2, options=options) as (model, server):
        await answer(model)
        await answer(
            model,
            options={
                "temperature": None,
                "stop_sequences": ["STOP"],
                "betas": [],
                "headers": {"x-proxy": "other-secret"},
                "metadata": {"user_id": "u"},
            },
        )
    first, second = server.requests
    assert [first.body[key] for key in ("stop_sequences", "temperature", "top_k", "service_tier")] == [
        ["END"],
        0.5,
        3,
        "auto",
    ]
    assert first.headers["anthropic-beta"] == "one-2026-01-01,two-2026-01-01"
    assert first.headers["x-proxy"] == "proxy-secret"
    assert second.body["stop_sequences"] == ["STOP"]
    assert "temperature" not in second.body
    assert second.body["metadata"] == {"user_id": "u"}
    assert second.headers["x-proxy"] == "other-secret"
    assert "anthropic-beta" not in second.headers


async def test_a_wrap_hook_sets_options_of_one_request() -> None:
    class Cool(Middleware):
        async def wrap_model_call(self, request: Any, call_next: Any) -> Message:
            message: Message = await call_next(request.replace(options={"temperature": 0, "max_tokens": 10}))
            return message

    async with claude([reply(text("ok"))]) as (model, server):
        await Agent(model=model, middleware=[Cool()]).execute("Hi")
    assert (server.requests[0].body["temperature"], server.requests[0].body["max_tokens"]) == (0, 10)


@pytest.mark.parametrize("choice", ["any", "get_weather"])
async def test_a_forced_tool_is_called_without_a_thought(choice: str) -> None:
    async with claude([reply(tool_use("get_weather", {"city": "Oslo"}))], thinking_budget=1024) as (model, server):
        message = await answer(model, tools=(get_weather,), tool_choice=choice)
    assert message.tool_calls[0].name == "get_weather"
    assert "thinking" not in server.requests[0].body


async def test_a_chain_of_calls_that_another_model_began_goes_on_without_a_thought() -> None:
    history = (
        Message("user", "Weather?"),
        Message("assistant", "I look.", tool_calls=[ToolCall("get_weather", {"city": "A"}, id="c1")]),
        Message("tool", tool_results=[ToolResult("Sunny", tool_call_id="c1")]),
    )
    async with claude([reply(text("Sunny.")), reply(text("ok"))], thinking_budget=1024) as (model, server):
        await answer(model, messages=history, tools=(get_weather,))
        await answer(model, messages=(*history, Message("assistant", "Sunny."), Message("user", "Thanks")))
    assert ["thinking" in request.body for request in server.requests] == [False, True]


async def test_a_thought_that_is_sealed_and_not_shown_is_kept_and_sent_back() -> None:
    script = [
        reply(thinking("", signature="c2Vh"), tool_use("get_weather", {"city": "Oslo"})),
        reply(text("Sunny.")),
    ]
    async with claude(script, options={"thinking": {"type": "adaptive"}}) as (model, server):
        result = await Agent(model=model, tools=[get_weather]).execute("Weather?")
    assert result.state.messages[1].content == (Thinking(signature="c2Vh"),)
    assert server.requests[1].body["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "",
        "signature": "c2Vh",
    }


async def test_blocks_go_back_in_the_order_in_which_they_came() -> None:
    script = [
        reply(
            text("First."),
            tool_use("get_weather", {"city": "A"}, id="c1"),
            text("Then."),
            tool_use("get_weather", {"city": "B"}, id="c2"),
        ),
        reply(text("Done.")),
    ]
    async with claude(script) as (model, server):
        result = await Agent(model=model, tools=[get_weather]).execute("Go")
        read_again = State.from_json(result.state.to_json())
    assert read_again.messages[1].metadata["block_order"] == ["text", "call", "text", "call"]
    sent = server.requests[1].body["messages"][1]["content"]
    assert [block.get("id") or block["text"] for block in sent] == ["First.", "c1", "Then.", "c2"]


async def test_a_history_of_files_errors_and_blanks_is_taken_by_the_api() -> None:
    history = (
        Message("assistant", "Earlier I said this."),
        Message("user", [Text(" "), File(data="aGk=", media_type="text/plain", name="a.txt")]),
        Message(
            "user", [File(data="JVBERg==", name="a.pdf", media_type="application/pdf"), File(url="https://x/b.pdf")]
        ),
        Message("assistant", "", tool_calls=[ToolCall("get weather", id="c"), ToolCall("get_weather", id="c")]),
        Message(
            "tool",
            tool_results=[
                ToolResult([Image(data="iVBORw0KGgo=", media_type="image/png")], tool_call_id="c", is_error=True),
                ToolResult("", tool_call_id="c"),
            ],
        ),
        Message("assistant", "Half a sent ", status="cancelled"),
    )
    async with claude([reply(text("ok"))]) as (model, server):
        result = await Agent(model=model, base_system_prompt="  ").execute(State(messages=history))
    assert result.text == "ok"
    body = server.requests[0].body
    assert "system" not in body
    roles = " ".join(turn["role"] for turn in body["messages"])
    assert roles == "user assistant user assistant user assistant user"
    assert [block["source"]["type"] for block in body["messages"][2]["content"]] == ["text", "base64", "url"]
    assert body["messages"][4]["content"][1] == {"type": "tool_result", "tool_use_id": "c-2"}


# -- a turn that the API pauses -------------------------------------------------------------------


async def test_a_paused_turn_is_taken_up_and_is_one_message() -> None:
    script = [
        reply(thinking("Hm.", signature="c2Vh"), text("I look "), stop_reason="pause_turn"),
        reply(text("and see."), tool_use("get_weather", {"city": "Oslo"}, id="c1")),
    ]
    async with claude(script) as (model, server):
        message = await answer(model, tools=(get_weather,))
    assert [part.text for part in message.content if isinstance(part, Text)] == ["I look ", "and see."]
    assert message.tool_calls == (ToolCall("get_weather", {"city": "Oslo"}, id="c1"),)
    assert message.usage == Usage(input_tokens=50, output_tokens=30)
    assert message.metadata["stop_reason"] == "tool_use"
    first, second = (request.body["messages"] for request in server.requests)
    assert second[: len(first)] == first
    assert second[len(first) :] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2Vh"},
                {"type": "text", "text": "I look"},
            ],
        }
    ]


async def test_a_turn_that_is_paused_for_ever_counts_as_cut() -> None:
    async with claude([reply(text("x"), stop_reason="pause_turn")] * 20) as (model, server):
        message = await answer(model)
    assert (message.status, message.metadata["stop_reason"]) == ("length", "pause_turn")
    assert len(server.requests) == anthropic.MAX_PAUSES + 1


async def test_a_pause_before_anything_was_said_is_not_asked_again() -> None:
    async with claude([reply(stop_reason="pause_turn")]) as (model, server):
        message = await answer(model)
    assert (message.status, len(server.requests)) == ("length", 1)


# -- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"messages": []}, "has 'messages', which the agent, the conversation or AnthropicModel(…) itself brings"),
        ({"stream": False}, "has 'stream'"),
        ({"headers": "x"}, "has 'headers', a str; it is a dict"),
        ({"headers": {"x-key": "sk-secret\n"}}, "the header 'x-key', which has a character in place 10"),
        ({"headers": {"x-key": b"sk-secret"}}, "the header 'x-key', which is a bytes; it is a str"),
        ({"betas": "one"}, "has 'betas', which is 'one'; it is a list of names"),
    ],
)
async def test_options_that_cannot_be_are_refused_without_their_values(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AnthropicModel("m", options=options)
    assert words in str(caught.value)
    with pytest.raises(ModelError) as asked:
        await answer(AnthropicModel("m", api_key="k"), options=options)
    assert words in str(asked.value)
    assert asked.value.type == "invalid_request_error"
    assert "sk-secret" not in f"{caught.value} {asked.value}"


def test_options_that_are_no_json_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"options\['metadata'\] is a object, which is not JSON"):
        AnthropicModel("m", options={"metadata": object()})


@pytest.mark.parametrize("key", ["sk-test-\nsecret", "sk-test-…-secret"])
async def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="has a character in place") as caught:
        AnthropicModel("m", api_key=key)
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY has a character in place") as asked:
        await answer(AnthropicModel("m", base_url="http://127.0.0.1:9"))
    assert "secret" not in f"{caught.value} {asked.value}"


async def test_a_key_may_come_with_a_line_end_or_as_a_secret() -> None:
    with MessagesServer([reply(text("ok"))] * 2, api_key="sk-test-secret") as server:
        for key in ("sk-test-secret\n", SecretStr("sk-test-secret")):
            model = AnthropicModel("m", base_url=server.url, api_key=key)
            assert (await answer(model)).text == "ok"
            await model.aclose()


async def a_server_that_repeats_the_key_is_not_quoted() -> None:
    said = http_error(401, "no such key: sk-test-secret")
    async with claude([said], options={"headers": {"x-p": "proxy-secret"}}) as (model, _):
        with pytest.raises(AgentError) as caught:
            await Agent(model=model).execute("Hi")
    shown = "".join(traceback.format_exception(caught.value))
    assert "no such key: [secret]" in shown
    assert "sk-test-secret" not in shown
    assert "sk-test-secret" not in repr(caught.value.state)


async def test_a_server_that_repeats_the_key_is_not_quoted() -> None:
    await a_server_that_repeats_the_key_is_not_quoted()


async def test_without_the_mask_it_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnthropicModel, "secrets", lambda self: ())
    with pytest.raises(AssertionError):
        await a_server_that_repeats_the_key_is_not_quoted()


async def test_the_placeholder_key_of_a_local_server_is_no_secret() -> None:
    with MessagesServer([http_error(400, "next time")]) as server:
        model = AnthropicModel("m", base_url=server.url, api_key="x")
        with pytest.raises(ModelError, match="next time"):
            await answer(model)
        await model.aclose()
    assert model.secrets() == ()
