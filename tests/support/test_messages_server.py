"""The scripted Messages API server, driven through the real SDK over loopback.

The faults are asserted as the SDK shows them, so that this file is also the record of what an
adapter has to expect: which class, with which attributes, at which moment.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx2
import pytest

from .messages_rules import problems
from .messages_server import (
    MessagesServer,
    Turn,
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

USER = {"role": "user", "content": "hi"}
PLAIN = {"model": "m", "max_tokens": 64, "messages": [USER]}
pytestmark = pytest.mark.timeout(30)


@contextlib.asynccontextmanager
async def served(*script: Turn, **options: Any) -> AsyncIterator[tuple[MessagesServer, Any]]:
    """A server that plays `script`, and the SDK's client for it (untyped: requests are dicts)."""
    with MessagesServer(script) as server:
        options = {"api_key": "test", "max_retries": 0, **options}
        async with anthropic.AsyncAnthropic(base_url=server.url, **options) as client:
            yield server, client


@contextlib.contextmanager
def sync_client(server: MessagesServer) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=server.url, api_key="test", max_retries=0) as client:
        yield client


async def ask(client: Any, **body: Any) -> Any:
    return await client.messages.create(**{**PLAIN, "stream": True, **body})


async def heard(client: Any) -> list[Any]:
    """All events of one streamed request."""
    async with await ask(client) as stream:
        return [event async for event in stream]


async def types_until(client: Any, error: type[Exception]) -> tuple[list[str], Any]:
    """The event types that came before `error`, and the error, which must come while iterating."""
    seen: list[str] = []
    stream = await ask(client)
    with pytest.raises(error) as caught:
        async for event in stream:
            seen.append(event.type)
    return seen, caught.value


# -- whole messages -------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_text_streams_in_the_apis_order() -> None:
    async with served(reply(text("Hello there", chunks=["Hello ", "there"]))) as (_, client):
        events = await heard(client)
    assert [event.type for event in events] == [
        "message_start",
        "content_block_start",  # the SDK keeps the ping that follows to itself
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [events[2].delta.text, events[3].delta.text] == ["Hello ", "there"]
    assert events[5].delta.stop_reason == "end_turn"


@pytest.mark.asyncio
async def test_usage_comes_at_the_start_and_cumulated_at_the_end() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 2000, "output_tokens": 7}
    async with served(reply(text("Hi"), usage=usage)) as (_, client):
        events = await heard(client)
    start, end = events[0].message.usage, events[-2].usage
    assert (start.input_tokens, start.cache_read_input_tokens, start.output_tokens) == (3, 2000, 1)
    assert (end.input_tokens, end.cache_read_input_tokens, end.output_tokens) == (3, 2000, 7)
    assert end.cache_creation_input_tokens == 0


@pytest.mark.asyncio
async def test_thinking_ends_with_its_signature() -> None:
    turn = reply(thinking("Let me see", signature="sig"), redacted_thinking("xyz"), text("42"))
    async with served(turn) as (_, client):
        events = await heard(client)
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    assert [delta.type for delta in deltas] == [
        "thinking_delta",
        "thinking_delta",
        "signature_delta",
        "text_delta",
    ]
    assert "".join(delta.thinking for delta in deltas[:2]) == "Let me see"
    assert deltas[2].signature == "sig"
    starts = [event.content_block for event in events if event.type == "content_block_start"]
    assert [block.type for block in starts] == ["thinking", "redacted_thinking", "text"]
    assert starts[1].data == "xyz"


@pytest.mark.asyncio
async def test_tool_arguments_come_in_pieces_and_the_first_is_empty() -> None:
    call = tool_use("get_weather", {"city": "Malmö", "note": 'a "b"'})
    async with served(reply(call)) as (_, client):
        events = await heard(client)
    pieces = [e.delta.partial_json for e in events if e.type == "content_block_delta"]
    assert pieces[:4] == ["", '{"c', "ity", '": ']
    assert "".join(pieces) == '{"city": "Malmö", "note": "a \\"b\\""}'
    assert events[1].content_block.input == {}
    assert events[-2].delta.stop_reason == "tool_use"


