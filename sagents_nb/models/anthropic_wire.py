"""Requests in the wire format of the Messages API (https://docs.anthropic.com/en/api/messages).

Whatever the history, what comes out is a body that the API takes: see `wire_messages` and `request_body` for its rules.
"""

from __future__ import annotations

import binascii
import mimetypes
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sagents_nb.errors import ModelError, did_you_mean
from sagents_nb.frozen import thaw
from sagents_nb.messages import File, Image, Message, Text, Thinking, ToolCall, ToolResult
from sagents_nb.models.base import ModelRequest

if TYPE_CHECKING:
    from sagents_nb.models.anthropic import AnthropicModel

LEFT_OUT = "(The messages before this one were left out.)"
"""What the user says first where the history begins with the assistant: the API wants the user to begin."""

GO_ON = "Continue."
"""What the user says last where the history ends with the assistant: newer models do not go on with an answer."""

NO_TEXT = "(no text)"
"""Content of an error result that has none: the API wants some."""

BLOCK_ORDER = "block_order"
"""Key of an assistant's metadata: where its calls stood among its other blocks, when not all of them stood last."""

NOT_IN_BODY = frozenset({"betas", "extra_body", "extra_headers", "headers"})
"""Options that are no fields of the body."""

_CACHE = {"type": "ephemeral"}
_THOUGHTS = ("thinking", "redacted_thinking")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml")


def request_body(model: AnthropicModel, request: ModelRequest) -> dict[str, Any]:
    """The body of a request.

    Args:
        model: settings.
        request: what to ask; each tool call in it has its result in the next message.

    Returns:
        JSON. Thinking is left out of a request where the API would refuse it: when a tool is forced, and in the middle
        of a chain of tool calls that began without a thought.

    Raises:
        ModelError: the tool that must be called is not offered.
    """
    settings = {**model.options, **{key: value for key, value in request.options.items() if key not in NOT_IN_BODY}}
    settings.update(request.options.get("extra_body") or {})
    thinking = settings.pop("thinking", None) if "thinking" in settings else _budget(model)
    given_choice = settings.pop("tool_choice", None)

    body: dict[str, Any] = {
        "model": model.name,
        "max_tokens": model.max_tokens,
        "messages": wire_messages(request.messages, thoughts=not _is_off(thinking)),
    }
    system = _system(request)
    if system:
        body["system"] = [{"type": "text", "text": system}]
    body |= _tools(request, given_choice, body["messages"])
    if thinking and not _is_off(thinking) and not _may_think(body, thinking):
        # The thoughts of before go too: a request without thinking must not end in them.
        body["messages"] = wire_messages(request.messages, thoughts=False)
    elif thinking:
        body["thinking"] = thaw(thinking)
    if model.cache:
        # Three of the four breakpoints the API allows: what never changes, then the conversation so far.
        for blocks in (body.get("tools"), body.get("system"), body["messages"][-1]["content"]):
            if blocks:
                blocks[-1]["cache_control"] = _CACHE
    body |= {key: thaw(value) for key, value in settings.items()}
    return {key: value for key, value in body.items() if value is not None}


def request_headers(model: AnthropicModel, request: ModelRequest) -> dict[str, str]:
    """Headers of a request besides the SDK's own; they may hold secrets."""
    headers = {name: value.get_secret_value() for name, value in model.headers.items()}
    for key in ("headers", "extra_headers"):
        headers |= {name.lower(): value for name, value in (request.options.get(key) or {}).items()}
    betas = request.options.get("betas", model.betas)
    if betas:
        headers["anthropic-beta"] = ",".join(filter(None, [headers.get("anthropic-beta"), *betas]))
    return headers


def _system(request: ModelRequest) -> str:
    """The system prompt and, after it, what system messages say: the API has one place for both."""
    texts = [request.system, *(message.text for message in request.messages if message.role == "system")]
    return "\n\n".join(text for text in texts if text.strip())


# -- thinking -------------------------------------------------------------------------------------


def _budget(model: AnthropicModel) -> dict[str, Any] | None:
    if model.thinking_budget is None:
        return None
    return {"type": "enabled", "budget_tokens": model.thinking_budget}


def _is_off(thinking: Mapping[str, Any] | None) -> bool:
    """Whether thinking was switched off in so many words; where nothing was said, the model itself decides."""
    return thinking is not None and thinking.get("type") == "disabled"


