"""Claude, through Anthropic's own SDK."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final
from weakref import WeakKeyDictionary

from pydantic import SecretStr

from sagents_nb.deltas import Delta, MessageBuilder, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from sagents_nb.errors import ConfigurationError, ModelError, in_words
from sagents_nb.frozen import FrozenDict, frozen_object
from sagents_nb.messages import MessageStatus, Usage
from sagents_nb.models.anthropic_wire import (
    BLOCK_ORDER,
    NOT_IN_BODY,
    assistant_blocks,
    request_body,
    request_headers,
)
from sagents_nb.models.base import ChatModel, ModelRequest

logger = logging.getLogger("sagents_nb")

MAX_PAUSES = 8
"""How often a turn that the API paused is taken up again; then the answer counts as cut."""

SHORTEST_SECRET = 8
"""Characters; what is shorter, such as the "x" that a local server takes for a key, is none and stands in every text."""

_STATUS: dict[str, MessageStatus] = {
    "end_turn": "complete",
    "tool_use": "complete",
    "stop_sequence": "complete",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refused",
}
"""What the API's stop reasons say about the message."""

_TYPES = {"rate_limit_error": "rate_limit_exceeded", "overloaded_error": "overloaded", "timeout_error": "timeout"}
"""Error types of the API that go by another name here."""

_TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_exceeded",
    504: "timeout",
    529: "overloaded",
}
"""Types of responses that are not the API's own, such as those of a proxy; others are ``"api_error"``."""

_RETRYABLE_TYPES = frozenset({"rate_limit_error", "overloaded_error", "api_error", "timeout_error"})

_OF_THE_REQUEST = frozenset({"messages", "system", "tools", "stream", "timeout", "api_key", "base_url", "extra_query"})
"""What `options` cannot set, since the request, the agent or the model itself brings it."""


class AnthropicModel(ChatModel):
    """A Claude model.

    The SDK is imported in a thread at the first request. Its own retries are off: the loop retries, and says so.

    Args:
        name: the model, for example ``"claude-sonnet-4-5"``.
        max_tokens: length limit of one answer.
        api_key: by default the environment's ``ANTHROPIC_API_KEY``, read at the first request.
        base_url: another server that speaks the Messages API.
        thinking_budget: tokens the model may think, at least 1,024 and fewer than `max_tokens`; None to say nothing
            about it. A request that forces a tool is sent without it: the API allows only one of the two.
        timeout: seconds without a byte before a request is given up.
        cache: whether to mark system prompt, tools and conversation for the provider's prompt cache.
        options: further fields of the API's request by their own names, for example ``stop_sequences``,
            ``temperature`` (where the model takes it), ``service_tier``, ``thinking={"type": "adaptive"}``; besides,
            ``betas`` (a list) and ``headers`` (a dict). `ModelRequest.options` win over them.

    Raises:
        ConfigurationError: a setting is out of range.
    """

    provider = "anthropic"

    def __init__(
        self,
        name: str,
        *,
        max_tokens: int = 4096,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        thinking_budget: int | None = None,
        timeout: float = 600.0,
        cache: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"AnthropicModel needs a model's name, got {name!r}: 'claude-sonnet-4-5'")
        if max_tokens < 1:
            raise ConfigurationError(f"AnthropicModel(max_tokens=…) is at least 1, got {max_tokens}")
        if thinking_budget is not None and not 1024 <= thinking_budget < max_tokens:
            raise ConfigurationError(
                f"AnthropicModel(thinking_budget=…) is at least 1024 and below max_tokens ({max_tokens}), "
                f"got {thinking_budget}"
            )
        if timeout <= 0:
            raise ConfigurationError(f"AnthropicModel(timeout=…) is a number of seconds above 0, got {timeout}")
        self.name = name
        self.max_tokens = max_tokens
        self.base_url = base_url
        self.thinking_budget = thinking_budget
        self.timeout = timeout
        self.cache = cache
        given = dict(options or {})
        problem = _problem(given)
        if problem:
            raise ConfigurationError(f"AnthropicModel(options=…) {problem}")
        headers = {**(given.get("headers") or {}), **(given.get("extra_headers") or {})}
        # Headers may be secrets; kept like the key, they show up in no repr.
        self.headers: Final = {name.lower(): SecretStr(value) for name, value in headers.items()}
        self.betas: Final[tuple[str, ...]] = tuple(given.get("betas") or ())
        fields = {key: value for key, value in given.items() if key not in NOT_IN_BODY}
        self.options: Final[FrozenDict] = _frozen({**fields, **(given.get("extra_body") or {})})
        problem = _header_problem(_plain(api_key))
        if problem:
            raise ConfigurationError(f"AnthropicModel(api_key=…) {problem}")
        self._api_key = SecretStr(_plain(api_key)) if _plain(api_key) else None
        # A client belongs to the loop that first used it; on another it fails with "bound to a different event loop".
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """See `ChatModel.stream`."""
        problem = _problem(request.options)
        if problem:
            raise ModelError(f"ModelRequest.options {problem}", type="invalid_request_error")
        body = request_body(self, request)
        headers = request_headers(self, request)
        client = await self._client()
        answer = _Answer(self.name)
        try:
            asked = body["messages"]
            while True:
                events = await _send(client, body, headers)
                try:
                    async for delta in answer.read(events):
                        yield delta
                finally:
                    await events.close()
                if not answer.take_up():
                    break
                body["messages"] = [*asked, {"role": "assistant", "content": answer.blocks()}]
            yield answer.stop()
        except ModelError:
            raise
        except Exception as error:
            translated = _translate(error)
            known = [secret.get_secret_value() for secret in self.secrets()]
            if any(secret in in_words(error) for secret in known):
                # A server that answers with what it was sent; neither the text nor the cause may show it.
                for secret in known:
                    translated.message = translated.message.replace(secret, "[secret]")
                translated.args = (translated.message,)
                raise translated from None
            raise translated from error

    def secrets(self) -> tuple[SecretStr, ...]:
        """See `ChatModel.secrets`."""
        key = self._api_key or SecretStr(os.environ.get("ANTHROPIC_API_KEY", "").strip())
        return tuple(secret for secret in (key, *self.headers.values()) if len(secret) >= SHORTEST_SECRET)

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            key = self._api_key or _key_of_environment()
            # Most of a second, and the loop would stand still.
            sdk = await loop.run_in_executor(None, import_module, "anthropic")
            if loop not in self._clients:
                self._clients[loop] = sdk.AsyncAnthropic(
                    api_key=key.get_secret_value(), base_url=self.base_url, timeout=self.timeout, max_retries=0
                )
        return self._clients[loop]