@pytest.mark.asyncio
async def test_a_call_without_arguments_has_only_the_empty_piece() -> None:
    async with served(reply(tool_use("now"))) as (_, client):
        events = await heard(client)
    assert [e.delta.partial_json for e in events if e.type == "content_block_delta"] == [""]


@pytest.mark.asyncio
async def test_ids_of_calls_never_repeat() -> None:
    two = reply(tool_use("a"), tool_use("b"))
    async with served(two, reply(tool_use("c"), tool_use("d", id="mine"))) as (_, client):
        events = [*await heard(client), *await heard(client)]
    ids = [e.content_block.id for e in events if e.type == "content_block_start"]
    assert ids == ["toolu_0000_0", "toolu_0000_1", "toolu_0001_0", "mine"]


@pytest.mark.asyncio
async def test_the_sdks_own_accumulation_gives_the_same_message_as_no_streaming() -> None:
    turn = reply(thinking("hm"), text("Hi ☃"), tool_use("w", {"n": [1, 2]}, id="toolu_1"))
    async with served(turn, turn) as (_, client):
        async with client.messages.stream(**PLAIN) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**PLAIN)
    assert streamed.to_dict() == whole.to_dict() | {"id": "msg_0000"}
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]


@pytest.mark.asyncio
async def test_lines_and_characters_may_be_cut_anywhere() -> None:
    turn = reply(text("héllo ☃ 🎉", chunks=100), tool_use("w", {"a": "ü"}), write_size=1)
    async with served(turn) as (_, client):
        events = await heard(client)
    assert events[2].delta.text == "héllo ☃ 🎉"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("turn", "reason", "blocks"),
    [
        (reply(), "end_turn", 0),
        (reply(text("and so"), stop_reason="max_tokens"), "max_tokens", 1),
        (refusal(text("I")), "refusal", 1),
        (reply(text("a"), stop_reason="stop_sequence", stop_sequence="."), "stop_sequence", 1),
    ],
)
async def test_ways_to_end(turn: Turn, reason: str, blocks: int) -> None:
    async with served(turn) as (_, client):
        events = await heard(client)
    assert events[-2].delta.stop_reason == reason
    assert sum(event.type == "content_block_start" for event in events) == blocks


@pytest.mark.asyncio
async def test_malformed_arguments_pass_raw_and_break_the_sdks_accumulation() -> None:
    turn = reply(tool_use("w", raw_json='{"city": Oslo}'))
    async with served(turn, turn) as (_, client):
        events = await heard(client)
        with pytest.raises(ValueError, match="Unable to parse tool parameter JSON"):
            async with client.messages.stream(**PLAIN) as stream:
                await stream.get_final_message()
    pieces = [e.delta.partial_json for e in events if e.type == "content_block_delta"]
    assert "".join(pieces) == '{"city": Oslo}'


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (403, anthropic.PermissionDeniedError, "permission_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (413, anthropic.APIStatusError, "request_too_large"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.InternalServerError, "overloaded_error"),
    ],
)
async def test_http_errors_are_raised_by_create(status: int, error: type[anthropic.APIStatusError], kind: str) -> None:
    async with served(http_error(status, "the words")) as (_, client):
        with pytest.raises(error) as caught:
            await ask(client)
    assert caught.value.status_code == status
    assert caught.value.type == kind
    assert caught.value.request_id == "req_0000"
    assert caught.value.body == {"type": "error", "error": {"type": kind, "message": "the words"}}


@pytest.mark.asyncio
async def test_retry_after_is_a_header_of_the_errors_response() -> None:
    async with served(http_error(429, retry_after=0.05), reply(text("Hi"))) as (server, client):
        with pytest.raises(anthropic.RateLimitError) as caught:
            await ask(client)
        assert caught.value.response.headers["retry-after"] == "0.05"
        assert (await heard(client))[-1].type == "message_stop"
    assert server.remaining == 0


