"""Claude, through Anthropic's own SDK."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import SecretStr

from sagents_nb.deltas import Delta, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from sagents_nb.errors import ConfigurationError, ModelError
from sagents_nb.messages import MessageStatus, Usage
from sagents_nb.models.anthropic_wire import request_body
from sagents_nb.models.base import ChatModel, ModelRequest

_STATUS: dict[str, MessageStatus] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
"""Stop reasons that do not mean that the message is complete."""

_TYPES = {"rate_limit_error": "rate_limit_exceeded", "overloaded_error": "overloaded"}
"""Error types of the API that go by another name here."""

_RETRYABLE_TYPES = frozenset({"rate_limit_error", "overloaded_error", "api_error", "timeout_error"})


class AnthropicModel(ChatModel):
    """A Claude model.

    The SDK is imported in a thread at the first request. Its own retries are off: the loop retries, and says so.

    Args:
        name: the model, for example ``"claude-sonnet-4-5"``.
        max_tokens: length limit of one answer.
        api_key: by default the environment's ``ANTHROPIC_API_KEY``, read at the first request.
        base_url: another server that speaks the Messages API.
        thinking_budget: tokens the model may think, at least 1,024 and fewer than `max_tokens`; None for no thinking.
        timeout: seconds without a byte before a request is given up.
        cache: whether to mark system prompt, tools and conversation for the provider's prompt cache.

    Raises:
        ConfigurationError: a setting is out of range.
    """

    provider = "anthropic"

    def __init__(
        self,
        name: str,
        *,
        max_tokens: int = 4096,
        api_key: str | None = None,
        base_url: str | None = None,
        thinking_budget: int | None = None,
        timeout: float = 600.0,
        cache: bool = True,
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
        self.name = name
        self.max_tokens = max_tokens
        self.base_url = base_url
        self.thinking_budget = thinking_budget
        self.timeout = timeout
        self.cache = cache
        self._api_key = SecretStr(api_key) if api_key else None
        # A client belongs to the loop that first used it; on another it fails with "bound to a different event loop".
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """See `ChatModel.stream`."""
        client = await self._client()
        try:
            events = await client.messages.create(**request_body(self, request), stream=True)
            try:
                metadata: dict[str, Any] = {}
                with suppress(KeyError):
                    metadata["request_id"] = events.response.headers["request-id"]
                async for delta in _deltas(events, metadata):
                    yield delta
            finally:
                await events.close()
        except ModelError:
            raise
        except Exception as error:
            translated = _translate(error)
            if translated is None:
                raise
            raise translated from error

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


def _key_of_environment() -> SecretStr:
    key = os.environ.get("ANTHROPIC_API_KEY", "").strip()
    if not key:
        raise ModelError(
            "there is no API key: set the environment variable ANTHROPIC_API_KEY before the notebook starts, or pass "
            "AnthropicModel(…, api_key=getpass()). Without a key, use ScriptedModel",
            type="authentication_error",
        )
    return SecretStr(key)


async def _deltas(events: Any, metadata: dict[str, Any]) -> AsyncIterator[Delta]:
    usage = Usage()
    status: MessageStatus = "complete"
    async for event in events:
        match event.type:
            case "message_start":
                usage = _usage(event.message.usage, usage)
                metadata["model"] = event.message.model
            case "content_block_start":
                first = _block_start(event.index, event.content_block)
                if first is not None:
                    yield first
            case "content_block_delta":
                piece = _block_delta(event.index, event.delta)
                if piece is not None:
                    yield piece
            case "message_delta":
                usage = _usage(event.usage, usage)
                reason = event.delta.stop_reason
                if reason:
                    metadata["stop_reason"] = reason
                    status = _STATUS.get(reason, "complete")
                details = getattr(event.delta, "stop_details", None)
                if details is not None:
                    metadata["stop_details"] = details.model_dump(mode="json", exclude_none=True)
            case "message_stop":
                yield UsageDelta(usage)
                yield StopDelta(status, metadata)


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


def _translate(error: Exception) -> ModelError | None:
    """A failure of the SDK or of the connection, in the toolkit's words; None for anything else."""
    sdk = import_module("anthropic")
    if isinstance(error, sdk.APIStatusError):
        return _of_response(error)
    if isinstance(error, sdk.APITimeoutError):
        return ModelError(f"the request timed out: {error}", type="timeout", retryable=True)
    # A connection that breaks in the middle of a stream is an error of the HTTP library underneath.
    if isinstance(error, sdk.APIConnectionError) or type(error).__module__.partition(".")[0].startswith("httpx"):
        return ModelError(
            f"the connection to the model failed: {error or type(error).__name__}",
            type="connection_error",
            retryable=True,
        )
    if isinstance(error, sdk.AnthropicError):
        return ModelError(f"{type(error).__name__}: {error}", type="unhandled_error")
    return None


def _of_response(error: Any) -> ModelError:
    body = error.body if isinstance(error.body, Mapping) else {}
    detail = body.get("error")
    if not isinstance(detail, Mapping):
        detail = {}
    kind = str(detail.get("type") or "api_error")
    status = int(error.status_code)
    # An error inside a stream has the status 200 of the response it came in.
    retryable = kind in _RETRYABLE_TYPES if status < 400 else status in (408, 409, 429) or status >= 500
    return ModelError(
        str(detail.get("message") or error.message),
        type=_TYPES.get(kind, kind),
        retryable=retryable,
        retry_after=_retry_after(error.response.headers),
        status_code=status,
        request_id=error.response.headers.get("request-id"),
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):  # a date instead of seconds: the loop's own waiting time is used
            return max(float(headers[name]) / unit, 0.0)
    return None
