"""Requests in the wire format of the Messages API (https://docs.anthropic.com/en/api/messages)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagents_nb.frozen import thaw
from sagents_nb.messages import File, Image, Message, Text, Thinking, ToolCall, ToolResult
from sagents_nb.models.base import ModelRequest

if TYPE_CHECKING:
    from sagents_nb.models.anthropic import AnthropicModel

_CACHE = {"type": "ephemeral"}


def request_body(model: AnthropicModel, request: ModelRequest) -> dict[str, Any]:
    """Keyword arguments for ``client.messages.create``.

    Args:
        model: settings.
        request: what to ask; each tool call in it has its result in the next message.
    """
    system = "\n\n".join(filter(None, [request.system, *(m.text for m in request.messages if m.role == "system")]))
    body: dict[str, Any] = {
        "model": model.name,
        "max_tokens": model.max_tokens,
        "messages": wire_messages(request.messages),
    }
    if system:
        body["system"] = [{"type": "text", "text": system}]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": thaw(dict(tool.input_schema))}
            for tool in request.tools
        ]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    if model.thinking_budget is not None:
        body["thinking"] = {"type": "enabled", "budget_tokens": model.thinking_budget}
    if model.cache:
        # Three of the four breakpoints the API allows: what never changes, then the conversation so far.
        for blocks in (
            body.get("tools"),
            body.get("system"),
            body["messages"][-1]["content"] if body["messages"] else None,
        ):
            if blocks and blocks[-1].get("type") not in ("thinking", "redacted_thinking"):
                blocks[-1]["cache_control"] = _CACHE
    return {**body, **request.options}


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Messages as the API takes them: roles alternate, nothing is empty, ids of tool calls are unique."""
    wire: list[dict[str, Any]] = []
    used: set[str] = set()
    ids: dict[str, str] = {}
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if message.role == "assistant":
            ids = {call.id: _unique(call.id, used) for call in message.tool_calls}
            blocks = [*_content(message), *(_tool_use(call, ids[call.id]) for call in message.tool_calls)]
        else:
            blocks = [*(_tool_result(result, ids) for result in message.tool_results), *_content(message)]
        if not blocks:
            continue
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    if wire and wire[-1]["role"] == "assistant" and wire[-1]["content"][-1]["type"] == "text":
        # The API refuses an unfinished answer that ends in white space.
        last = wire[-1]["content"][-1]
        last["text"] = last["text"].rstrip()
    return wire


def _unique(call_id: str, used: set[str]) -> str:
    """The id itself the first time; some models use an id again in a later turn, which the API refuses."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in call_id) or "call"
    number, candidate = 1, clean
    while candidate in used:
        number += 1
        candidate = f"{clean}-{number}"
    used.add(candidate)
    return candidate


def _content(message: Message) -> list[dict[str, Any]]:
    blocks = []
    for part in message.content:
        block = _part(part, thinking=message.role == "assistant")
        if block is not None:
            blocks.append(block)
    return blocks


def _part(part: Any, *, thinking: bool = False) -> dict[str, Any] | None:
    match part:
        case Text():
            return {"type": "text", "text": part.text} if part.text.strip() else None
        case Thinking():
            if thinking and part.redacted:
                return {"type": "redacted_thinking", "data": part.redacted}
            if thinking and part.signature:
                return {"type": "thinking", "thinking": part.text, "signature": part.signature}
            return None  # without its seal the API refuses a thought
        case Image():
            return {"type": "image", "source": _source(part, "image/png")}
        case File():
            document = {"type": "document", "source": _source(part, "application/pdf")}
            return {**document, "title": part.name} if part.name else document
    return None


def _source(part: Image | File, default: str) -> dict[str, Any]:
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type or default, "data": part.data or ""}


def _tool_use(call: ToolCall, wire_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": wire_id, "name": call.name, "input": thaw(call.arguments)}


def _tool_result(result: ToolResult, ids: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": ids.get(result.tool_call_id, result.tool_call_id),
        "content": [block for part in result.content if (block := _part(part)) is not None],
    }
    return {**answer, "is_error": True} if result.is_error else answer


def _tool_choice(choice: str) -> dict[str, str]:
    return {"type": choice} if choice in ("auto", "any", "none") else {"type": "tool", "name": choice}
