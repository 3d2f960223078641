"""What the Messages API refuses: the rules an agent's requests can break, in the API's words.

`problems(body)` yields them in the order the API finds them; its first one is the answer to a bad
request. Only rules that agents break are here; a request that passes may still be refused by the
real API (unknown model, too long, an image it cannot read).
"""

import base64
import re
from collections.abc import Iterator
from typing import Any

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_-]+")
MAX_CACHE_BREAKPOINTS = 4

# Required fields, then optional ones, as the SDK's parameter types list them.
_BODY_KEYS = "model max_tokens messages"
_BODY_OPTIONS = """
    cache_control container context_management diagnostics inference_geo mcp_servers metadata
    output_config service_tier speed stop_sequences stream system temperature thinking tool_choice
    tools top_k top_p
"""
_TOOL_KEYS = "name input_schema"
_TOOL_OPTIONS = """
    allowed_callers cache_control defer_loading description eager_input_streaming input_examples
    strict type
"""
_BLOCK_KEYS = {  # block types not named here pass unread
    "text": ("text", "cache_control citations"),
    "image": ("source", "cache_control transformations"),
    "document": ("source", "cache_control citations context title"),
    "thinking": ("signature thinking", ""),
    "redacted_thinking": ("data", ""),
    "tool_use": ("id input name", "cache_control caller toolset_name"),
    "tool_result": ("tool_use_id", "cache_control content is_error toolset_name"),
}
_SOURCES = {  # block type -> source type -> its required fields and the media types it may have
    "image": {
        "base64": ("data media_type", {"image/jpeg", "image/png", "image/gif", "image/webp"}),
        "url": ("url", None),
        "file": ("file_id", None),
    },
    "document": {
        "base64": ("data media_type", {"application/pdf"}),
        "text": ("data media_type", {"text/plain"}),
        "url": ("url", None),
        "file": ("file_id", None),
        "content": ("content", None),
    },
}
_IN_A_RESULT = {"text", "image", "document", "search_result", "tool_reference", "browser_state"}
_THOUGHTS = ("thinking", "redacted_thinking")
_NOT_FOR_ROLE = {
    "user": {"thinking", "redacted_thinking", "tool_use"},
    "assistant": {"tool_result", "image", "document"},
}

Block = dict[str, Any]
Turn = tuple[int, str, list[tuple[str, Block]]]  # index of its first message, role, (path, block)s


def problems(body: object) -> Iterator[str]:
    """Everything wrong with a request body, the API's first complaint first."""
    if not isinstance(body, dict):
        yield "Input should be a valid dictionary"
        return
    shape = [
        *_body_problems(body),
        *_system_problems(body.get("system")),
        *_messages_problems(body.get("messages")),
        *_tools_problems(body.get("tools", [])),
    ]
    yield from shape
    if shape:  # the rules below read what the rules above promise
        return
    turns = list(_turns(body["messages"]))
    yield from _turn_problems(turns)
    yield from _pairing_problems(turns)
    yield from _thinking_problems(body, turns)
    yield from _tool_choice_problems(body)
    yield from _cache_problems(body, turns)


# -- the shape of things --------------------------------------------------------------------------


def _keys(path: str, value: dict[str, Any], required: str, optional: str) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    for key in required.split():
        if key not in value:
            yield f"{prefix}{key}: Field required"
    for key in sorted(value.keys() - set(required.split()) - set(optional.split())):
        yield f"{prefix}{key}: Extra inputs are not permitted"