# -- settings -------------------------------------------------------------------------------------


def _plain(key: str | SecretStr | None) -> str:
    return (key.get_secret_value() if isinstance(key, SecretStr) else key or "").strip()


def _key_of_environment() -> SecretStr:
    key = os.environ.get("ANTHROPIC_API_KEY", "").strip()
    problem = _header_problem(key)
    if problem:
        raise ModelError(f"the environment variable ANTHROPIC_API_KEY {problem}", type="authentication_error")
    if not key:
        raise ModelError(
            "there is no API key: set the environment variable ANTHROPIC_API_KEY before the notebook starts, or pass "
            "AnthropicModel(…, api_key=getpass()). Without a key, use ScriptedModel",
            type="authentication_error",
        )
    return SecretStr(key)


def _header_problem(value: Any) -> str | None:
    """Why a text cannot be sent in a header. HTTP clients would say it with the text itself, which may be a secret."""
    if not isinstance(value, str):
        return f"is a {type(value).__name__}; it is a str"
    for place, character in enumerate(value, 1):
        if not (character.isascii() and character.isprintable()):
            return f"has a character in place {place} that no HTTP header can hold; copy it again"
    return None


def _problem(options: Mapping[str, Any]) -> str | None:
    """What is wrong with options, in words that follow their name; no value of a header is in them."""
    for key in options:
        if key in _OF_THE_REQUEST:
            return f"has {key!r}, which the agent, the conversation or AnthropicModel(…) itself brings"
    for key in ("headers", "extra_headers", "extra_body"):
        if not isinstance(options.get(key) or {}, Mapping):
            return f"has {key!r}, a {type(options[key]).__name__}; it is a dict"
    betas = options.get("betas") or ()
    if isinstance(betas, str) or not all(isinstance(beta, str) for beta in betas):
        return f"has 'betas', which is {betas!r}; it is a list of names"
    for key in ("headers", "extra_headers"):
        for name, value in (options.get(key) or {}).items():
            problem = _header_problem(value)
            if problem:
                return f"has the header {name!r}, which {problem}"
    return None