@pytest.mark.asyncio
async def test_the_sdk_waits_as_long_as_retry_after_says() -> None:
    async with served(http_error(429, retry_after=0.05), reply(text("Hi"))) as (server, client):
        await ask(client.with_options(max_retries=1))
    assert [r.headers["x-stainless-retry-count"] for r in server.requests] == ["0", "1"]


@pytest.mark.asyncio
async def test_a_proxys_page_has_no_type() -> None:
    async with served(http_error(502, body="<html>bad gateway</html>")) as (_, client):
        with pytest.raises(anthropic.InternalServerError) as caught:
            await ask(client)
    assert (caught.value.type, caught.value.body) == (None, "<html>bad gateway</html>")


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["overloaded_error", "api_error"])
async def test_an_error_event_is_raised_while_iterating_with_status_200(kind: str) -> None:
    async with served(stream_error(kind, after=text("Hal"))) as (_, client):
        seen, error = await types_until(client, anthropic.APIStatusError)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
    assert (type(error), error.status_code, error.type) == (anthropic.APIStatusError, 200, kind)


@pytest.mark.asyncio
async def test_an_error_without_streaming_is_an_http_error() -> None:
    async with served(stream_error("overloaded_error")) as (_, client):
        with pytest.raises(anthropic.InternalServerError) as caught:
            await ask(client, stream=False)
    assert caught.value.status_code == 529


# -- lost connections -----------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_no_answer_at_all_is_raised_by_create(how: Any) -> None:
    async with served(hang_up(how)) as (_, client):
        with pytest.raises(anthropic.APIConnectionError):
            await ask(client)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("turn", "before"),
    [
        (drop(), []),
        (drop(after=[]), ["message_start"]),
        (drop(after=text("Hal")), ["message_start", "content_block_start", "content_block_delta"]),
        (
            drop(after=[text("Hal"), tool_use("w", raw_json='{"ci')]),
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_delta",
            ],
        ),
        (
            drop(after=text("Hal"), mid_line=True),
            ["message_start", "content_block_start", "content_block_delta"],
        ),
    ],
    ids=["before the first event", "at the start", "in the text", "in tool JSON", "in a line"],
)
async def test_a_cut_stream_raises_the_http_clients_own_error(turn: Turn, before: list[str]) -> None:
    async with served(turn) as (server, client):
        seen, error = await types_until(client, httpx2.RemoteProtocolError)
    assert seen == before
    assert not isinstance(error, anthropic.AnthropicError)
    assert server.disconnects == []  # it was the server that left


@pytest.mark.asyncio
async def test_a_reset_stream_raises_read_error() -> None:
    async with served(drop(after=text("Hal"), how="reset")) as (_, client):
        await types_until(client, httpx2.ReadError)


@pytest.mark.asyncio
@pytest.mark.parametrize("mid_line", [False, True])
async def test_a_stream_that_just_ends_raises_nothing(mid_line: bool) -> None:
    async with served(drop(after=text("Hal"), how="end", mid_line=mid_line)) as (_, client):
        events = await heard(client)
    assert events[-1].type == "content_block_delta"  # only the missing message_stop tells


@pytest.mark.asyncio
@pytest.mark.parametrize("turn", [drop(), hang_up(), stall(seconds=0.01)])
async def test_losses_without_streaming_are_connection_errors(turn: Turn) -> None:
    async with served(turn) as (_, client):
        with pytest.raises(anthropic.APIConnectionError):
            await ask(client, stream=False)