def _may_think(body: Mapping[str, Any], thinking: Mapping[str, Any]) -> bool:
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        return False
    messages = body["messages"]
    if thinking.get("type") != "enabled" or messages[-1]["content"][0]["type"] != "tool_result":
        return True
    return messages[-2]["content"][0]["type"] in _THOUGHTS


# -- tools ----------------------------------------------------------------------------------------


def _tools(
    request: ModelRequest, given_choice: Mapping[str, Any] | None, messages: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    if request.tools:
        tools = [
            {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "input_schema": thaw(dict(tool.input_schema)),
            }
            for tool in request.tools
        ]
        return {"tools": tools, "tool_choice": _tool_choice(request, given_choice)}
    _tool_choice(request, None)
    # The API wants tools for a history with calls, even where there are none any more.
    called = dict.fromkeys(
        block["name"] for message in messages for block in message["content"] if block["type"] == "tool_use"
    )
    if not called:
        return {}
    gone = [
        {"name": name, "description": "Not available any more.", "input_schema": {"type": "object", "properties": {}}}
        for name in called
    ]
    return {"tools": gone, "tool_choice": {"type": "none"}}


def _tool_choice(request: ModelRequest, given: Mapping[str, Any] | None) -> dict[str, Any]:
    choice = request.tool_choice
    names = [tool.name for tool in request.tools]
    if choice == "any" and not names:
        raise ModelError("the model must call a tool, and there is none; give it one", type="invalid_request_error")
    if choice not in ("auto", "any", "none"):
        if choice not in names:
            raise ModelError(
                f"the model must call {choice!r}, which it is not offered{did_you_mean(choice, names)}; its tools: "
                f"{', '.join(names) or 'none'}",
                type="invalid_request_error",
            )
        return {"type": "tool", "name": choice}
    return thaw(dict(given)) if given and choice == "auto" else {"type": choice}


# -- messages -------------------------------------------------------------------------------------


def wire_messages(messages: tuple[Message, ...], *, thoughts: bool = True) -> list[dict[str, Any]]:
    """Messages as the API takes them.

    Args:
        messages: any history in which each call has its result, in order, in the next message.
        thoughts: whether to send what the model thought.

    Returns:
        Turns of user and assistant in alternation, of which the user has the first and the last. Nothing is empty or
        blank; ids of calls are unique; what the API does not take is described in a line of text.
    """
    wire: list[dict[str, Any]] = []
    used: set[str] = set()
    waiting: list[tuple[str, str]] = []  # (id in the history, id on the wire) of the calls of the message before
    for message in messages:
        if message.role == "system":
            continue
        if message.role == "assistant":
            ids = [_unique(call.id, used) for call in message.tool_calls]
            waiting = [(call.id, sent) for call, sent in zip(message.tool_calls, ids, strict=True)]
            blocks = assistant_blocks(message, ids, thoughts=thoughts)
        else:
            blocks = [*_tool_results(message.tool_results, waiting), *_content(message)]
        if not blocks:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    if wire and wire[0]["role"] == "assistant":
        wire.insert(0, {"role": "user", "content": [_text(LEFT_OUT)]})
    if not wire or wire[-1]["role"] == "assistant":
        wire.append({"role": "user", "content": [_text(GO_ON)]})
    return wire


def assistant_blocks(message: Message, ids: Iterable[str], *, thoughts: bool = True) -> list[dict[str, Any]]:
    """The blocks of an assistant message, in the order in which they came.

    Args:
        message: an assistant message.
        ids: of its calls.
        thoughts: whether to send what it thought.
    """
    blocks: list[dict[str, Any]] = []
    given = iter(ids)
    for item in _in_order(message):
        if isinstance(item, ToolCall):
            blocks.append(_tool_use(item, next(given)))
        elif isinstance(item, Thinking):
            if thoughts and (thought := _thought(item)):
                blocks.append(thought)
        elif block := _part(item):
            own = block["type"] == "text"
            blocks.append(block if own else _described(item, "the API takes it from the user only"))
    while blocks and blocks[-1]["type"] in _THOUGHTS:  # cut off before it spoke; the API takes no such message
        blocks.pop()
    return blocks


def _in_order(message: Message) -> list[Any]:
    order = message.metadata.get(BLOCK_ORDER)
    parts, calls = iter(message.content), iter(message.tool_calls)
    if (
        isinstance(order, list)
        and order.count("call") == len(message.tool_calls)
        and len(order) == len(message.tool_calls) + len(message.content)
    ):
        return [next(calls) if kind == "call" else next(parts) for kind in order]
    return [*parts, *calls]


def _unique(call_id: str, used: set[str]) -> str:
    """The id itself the first time; some models use an id again in a later turn, which the API refuses."""
    clean = _name(call_id, "call")
    number, candidate = 1, clean
    while candidate in used:
        number += 1
        candidate = f"{clean}-{number}"
    used.add(candidate)
    return candidate


def _name(name: str, instead: str) -> str:
    """A name or an id with nothing but the characters the API takes; models invent names that have others."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:128] or instead


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _content(message: Message) -> list[dict[str, Any]]:
    return [block for part in message.content if (block := _part(part))]


def _part(part: Any) -> dict[str, Any] | None:
    match part:
        case Text():
            return _text(part.text) if part.text.strip() else None
        case Image() | File():
            return _attachment(part)
    return None  # a thought that is not the assistant's


def _thought(part: Thinking) -> dict[str, Any] | None:
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.redacted}
    if part.signature:
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return None  # without its seal the API refuses a thought


def _tool_use(call: ToolCall, wire_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": wire_id, "name": _name(call.name, "unknown"), "input": thaw(call.arguments)}


def _tool_results(results: Iterable[ToolResult], waiting: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    ids: dict[str, list[str]] = {}
    for call_id, sent in waiting:
        ids.setdefault(call_id, []).append(sent)
    blocks: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for result in results:
        content = [block for part in result.content if (block := _part(part))]
        if result.is_error:
            # Of a failed call the API takes text only; whatever else it gave follows after the results.
            others = [block for block in content if block["type"] != "text"]
            content = [block for block in content if block["type"] == "text"] or [_text(NO_TEXT)]
            if others:
                after += [_text(f"From the failed call of {result.name or 'a tool'}:"), *others]
        mine = ids.get(result.tool_call_id)
        blocks.append(
            {
                "type": "tool_result",
                "tool_use_id": mine.pop(0) if mine else _name(result.tool_call_id, "call"),
                **({"content": content} if content else {}),
                **({"is_error": True} if result.is_error else {}),
            }
        )
    return blocks + after


# -- images and files -----------------------------------------------------------------------------


def _attachment(part: Image | File) -> dict[str, Any]:
    url, data, kind = part.url or "", part.data or "", part.media_type or _kind(part)
    if url.startswith("data:"):
        head, _, data = url.removeprefix("data:").partition(",")
        if not head.endswith(";base64") or not _is_base64(data):
            return _described(part, "its data URL is not base64")
        url, kind = "", part.media_type or head.partition(";")[0]
    kind = kind.lower()
    if url:
        return _by_url(part, url, kind)
    if not data.strip():
        return _described(part, "it is empty")
    if kind in _IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    if kind == "application/pdf":
        return _document(part, {"type": "base64", "media_type": kind, "data": data})
    if kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+xml", "+json")):
        text = binascii.a2b_base64(data).decode(errors="replace")
        if not text.strip():
            return _described(part, "it is empty")
        return _document(part, {"type": "text", "media_type": "text/plain", "data": text})
    return _described(part, f"{kind} is none of the types that the API takes")


def _is_base64(data: str) -> bool:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return False
    return True


def _kind(part: Image | File) -> str:
    """The media type of a part that does not say it."""
    if isinstance(part, Image):
        return "image/png"
    return mimetypes.guess_type(part.name or part.url or "")[0] or "application/pdf"


def _by_url(part: Image | File, url: str, kind: str) -> dict[str, Any]:
    if not url.startswith("https://"):
        return _described(part, "the API reads only https:// URLs")
    if kind.startswith("image/"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    if kind == "application/pdf":
        return _document(part, {"type": "url", "url": url})
    return _described(part, "by URL the API reads only images and PDF")


def _document(part: Image | File, source: dict[str, Any]) -> dict[str, Any]:
    name = part.name.strip() if isinstance(part, File) else ""
    return {"type": "document", "source": source, **({"title": name[:500]} if name else {})}


def _described(part: Image | File, why: str) -> dict[str, Any]:
    """A line of text in the place of something the API does not take, so that the conversation can go on."""
    name = part.name.strip() if isinstance(part, File) else ""
    where = part.url if part.url and not part.url.startswith("data:") else ""
    return _text(f"({' '.join(filter(None, [part.type, name, where]))}: left out, since {why})")