def _frozen(options: dict[str, Any]) -> FrozenDict:
    try:
        return frozen_object(options, path="options", hint="make another AnthropicModel(…, options={…})")
    except ValueError as error:
        raise ConfigurationError(f"AnthropicModel(options=…): {error}") from None


# -- the request ----------------------------------------------------------------------------------


async def _send(client: Any, body: dict[str, Any], headers: dict[str, str]) -> Any:
    create = client.messages.create
    # Fields that this version of the SDK does not name, such as `temperature`, are the API's to take or to refuse.
    named = inspect.signature(create).parameters
    fields = {key: value for key, value in body.items() if key in named}
    more = {key: value for key, value in body.items() if key not in named}
    return await create(**fields, stream=True, extra_headers=headers or None, extra_body=more or None)


# -- the answer -----------------------------------------------------------------------------------


class _Answer:
    """One message of the model in the making; one that the API pauses takes several responses."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.usage = Usage()
        self.metadata: dict[str, Any] = {}
        self.builder = MessageBuilder()
        self.kinds: dict[int, str] = {}
        self.first = 0
        self.pauses = 0
        self.reason: str | None = None
        self.ended = False

    async def read(self, events: Any) -> AsyncIterator[Delta]:
        """The deltas of one response."""
        with suppress(KeyError):
            self.metadata["request_id"] = events.response.headers["request-id"]
        self.first = max(self.kinds, default=-1) + 1
        self.ended = False
        before, usage = self.usage, Usage()
        async for event in events:
            delta: Delta | None = None
            match event.type:
                case "message_start":
                    usage = _usage(event.message.usage, usage)
                    self.metadata |= {"model": event.message.model, "message_id": event.message.id}
                case "content_block_start":
                    delta = _block_start(self.first + event.index, event.content_block)
                case "content_block_delta":
                    delta = _block_delta(self.first + event.index, event.delta)
                case "message_delta":
                    usage = _usage(event.usage, usage)
                    self._stopped(event.delta)
                case "message_stop":
                    self.ended = True
            if event.type in ("message_start", "message_delta"):
                # Also at the start: what a broken answer cost is known then.
                self.usage = before + usage
                delta = UsageDelta(self.usage)
            if delta is not None:
                self._note(delta)
                yield delta

    def _note(self, delta: Delta) -> None:
        self.builder.add(delta)
        if isinstance(delta, TextDelta | ThinkingDelta | ToolCallDelta):
            self.kinds[delta.index] = "call" if isinstance(delta, ToolCallDelta) else delta.type

    def _stopped(self, delta: Any) -> None:
        if delta.stop_reason:
            self.reason = self.metadata["stop_reason"] = delta.stop_reason
        for name in ("stop_sequence", "stop_details"):
            value = getattr(delta, name, None)
            if value is not None:
                dump = getattr(value, "model_dump", None)
                self.metadata[name] = dump(mode="json", exclude_none=True) if dump else value

    def take_up(self) -> bool:
        """Whether the API only paused, and is to be asked to go on."""
        if self.reason != "pause_turn" or not self.ended or "call" in self.kinds.values() or not self.blocks():
            return False
        self.pauses += 1
        return self.pauses <= MAX_PAUSES

    def blocks(self) -> list[dict[str, Any]]:
        """What came so far, as the API wants it back."""
        blocks = assistant_blocks(self.builder.build("complete"), ())
        if blocks and blocks[-1]["type"] == "text":
            blocks[-1]["text"] = blocks[-1]["text"].rstrip()  # the API goes on after no white space
        return blocks

    def stop(self) -> StopDelta:
        """The end.

        Raises:
            ModelError: there is none: the connection ended as if all were well, but the message did not.
        """
        if not self.ended:
            raise ModelError(
                f"the answer of {self.model} broke off: the stream ended without saying that it was complete",
                type="incomplete_stream",
                retryable=True,
                request_id=self.metadata.get("request_id"),
            )
        order = [kind for _, kind in sorted(self.kinds.items())]
        if order != sorted(order, key=lambda kind: kind == "call"):
            self.metadata[BLOCK_ORDER] = order  # a Message keeps its calls apart from the rest
        if self.reason not in _STATUS:
            logger.warning("%s stopped for a reason that is not known here: %s", self.model, self.reason)
        return StopDelta(_STATUS.get(self.reason or "", "complete"), self.metadata)


def _block_start(index: int, block: Any) -> Delta | None:
    match block.type:
        case "text":
            return TextDelta(block.text, index) if block.text else None
        case "thinking":
            return ThinkingDelta(block.thinking or "", index, block.signature or None)
        case "redacted_thinking":
            return ThinkingDelta("", index, redacted=block.data)
        case "tool_use":
            return ToolCallDelta(index, id=block.id, name=block.name)
    return None  # blocks of the provider's own tools, which are not offered


def _block_delta(index: int, delta: Any) -> Delta | None:
    match delta.type:
        case "text_delta":
            return TextDelta(delta.text, index)
        case "thinking_delta":
            return ThinkingDelta(delta.thinking, index)
        case "signature_delta":
            return ThinkingDelta("", index, delta.signature)
        case "input_json_delta":
            return ToolCallDelta(index, delta.partial_json)
    return None  # citations


def _usage(counted: Any, before: Usage) -> Usage:
    """The counts so far; the last event repeats only some of them."""

    def latest(name: str, old: int) -> int:
        value = getattr(counted, name, None)
        return old if value is None else int(value)

    return Usage(
        input_tokens=latest("input_tokens", before.input_tokens),
        output_tokens=latest("output_tokens", before.output_tokens),
        cache_read_tokens=latest("cache_read_input_tokens", before.cache_read_tokens),
        cache_write_tokens=latest("cache_creation_input_tokens", before.cache_write_tokens),
    )


# -- failures -------------------------------------------------------------------------------------


def _translate(error: Exception) -> ModelError:
    """A failure of the SDK, of the connection or of reading the answer, in the toolkit's words."""
    sdk = import_module("anthropic")
    if isinstance(error, sdk.APIStatusError):
        return _of_response(error)
    # What breaks in the middle of a stream is an error of the HTTP library underneath.
    classes = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, sdk.APITimeoutError) or "TimeoutException" in classes:
        return ModelError(
            f"the request timed out: {in_words(error) or type(error).__name__}", type="timeout", retryable=True
        )
    if isinstance(error, sdk.APIConnectionError) or type(error).__module__.partition(".")[0].startswith("httpx"):
        return ModelError(
            f"the connection to the model failed: {in_words(error) or type(error).__name__}",
            type="connection_error",
            retryable=True,
        )
    if isinstance(error, sdk.AnthropicError):
        return ModelError(f"{type(error).__name__}: {in_words(error)}", type="unhandled_error")
    return ModelError(
        f"the answer cannot be read: {type(error).__name__}: {in_words(error)}", type="invalid_response", retryable=True
    )