# -- stalls and cancelling ------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_cancelled_task_is_noticed_and_the_client_still_works() -> None:
    async with served(stall(after=text("Hal")), reply(text("again"))) as (server, client):
        reading = asyncio.Event()

        async def read() -> None:
            async with await ask(client) as stream:
                async for event in stream:
                    if event.type == "content_block_delta":
                        reading.set()

        task = asyncio.create_task(read())
        await asyncio.wait_for(reading.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (left,) = await asyncio.to_thread(server.wait_for_disconnects)
        assert left.request == 0
        assert left.events == (
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
        )
        assert (await heard(client))[-1].type == "message_stop"


@pytest.mark.asyncio
async def test_leaving_before_the_first_event_is_noticed() -> None:
    async with served(reply(text("late"), gate=threading.Event())) as (server, client):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(client), 0.05)
        (left,) = await asyncio.to_thread(server.wait_for_disconnects)
    assert left.events == ()


@pytest.mark.asyncio
async def test_breaking_out_of_the_loop_leaves_only_when_the_stream_is_closed() -> None:
    async with served(stall(after=text("Hal"))) as (server, client):
        stream = await ask(client)
        async for event in stream:
            if event.type == "content_block_delta":
                break
        with pytest.raises(TimeoutError, match="0 of 1 clients left within 0.1 s"):
            await asyncio.to_thread(server.wait_for_disconnects, 1, 0.1)
        await stream.close()
        await asyncio.to_thread(server.wait_for_disconnects)


@pytest.mark.asyncio
async def test_a_client_that_stops_after_message_stop_has_not_left() -> None:
    async with served(reply(text("Hi"))) as (server, client):
        async with await ask(client) as stream:
            async for event in stream:
                if event.type == "message_stop":
                    break
        await asyncio.sleep(0.05)
    assert server.disconnects == []


@pytest.mark.asyncio
async def test_timeouts_are_of_two_kinds() -> None:
    late = reply(text("late"), gate=threading.Event())
    timeout = httpx2.Timeout(10, read=0.3)
    async with served(stall(after=text("Hal")), late, timeout=timeout) as (_, client):
        await types_until(client, httpx2.ReadTimeout)
        with pytest.raises(anthropic.APITimeoutError):
            await ask(client)


@pytest.mark.asyncio
async def test_a_gate_holds_the_reply_until_it_opens() -> None:
    gate = threading.Event()
    async with served(reply(text("Hi"), gate=gate)) as (server, client):
        task = asyncio.create_task(heard(client))
        await asyncio.to_thread(server.wait_for_requests)
        assert not task.done()
        gate.set()
        assert (await task)[-1].type == "message_stop"


def test_stopping_ends_stalled_answers_and_their_threads() -> None:
    before = threading.active_count()
    body = {"model": "m", "max_tokens": 1, "messages": [USER], "stream": True}
    with (
        MessagesServer([stall(after=text("Hal"))]) as server,
        httpx2.Client(headers={"x-api-key": "k", "anthropic-version": "v"}) as client,
        client.stream("POST", f"{server.url}/v1/messages", json=body) as response,
    ):
        arriving = response.iter_bytes()
        next(arriving)
        server.stop()
        with pytest.raises(httpx2.RemoteProtocolError):
            list(arriving)
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert server.disconnects == []


# -- the record and the script --------------------------------------------------------------------


@pytest.mark.asyncio
async def test_requests_are_recorded_without_the_key() -> None:
    async with served(reply(text("Hi")), api_key="sk-secret") as (server, client):
        await heard(client)
    (request,) = server.requests
    assert request.body["messages"] == [USER]
    assert request.headers["authorization"] == "[redacted]"
    assert request.headers["anthropic-version"]
    assert "sk-secret" not in repr(server)


@pytest.mark.asyncio
async def test_only_the_given_key_is_accepted() -> None:
    with MessagesServer([reply(text("Hi"))], api_key="right") as server:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="wrong") as client:
            with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
                await ask(client)
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="right") as client:
            await heard(client)
    assert "right" not in repr(server)


@pytest.mark.asyncio
async def test_a_script_that_is_too_short_says_so() -> None:
    async with served(reply(text("Hi"))) as (_, client):
        await heard(client)
        with pytest.raises(
            anthropic.InternalServerError,
            match=r"the script has 1 turns and this request asks for one more; add a reply\(...\)",
        ):
            await ask(client.with_options(max_retries=5))  # and the SDK does not try again


