"""What a scripted Messages API server answers: turns as data, and their events.

A turn is a `Reply` (a message, whole or broken off), an `HttpError` or a `HangUp`. Build them with
the small helpers; `events` turns a reply into the API's server-sent events, in the API's order.
Nothing here opens a socket: see `messages_server` for that.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]

STATUS_OF_ERROR = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
ERROR_OF_STATUS = {status: kind for kind, status in STATUS_OF_ERROR.items()}
WORDS_OF_ERROR = {
    "invalid_request_error": "Invalid request",
    "permission_error": "Your API key does not have permission to use the specified resource",
    "request_too_large": "Request exceeds the maximum size",
    "authentication_error": "invalid x-api-key",
    "not_found_error": "Not found",
    "rate_limit_error": "This request would exceed your organization's rate limit",
    "api_error": "Internal server error",
    "overloaded_error": "Overloaded",
}
DEFAULT_USAGE: Json = {
    "input_tokens": 25,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 15,
}


# -- content blocks -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """One content block: how it opens, what its deltas add, and the whole they make."""

    start: Json
    deltas: tuple[Json, ...]
    final: Json

    def with_default_id(self, block_id: str) -> "Block":
        """The block itself, or a copy with `block_id` when it needs an id and has none."""
        if self.start.get("id", "") is not None:
            return self
        return replace(self, start=self.start | {"id": block_id}, final=self.final | {"id": block_id})


Chunks: TypeAlias = int | Sequence[str]


def _pieces(whole: str, chunks: Chunks) -> Sequence[str]:
    if isinstance(chunks, int):
        return [whole[at : at + chunks] for at in range(0, len(whole), chunks)]
    if "".join(chunks) != whole:
        raise ValueError(f"chunks {list(chunks)!r} do not add up to {whole!r}")
    return chunks


def text(value: str, *, chunks: Chunks = 5, citations: Sequence[Json] = ()) -> Block:
    """A text block.

    Args:
        value: The whole text.
        chunks: Characters per `text_delta`, or the deltas themselves.
        citations: One `citations_delta` each, after the text.
    """
    deltas: list[Json] = [{"type": "text_delta", "text": piece} for piece in _pieces(value, chunks)]
    deltas += [{"type": "citations_delta", "citation": citation} for citation in citations]
    final: Json = {"type": "text", "text": value}
    if citations:
        final["citations"] = list(citations)
    return Block({"type": "text", "text": ""}, tuple(deltas), final)


def thinking(value: str, *, signature: str = "c2lnbmF0dXJl", chunks: Chunks = 5) -> Block:
    """A thinking block: `thinking_delta`s, then one `signature_delta`.

    An empty `value` gives the API's "omitted" display: a signature and no thinking.
    """
    deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(value, chunks)]
    deltas.append({"type": "signature_delta", "signature": signature})
    return Block(
        {"type": "thinking", "thinking": "", "signature": ""},
        tuple(deltas),
        {"type": "thinking", "thinking": value, "signature": signature},
    )


def redacted_thinking(data: str = "ZW5jcnlwdGVk") -> Block:
    """A redacted thinking block: it comes whole in `content_block_start`, without deltas."""
    whole: Json = {"type": "redacted_thinking", "data": data}
    return Block(whole, (), whole)


def tool_use(
    name: str,
    arguments: Mapping[str, object] | None = None,
    *,
    id: str | None = None,  # the wire's own word
    raw_json: str | None = None,
    chunks: Chunks = 3,
) -> Block:
    """A tool call: one empty `input_json_delta`, then the arguments in small pieces.

    Three characters a piece cut through keys, numbers and escapes. A call without arguments sends
    the empty delta only, as the API does: an adapter must read "" as {}.

    Args:
        name: The tool.
        arguments: Its arguments.
        id: The call's id. By default the server numbers calls through, so ids never repeat.
        raw_json: The JSON text to stream instead of `arguments`: malformed, or cut short.
        chunks: Characters per delta, or the deltas themselves.
    """
    if raw_json is None:
        raw_json = json.dumps(arguments, ensure_ascii=False) if arguments else ""
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_pieces(raw_json, chunks)]]
    start: Json = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return Block(start, tuple(deltas), start | {"input": dict(arguments or {})})


# -- turns ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finish:
    """The reply ends well: `message_delta` and `message_stop`."""

    stop_reason: str
    stop_sequence: str | None = None
    stop_details: Json | None = None


@dataclass(frozen=True)
class StreamError:
    """The reply ends in `event: error`."""

    kind: str
    message: str


@dataclass(frozen=True)
class Drop:
    """The connection goes away inside the reply.

    `how`: "cut" ends it without the last HTTP chunk; "reset" sends a TCP reset; "end" finishes the
    HTTP body properly, so that only the missing `message_stop` tells (some proxies do this).
    `mid_line`: half of the next SSE line is sent first.
    """

    how: Literal["cut", "reset", "end"] = "cut"
    mid_line: bool = False


@dataclass(frozen=True)
class Stall:
    """Nothing more comes. Ends when the client leaves, after `seconds`, or with the server."""

    seconds: float | None = None


@dataclass(frozen=True)
class Reply:
    """A message: its blocks and its ending. From `reply`, `stream_error`, `drop` or `stall`.

    `blocks` is None when not even `message_start` is sent. Unless the reply ends in `Finish`, its
    last block stays open: no `content_block_stop`.
    """

    blocks: tuple[Block, ...] | None
    ending: Finish | StreamError | Drop | Stall
    usage: Json = field(default_factory=lambda: dict(DEFAULT_USAGE))
    delay: float = 0.0
    gate: threading.Event | None = None
    write_size: int | None = None


@dataclass(frozen=True)
class HttpError:
    """An answer with an HTTP error status. Build it with `http_error`."""

    status: int
    body: str
    headers: dict[str, str]


@dataclass(frozen=True)
class HangUp:
    """The connection is closed without any answer. Build it with `hang_up`."""

    how: Literal["cut", "reset"] = "cut"


Turn: TypeAlias = Reply | HttpError | HangUp


def reply(
    *blocks: Block,
    stop_reason: str | None = None,
    stop_sequence: str | None = None,
    stop_details: Json | None = None,
    usage: Mapping[str, Any] | None = None,
    delay: float = 0.0,
    gate: threading.Event | None = None,
    write_size: int | None = None,
) -> Reply:
    """A whole message. Without blocks it is the API's empty answer.

    Args:
        *blocks: Its content, in order.
        stop_reason: By default "tool_use" when there is a tool call, else "end_turn".
        stop_sequence: The stop sequence that ended it, if one did.
        stop_details: The object that comes with a refusal.
        usage: Token counts that differ from `DEFAULT_USAGE`.
        delay: Seconds before every event.
        gate: The reply starts when this event is set.
        write_size: At most so many bytes at once, so that lines and characters are cut anywhere.
    """
    if stop_reason is None:
        stop_reason = "tool_use" if any(b.start["type"] == "tool_use" for b in blocks) else "end_turn"
    ending = Finish(stop_reason, stop_sequence, stop_details)
    return Reply(blocks, ending, DEFAULT_USAGE | dict(usage or {}), delay, gate, write_size)


def refusal(*blocks: Block, explanation: str | None = None, category: str | None = None) -> Reply:
    """A message that ends in a refusal, after whatever was already said."""
    details = {"type": "refusal", "category": category, "explanation": explanation}
    return reply(*blocks, stop_reason="refusal", stop_details=details)


After: TypeAlias = Block | Sequence[Block] | None


def _so_far(after: After) -> tuple[Block, ...] | None:
    if after is None:
        return None
    return (after,) if isinstance(after, Block) else tuple(after)


def stream_error(kind: str = "overloaded_error", message: str | None = None, *, after: After = ()) -> Reply:
    """`event: error` in a stream that began with HTTP 200.

    Args:
        kind: The API's error type, as "overloaded_error" or "api_error".
        message: Its words, by default the API's own.
        after: What came before: one block or several, of which the last stays open; `()` for
            `message_start` alone; None for nothing at all.
    """
    return Reply(_so_far(after), StreamError(kind, message or WORDS_OF_ERROR.get(kind, kind)))


def drop(*, after: After = None, how: Literal["cut", "reset", "end"] = "cut", mid_line: bool = False) -> Reply:
    """A connection lost after the HTTP headers; `after` as in `stream_error`, else see `Drop`."""
    return Reply(_so_far(after), Drop(how, mid_line))


def stall(*, after: After = None, seconds: float | None = None) -> Reply:
    """A stream that stops coming but stays open; `after` as in `stream_error`."""
    return Reply(_so_far(after), Stall(seconds))


def hang_up(how: Literal["cut", "reset"] = "cut") -> HangUp:
    """A connection closed before the HTTP status line."""
    return HangUp(how)


def http_error(
    status: int,
    message: str | None = None,
    *,
    kind: str | None = None,
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
    body: str | None = None,
) -> HttpError:
    """An HTTP error.

    Args:
        status: The status code.
        message: The words of the error, by default the API's own.
        kind: The API's error type, by default the one that goes with `status`.
        retry_after: Seconds for the `retry-after` header.
        headers: More headers.
        body: The whole body instead, for what a proxy in between would send.
    """
    kind = kind or ERROR_OF_STATUS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if body is None:
        body = json.dumps(error_body(kind, message or WORDS_OF_ERROR.get(kind, kind)))
    sent = dict(headers or {})
    if retry_after is not None:
        sent["retry-after"] = f"{retry_after:g}"
    return HttpError(status, body, sent)


# -- the wire -------------------------------------------------------------------------------------


def error_body(kind: str, message: str) -> Json:
    """The API's error object, the same in an HTTP body and in `event: error`."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def sse(event: Json) -> bytes:
    """One event as the API writes it: its name, its data, an empty line."""
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def message(answer: Reply, *, message_id: str, model: str) -> Json:
    """The whole message of a reply, as a request without `stream` gets it."""
    ending = answer.ending
    assert isinstance(ending, Finish)
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block.final for block in answer.blocks or ()],
        "stop_reason": ending.stop_reason,
        "stop_sequence": ending.stop_sequence,
        "stop_details": ending.stop_details,
        "usage": answer.usage,
    }


def events(answer: Reply, *, message_id: str, model: str) -> Iterator[Json]:
    """The events of a reply up to its ending; those of a good ending included.

    Args:
        answer: The reply.
        message_id: The id in `message_start`.
        model: The model named there.
    """
    if answer.blocks is None:
        return
    yield {
        "type": "message_start",
        "message": {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": answer.usage | {"output_tokens": 1},
        },
    }
    for index, block in enumerate(answer.blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block.start}
        if index == 0:
            yield {"type": "ping"}
        for delta in block.deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if index + 1 < len(answer.blocks) or isinstance(answer.ending, Finish):
            yield {"type": "content_block_stop", "index": index}
    if isinstance(answer.ending, Finish):
        end: Json = {
            "stop_reason": answer.ending.stop_reason,
            "stop_sequence": answer.ending.stop_sequence,
        }
        if answer.ending.stop_details is not None:
            end["stop_details"] = answer.ending.stop_details
        yield {"type": "message_delta", "delta": end, "usage": answer.usage}
        yield {"type": "message_stop"}