def _of_response(error: Any) -> ModelError:
    body = error.body if isinstance(error.body, Mapping) else {}
    detail = body.get("error")
    if not isinstance(detail, Mapping):
        detail = {}
    status = int(error.status_code)
    kind = str(detail.get("type") or _TYPE_OF_STATUS.get(status, "api_error"))
    headers = error.response.headers
    # An error inside a stream has the status 200 of the response it came in.
    retryable = kind in _RETRYABLE_TYPES if status < 400 else status in (408, 409, 429) or status >= 500
    if headers.get("x-should-retry") in ("true", "false") and status >= 400:
        retryable = headers["x-should-retry"] == "true"
    message = str(detail.get("message") or f"HTTP {status}: {_first_words(error.message)}")
    request_id = headers.get("request-id") or body.get("request_id")
    return ModelError(
        f"{message} (request {request_id})" if request_id else message,
        type=_TYPES.get(kind, kind),
        retryable=retryable,
        retry_after=_retry_after(headers),
        status_code=status,
        request_id=request_id,
    )


def _first_words(text: str) -> str:
    """The beginning of what may be the whole page of a proxy."""
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:199] + "…"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):  # a date instead of seconds: the loop's own waiting time is used
            seconds = float(headers[name]) / unit
            if math.isfinite(seconds):
                return max(seconds, 0.0)
    return None