@pytest.mark.asyncio
async def test_a_function_answers_clients_side_by_side() -> None:
    def echo(request: Any) -> Turn:
        return reply(text(request.body["messages"][0]["content"], chunks=100), delay=0.001)

    with MessagesServer(echo) as server:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="k") as client:
            streams = [
                await ask(client, messages=[{"role": "user", "content": word}]) for word in ("one", "two", "three")
            ]
            answers = [[e async for e in stream][2].delta.text for stream in streams]
    assert answers == ["one", "two", "three"]


def test_a_broken_script_is_not_silent() -> None:
    def broken(_request: Any) -> Turn:
        raise LookupError("no turn for this")

    with (
        pytest.raises(RuntimeError, match="the MessagesServer itself failed") as caught,
        MessagesServer(broken) as server,
        sync_client(server) as client,
        pytest.raises(anthropic.APIConnectionError),
    ):
        client.messages.create(model="m", max_tokens=1, messages=[USER])
    assert isinstance(caught.value.__cause__, LookupError)


def test_chunks_must_add_up() -> None:
    with pytest.raises(ValueError, match=r"chunks \['He', 'lo'\] do not add up to 'Hello'"):
        text("Hello", chunks=["He", "lo"])


# -- what is refused ------------------------------------------------------------------------------