def _body_problems(body: dict[str, Any]) -> Iterator[str]:
    yield from _keys("", body, _BODY_KEYS, _BODY_OPTIONS)
    limit = body.get("max_tokens", 1)
    if not isinstance(limit, int) or isinstance(limit, bool):
        yield "max_tokens: Input should be a valid integer"
        return
    if limit < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        if budget is None:
            yield "thinking.enabled.budget_tokens: Field required"
        elif budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        elif limit <= budget:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`"
    temperature = body.get("temperature")
    if temperature is not None and not 0 <= temperature <= 1:
        yield "temperature: range: 0..1"
    if _thinks(body):
        if temperature not in (None, 1):
            yield "`temperature` may only be set to 1 when thinking is enabled"
        if body.get("top_k") is not None:
            yield "`top_k` must be unset when thinking is enabled"
    for place, sequence in enumerate(body.get("stop_sequences") or []):
        if not isinstance(sequence, str):
            yield f"stop_sequences.{place}: Input should be a valid string"
        elif not sequence.strip():
            yield "stop_sequences: each stop sequence must contain non-whitespace"


def _thinks(body: dict[str, Any]) -> bool:
    return (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")


def _system_problems(system: object) -> Iterator[str]:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        yield "system: Input should be a valid string or list"
        return
    for index, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            yield f"system.{index}.type: Input should be 'text'"
            continue
        yield from _keys(f"system.{index}", block, "type text", "cache_control citations")
        if block.get("text") == "":
            yield "system: text content blocks must be non-empty"
        elif not str(block.get("text", "x")).strip():
            yield "system: text content blocks must contain non-whitespace text"


def _messages_problems(messages: object) -> Iterator[str]:
    if messages is None:  # already said: the field is missing
        return
    if not isinstance(messages, list):
        yield "messages: Input should be a valid list"
        return
    if not messages:
        yield "messages: at least one message is required"
    for index, message in enumerate(messages):
        path = f"messages.{index}"
        if not isinstance(message, dict):
            yield f"{path}: Input should be a valid dictionary"
            continue
        yield from _keys(path, message, "role content", "")
        role = message.get("role")
        if role == "system":
            yield (
                'messages: Unexpected role "system". The Messages API accepts a top-level '
                '`system` parameter, not "system" as an input message role.'
            )
        elif role not in ("user", "assistant", None):
            yield f"{path}.role: Input should be 'user' or 'assistant'"
        content = message.get("content", "")
        if isinstance(content, list):
            for place, block in enumerate(content):
                yield from _block_problems(f"{path}.content.{place}", block)
        elif not isinstance(content, str):
            yield f"{path}.content: Input should be a valid list"


def _block_problems(path: str, block: object) -> Iterator[str]:
    if not isinstance(block, dict):
        yield f"{path}: Input should be a valid dictionary"
        return
    kind = block.get("type")
    if kind is None:
        yield f"{path}.type: Field required"
        return
    if kind not in _BLOCK_KEYS:
        return
    path = f"{path}.{kind}"
    required, optional = _BLOCK_KEYS[kind]
    yield from _keys(path, block, f"type {required}", optional)
    if kind == "text" and not isinstance(block.get("text", ""), str):
        yield f"{path}.text: Input should be a valid string"
    if kind == "thinking":
        if not isinstance(block.get("signature", ""), str):
            yield f"{path}.signature: Input should be a valid string"
        elif not block.get("signature", "x"):
            yield f"{path}: Invalid `signature` in `thinking` block"
    if kind == "redacted_thinking" and not block.get("data", "x"):
        yield f"{path}: Invalid `data` in `redacted_thinking` block"
    if kind in _SOURCES:
        yield from _source_problems(f"{path}.source", kind, block.get("source"))
        title = block.get("title")
        if title is not None and not 1 <= len(title) <= 500:
            yield f"{path}.title: String should have between 1 and 500 characters"
    if kind == "tool_use":
        if not TOOL_USE_ID.fullmatch(str(block.get("id", "x"))):
            yield f"{path}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not isinstance(block.get("input", {}), dict):
            yield f"{path}.input: Input should be a valid dictionary"
        yield from _name_problems(f"{path}.name", block.get("name", "x"))
    if kind == "tool_result":
        content = block.get("content")
        if isinstance(content, list):
            for place, inner in enumerate(content):
                yield from _block_problems(f"{path}.content.{place}", inner)
                inner_kind = inner.get("type", "text") if isinstance(inner, dict) else "text"
                if inner_kind not in _IN_A_RESULT:
                    yield f"{path}.content.{place}: Input tag '{inner_kind}' found using 'type' does not match"
                elif block.get("is_error") and inner_kind != "text":
                    yield f"{path}: all content must be type `text` if `is_error` is true"
        elif not isinstance(content, str | None):
            yield f"{path}.content: Input should be a valid list"
        if block.get("is_error") and not content:
            yield f"{path}: content cannot be empty if `is_error` is true"


def _source_problems(path: str, kind: str, source: object) -> Iterator[str]:
    if not isinstance(source, dict):
        yield f"{path}: Input should be a valid dictionary"
        return
    how = source.get("type")
    if how not in _SOURCES[kind]:
        yield f"{path}: Input tag '{how}' found using 'type' does not match any of the expected tags"
        return
    required, media_types = _SOURCES[kind][how]
    path = f"{path}.{how}"
    yield from _keys(path, source, f"type {required}", "")
    if media_types is not None and source.get("media_type") not in media_types:
        yield f"{path}.media_type: Input should be {' or '.join(repr(name) for name in sorted(media_types))}"
    data = source.get("data", "x")
    if not isinstance(data, str) or not data.strip():
        yield f"{path}: {kind} cannot be empty"
    elif how == "base64":
        try:
            base64.b64decode(data, validate=True)
        except ValueError:
            yield f"{path}.data: Invalid base64 data"
    if how == "url" and not str(source.get("url", "https://")).startswith("https://"):
        yield f"{path}.url: Only HTTPS URLs are supported."


def _name_problems(path: str, name: object) -> Iterator[str]:
    if not isinstance(name, str):
        yield f"{path}: Input should be a valid string"
    elif len(name) > 128:
        yield f"{path}: String should have at most 128 characters"
    elif not TOOL_NAME.fullmatch(name):
        yield f"{path}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"


def _tools_problems(tools: object) -> Iterator[str]:
    if not isinstance(tools, list):
        yield "tools: Input should be a valid list"
        return
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict):
            yield f"tools.{index}: Input should be a valid dictionary"
            continue
        if tool.get("type") not in (None, "custom"):  # one of the API's own tools
            continue
        path = f"tools.{index}.custom"
        yield from _keys(path, tool, _TOOL_KEYS, _TOOL_OPTIONS)
        yield from _name_problems(f"{path}.name", tool.get("name", "x"))
        schema = tool.get("input_schema", {"type": "object"})
        if not isinstance(schema, dict):
            yield f"{path}.input_schema: Input should be a valid dictionary"
        elif "type" not in schema:
            yield f"{path}.input_schema.type: Field required"
        elif schema["type"] != "object":
            yield f"{path}.input_schema.type: Input should be 'object'"
        elif schema.keys() & {"oneOf", "allOf", "anyOf"}:
            yield (f"{path}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")
    names = [str(tool.get("name")) for tool in tools if isinstance(tool, dict)]
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."


# -- the conversation -----------------------------------------------------------------------------


def _turns(messages: list[dict[str, Any]]) -> Iterator[Turn]:
    """Messages with neighbours of one role made one, as the API reads them."""
    current: Turn | None = None
    for index, message in enumerate(messages):
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content else []
        blocks = [(f"messages.{index}.content.{place}", block) for place, block in enumerate(content)]
        if current is not None and current[1] == message["role"]:
            current[2].extend(blocks)
            continue
        if current is not None:
            yield current
        current = (index, message["role"], blocks)
    if current is not None:
        yield current


def _turn_problems(turns: list[Turn]) -> Iterator[str]:
    if turns[0][1] != "user":
        yield 'messages: first message must use the "user" role'
    for place, (index, role, blocks) in enumerate(turns):
        last = place == len(turns) - 1
        if not blocks and role == "user":
            yield f"messages.{index}: user messages must have non-empty content"
        elif not blocks and not last:
            yield (
                f"messages.{index}: all messages must have non-empty content except for the "
                "optional final assistant message"
            )
        for path, block in blocks:
            if block["type"] in _NOT_FOR_ROLE[role]:
                yield f"{path}: `{block['type']}` blocks are not allowed in `{role}` messages"
            inner = block["content"] if isinstance(block.get("content"), list) else []
            for said in (b["text"] for b in (block, *inner) if b.get("type") == "text"):
                if not said:
                    yield "messages: text content blocks must be non-empty"
                elif not said.strip():
                    yield "messages: text content blocks must contain non-whitespace text"
        if role == "assistant" and blocks and blocks[-1][1]["type"] in _THOUGHTS:
            yield f"messages.{index}: The final block in an assistant message cannot be `thinking`."
        if last and role == "assistant" and blocks:
            said = blocks[-1][1].get("text", "")
            if said != said.rstrip():
                yield "messages: final assistant content cannot end with trailing whitespace"


def _pairing_problems(turns: list[Turn]) -> Iterator[str]:
    seen: set[str] = set()
    calls: list[str] = []  # of the turn before
    nobody: Turn = (0, "user", [])
    for (index, _role, blocks), (_, _, following) in zip(turns, [*turns[1:], nobody], strict=True):
        answered: set[str] = set()
        for path, block in blocks:
            if block["type"] != "tool_result":
                continue
            call = block["tool_use_id"]
            if call not in calls:
                yield (
                    f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the "
                    "previous message."
                )
            elif call in answered:
                yield (
                    f"{path}: each tool_use must have a single result. Found multiple "
                    f"`tool_result` blocks with id: {call}"
                )
            answered.add(call)
        calls = [block["id"] for _, block in blocks if block["type"] == "tool_use"]
        for path, block in blocks:
            if block["type"] == "tool_use":
                if block["id"] in seen:
                    yield f"{path}: `tool_use` ids must be unique"
                seen.add(block["id"])
        results = {block["tool_use_id"] for block in _leading_results(following)}
        missing = [call for call in dict.fromkeys(calls) if call not in results]
        if missing:
            yield (
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(missing)}. Each `tool_use` block must have a "
                "corresponding `tool_result` block in the next message."
            )


def _leading_results(blocks: list[tuple[str, Block]]) -> Iterator[Block]:
    """The tool results that stand before any other content: only those count."""
    for _, block in blocks:
        if block["type"] != "tool_result":
            return
        yield block


def _thinking_problems(body: dict[str, Any], turns: list[Turn]) -> Iterator[str]:
    """What the assistant's turn that this request goes on with must have: the last one, or the one before results."""
    kind = (body.get("thinking") or {}).get("type")
    place = len(turns) - 1 if turns[-1][1] == "assistant" else len(turns) - 2
    continues = place >= 0 and (place == len(turns) - 1 or any(_leading_results(turns[-1][2])))
    if not continues or not turns[place][2]:
        return
    index, _, blocks = turns[place]
    first = blocks[0][1]["type"]
    if kind == "enabled" and first not in _THOUGHTS:
        yield (
            f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block"
        )
    if kind == "disabled" and any(block["type"] in _THOUGHTS for _, block in blocks):
        yield (
            f"messages.{index}: When thinking is disabled, an `assistant` message in the final position cannot "
            "contain `thinking`."
        )


def _tool_choice_problems(body: dict[str, Any]) -> Iterator[str]:
    choice = body.get("tool_choice")
    if not choice:
        return
    if choice.get("type") not in ("auto", "any", "none", "tool"):
        yield "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'"
        return
    names_tool = choice.get("type") == "tool"
    parallel = "" if choice.get("type") == "none" else "disable_parallel_tool_use"
    yield from _keys("tool_choice", choice, "type name" if names_tool else "type", parallel)
    if not body.get("tools"):
        yield "tool_choice: tool_choice may only be specified while providing tools"
        return
    names = [tool.get("name") for tool in body["tools"]]
    if choice.get("type") == "tool" and choice.get("name") not in names:
        yield f"tool_choice: Tool '{choice.get('name')}' not found in provided tools"
    elif choice.get("type") in ("any", "tool") and _thinks(body):
        yield "Thinking may not be enabled when tool_choice forces tool use."


def _cache_problems(body: dict[str, Any], turns: list[Turn]) -> Iterator[str]:
    system = body.get("system")
    places: list[Block] = [
        body,
        *body.get("tools", []),
        *(system if isinstance(system, list) else []),
    ]
    for _, _, blocks in turns:
        for _, block in blocks:
            places.append(block)
            places += block["content"] if isinstance(block.get("content"), list) else []
    found = sum(bool(place.get("cache_control")) for place in places)
    if found > MAX_CACHE_BREAKPOINTS:
        yield (f"A maximum of {MAX_CACHE_BREAKPOINTS} blocks with cache_control may be provided. Found {found}.")