CALL = {"type": "tool_use", "id": "t1", "name": "w", "input": {}}
CALL_2 = CALL | {"id": "t2"}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "cold"}
RESULT_2 = RESULT | {"tool_use_id": "t2"}
TEXT = {"type": "text", "text": "so"}
TOOL = {"name": "w", "input_schema": {"type": "object"}}
MARK = {"cache_control": {"type": "ephemeral"}}
UNANSWERED = (
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {}. "
    "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
ORPHAN = (
    "unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must "
    "have a corresponding `tool_use` block in the previous message."
)


def said(*turns: Any) -> dict[str, Any]:
    """A request whose messages are `turns`: user first, then by turns; a dict is taken as it is."""
    roles = ("user", "assistant")
    messages = [
        turn if isinstance(turn, dict) else {"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)
    ]
    return {"messages": messages}


PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
IMAGE = {"type": "image", "source": PNG}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
THINKS = {"max_tokens": 2048, "thinking": {"type": "enabled", "budget_tokens": 1024}}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages: at least one message is required"),
    "zero tokens": (
        {"max_tokens": 0},
        "max_tokens: Input should be greater than or equal to 1",
    ),
    "assistant first": (
        said({"role": "assistant", "content": "hi"}, {"role": "user", "content": "hi"}),
        'messages: first message must use the "user" role',
    ),
    "system as a role": (
        said({"role": "system", "content": "be kind"}),
        (
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` '
            'parameter, not "system" as an input message role.'
        ),
    ),
    "tool as a role": (
        said("hi", {"role": "tool", "content": "x"}),
        "messages.1.role: Input should be 'user' or 'assistant'",
    ),
    "a field of ours": (
        said({"role": "user", "content": "hi", "processed": 1}),
        "messages.0.processed: Extra inputs are not permitted",
    ),
    "a field of ours in a block": (
        said("hi", [CALL | {"status": "done"}], [RESULT]),
        "messages.1.content.0.tool_use.status: Extra inputs are not permitted",
    ),
    "call without result": (said("hi", [CALL], "well?"), UNANSWERED.format("t1")),
    "call at the end": (said("hi", [CALL]), UNANSWERED.format("t1")),
    "one of two results": (said("hi", [CALL, CALL_2], [RESULT]), UNANSWERED.format("t2")),
    "result after text": (said("hi", [CALL], [TEXT, RESULT]), UNANSWERED.format("t1")),
    "result too late": (said("hi", [CALL], "wait", "yes", [RESULT]), UNANSWERED.format("t1")),
    "orphan result": (said([RESULT]), "messages.0.content.0: " + ORPHAN.format("t1")),
    "orphan beside its neighbour": (
        said("hi", [CALL], [RESULT, RESULT_2]),
        "messages.2.content.1: " + ORPHAN.format("t2"),
    ),
    "two results": (
        said("hi", [CALL], [RESULT, RESULT]),
        (
            "messages.2.content.1: each tool_use must have a single result. Found multiple "
            "`tool_result` blocks with id: t1"
        ),
    ),
    "an id twice at once": (
        said("hi", [CALL, CALL], [RESULT]),
        "messages.1.content.1: `tool_use` ids must be unique",
    ),
    "an id twice in the conversation": (
        said("hi", [CALL], [RESULT], [CALL], [RESULT]),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    "input that is a string": (
        said("hi", [CALL | {"input": "{}"}], [RESULT]),
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
    ),
    "an error without words": (
        said("hi", [CALL], [RESULT | {"content": "", "is_error": True}]),
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    "empty text": (
        said([{"type": "text", "text": ""}]),
        "messages: text content blocks must be non-empty",
    ),
    "blank text": (
        said([{"type": "text", "text": " \n"}]),
        "messages: text content blocks must contain non-whitespace text",
    ),
    "empty text in a result": (
        said("hi", [CALL], [RESULT | {"content": [{"type": "text", "text": ""}]}]),
        "messages: text content blocks must be non-empty",
    ),
    "empty user message": (
        said([]),
        "messages.0: user messages must have non-empty content",
    ),
    "empty assistant message": (
        said("hi", [], "hello?"),
        ("messages.1: all messages must have non-empty content except for the optional final assistant message"),
    ),
    "prefill with a space": (
        said("hi", "The answer is "),
        "messages: final assistant content cannot end with trailing whitespace",
    ),
    "thinking without signature": (
        said("hi", [{"type": "thinking", "thinking": "hm"}, TEXT], "go on"),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "thinking by a user": (
        said([{"type": "thinking", "thinking": "hm", "signature": "s"}]),
        "messages.0.content.0: `thinking` blocks are not allowed in `user` messages",
    ),
    "tool name": (
        {"tools": [TOOL | {"name": "get weather"}]},
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    "long tool name": (
        {"tools": [TOOL | {"name": "w" * 129}]},
        "tools.0.custom.name: String should have at most 128 characters",
    ),
    "tools of one name": ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
    "schema without type": (
        {"tools": [TOOL | {"input_schema": {}}]},
        "tools.0.custom.input_schema.type: Field required",
    ),
    "schema of an array": (
        {"tools": [TOOL | {"input_schema": {"type": "array"}}]},
        "tools.0.custom.input_schema.type: Input should be 'object'",
    ),
    "schema with a union on top": (
        {"tools": [TOOL | {"input_schema": {"type": "object", "anyOf": []}}]},
        ("tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"),
    ),
    "OpenAI's parameters": (
        {"tools": [{"name": "w", "parameters": {"type": "object"}}]},
        "tools.0.custom.input_schema: Field required",
    ),
    "choice of an unknown tool": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}},
        "tool_choice: Tool 'x' not found in provided tools",
    ),
    "choice without tools": (
        {"tool_choice": {"type": "any"}},
        "tool_choice: tool_choice may only be specified while providing tools",
    ),
    "system of the wrong kind": ({"system": 1}, "system: Input should be a valid string or list"),
    "system with an image": (
        {"system": [{"type": "image"}]},
        "system.0.type: Input should be 'text'",
    ),
    "budget over the limit": (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "too many cache marks": (
        {"system": [TEXT | MARK], "tools": [TOOL | MARK], **said([TEXT | MARK] * 3)},
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "a blank system prompt": (
        {"system": [{"type": "text", "text": " "}]},
        "system: text content blocks must contain non-whitespace text",
    ),
    "an image in an error": (
        said("hi", [CALL], [RESULT | {"content": [TEXT, IMAGE], "is_error": True}]),
        "messages.2.content.0.tool_result: all content must be type `text` if `is_error` is true",
    ),
    "a call in a result": (
        said("hi", [CALL], [RESULT | {"content": [CALL_2]}]),
        "messages.2.content.0.tool_result.content.0: Input tag 'tool_use' found using 'type' does not match",
    ),
    "a bitmap": (
        said([{"type": "image", "source": PNG | {"media_type": "image/bmp"}}]),
        (
            "messages.0.content.0.image.source.base64.media_type: Input should be "
            "'image/gif' or 'image/jpeg' or 'image/png' or 'image/webp'"
        ),
    ),
    "an empty image": (
        said([{"type": "image", "source": PNG | {"data": ""}}]),
        "messages.0.content.0.image.source.base64: image cannot be empty",
    ),
    "an image that is not base64": (
        said([{"type": "image", "source": PNG | {"data": "§"}}]),
        "messages.0.content.0.image.source.base64.data: Invalid base64 data",
    ),
    "an image without encryption": (
        said([{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]),
        "messages.0.content.0.image.source.url.url: Only HTTPS URLs are supported.",
    ),
    "a text file as base64": (
        said([{"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "eA=="}}]),
        "messages.0.content.0.document.source.base64.media_type: Input should be 'application/pdf'",
    ),
    "an image given as text": (
        said([{"type": "image", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}]),
        (
            "messages.0.content.0.image.source: Input tag 'text' found using 'type' "
            "does not match any of the expected tags"
        ),
    ),
    "a file without a title's letters": (
        said([{"type": "document", "title": "", "source": {"type": "url", "url": "https://x"}}]),
        "messages.0.content.0.document.title: String should have between 1 and 500 characters",
    ),
    "thinking with an empty signature": (
        said("hi", [{"type": "thinking", "thinking": "hm", "signature": ""}, TEXT], "go on"),
        "messages.1.content.0.thinking: Invalid `signature` in `thinking` block",
    ),
    "an answer that ends in a thought": (
        said("hi", [TEXT, {"type": "thinking", "thinking": "hm", "signature": "s"}], "go on"),
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
    "thinking from the middle of a chain on": (
        {**THINKS, **said("hi", [CALL], [RESULT])},
        (
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block"
        ),
    ),
    "thinking with a prefill": (
        {**THINKS, **said("hi", "well")},
        (
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block"
        ),
    ),
    "thoughts in a chain without thinking": (
        {"thinking": {"type": "disabled"}, **said("hi", [THOUGHT, CALL], [RESULT])},
        (
            "messages.1: When thinking is disabled, an `assistant` message in the final position cannot "
            "contain `thinking`."
        ),
    ),
    "thinking and a forced tool": (
        {**THINKS, "tools": [TOOL], "tool_choice": {"type": "any"}},
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    "thinking and a temperature": (
        {**THINKS, "extra_body": {"temperature": 0.5}},
        "`temperature` may only be set to 1 when thinking is enabled",
    ),
    "thinking and top_k": (
        {**THINKS, "extra_body": {"top_k": 5}},
        "`top_k` must be unset when thinking is enabled",
    ),
    "a temperature that is too high": ({"extra_body": {"temperature": 1.5}}, "temperature: range: 0..1"),
    "a blank stop sequence": (
        {"stop_sequences": ["END", "\n"]},
        "stop_sequences: each stop sequence must contain non-whitespace",
    ),
    "a choice of an unknown kind": (
        {"tools": [TOOL], "tool_choice": {"type": "required"}},
        "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'",
    ),
    "a choice with a field it has not": (
        {"tools": [TOOL], "tool_choice": {"type": "none", "disable_parallel_tool_use": True}},
        "tool_choice.disable_parallel_tool_use: Extra inputs are not permitted",
    ),
    "an unknown field": (
        {"extra_body": {"temprature": 1}},
        "temprature: Extra inputs are not permitted",
    ),
}


@pytest.fixture(scope="module")
def open_server() -> Iterator[MessagesServer]:
    with MessagesServer(lambda _request: reply(text("fine"))) as server:
        yield server


@pytest.fixture(scope="module")
def open_client(open_server: MessagesServer) -> Iterator[Any]:
    with sync_client(open_server) as client:
        yield client


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_the_api_would_refuse_gets_400(open_server: MessagesServer, open_client: Any, case: str) -> None:
    body, words = REFUSED[case]
    with pytest.raises(anthropic.BadRequestError) as caught:
        open_client.messages.create(**{**PLAIN, **body})
    assert caught.value.api_message == words
    assert caught.value.type == "invalid_request_error"
    assert open_server.requests[-1].problem == words


ACCEPTED: dict[str, dict[str, Any]] = {
    "one role in a row": said(USER, USER, {"role": "assistant", "content": "a"}, USER),
    "results in two messages": said(
        "hi",
        [CALL, CALL_2],
        {"role": "user", "content": [RESULT]},
        {"role": "user", "content": [RESULT_2]},
    ),
    "text after results": said("hi", [TEXT, CALL], [RESULT, TEXT]),
    "a result without content": said("hi", [CALL], [{"type": "tool_result", "tool_use_id": "t1"}]),
    "a prefill": said("hi", "The answer is ("),
    "signed thinking": said(
        "hi",
        [
            {"type": "thinking", "thinking": "", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            CALL,
        ],
        [RESULT],
    ),
    "thinking in a chain that began with a thought": {**THINKS, **said("hi", [THOUGHT, CALL], [RESULT])},
    "thinking after a chain without thoughts": {**THINKS, **said("hi", [CALL], [RESULT], [TEXT], "and now?")},
    "an image and files": said(
        [
            IMAGE,
            {"type": "document", "title": "a.pdf", "source": {"type": "url", "url": "https://x/a.pdf"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
        ]
    ),
    "system as blocks with cache marks": {"system": [TEXT | MARK], "tools": [TOOL | MARK]},
    "the API's own tools": {"tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}]},
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_request_the_api_would_take_is_taken(open_server: MessagesServer, open_client: Any, case: str) -> None:
    open_client.messages.create(**{**PLAIN, **ACCEPTED[case]})
    assert open_server.requests[-1].problem is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "Input should be a valid dictionary"),
        ({"model": "m", "messages": [USER]}, "max_tokens: Field required"),
        ({"max_tokens": 1, "messages": [USER]}, "model: Field required"),
        ({"model": "m", "max_tokens": 1}, "messages: Field required"),
        (
            {"model": "m", "max_tokens": "64", "messages": [USER]},
            "max_tokens: Input should be a valid integer",
        ),
    ],
)
def test_bodies_the_sdk_would_not_send(body: Any, words: str) -> None:
    assert next(problems(body)) == words


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "words"),
    [
        ("/v1/models", "{}", {}, 404, "Not found"),
        ("/v1/messages", "{", {}, 400, "The request body is not valid JSON"),
        ("/v1/messages", "{}", {"anthropic-version": None}, 400, "anthropic-version: header"),
        ("/v1/messages", "{}", {"x-api-key": None}, 401, "x-api-key header is required"),
    ],
)
def test_requests_the_sdk_would_not_send(
    open_server: MessagesServer,
    path: str,
    content: str,
    headers: dict[str, str | None],
    status: int,
    words: str,
) -> None:
    usual = {"x-api-key": "k", "anthropic-version": "2023-06-01"} | headers
    sent = {name: value for name, value in usual.items() if value is not None}
    answer = httpx2.post(open_server.url + path, content=content, headers=sent)
    assert answer.status_code == status
    assert answer.json()["error"]["message"].startswith(words)


def test_a_refused_request_takes_no_turn() -> None:
    with MessagesServer([reply(text("Hi"))]) as server, sync_client(server) as client:
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(model="m", max_tokens=1, messages=[])
        assert server.remaining == 1
