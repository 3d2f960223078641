"""What a tool returned, as the result the model sees."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pydantic_core
from pydantic import BaseModel

from sagents_nb.errors import ToolError
from sagents_nb.frozen import freeze
from sagents_nb.interrupts import Interrupt
from sagents_nb.messages import File, Image, Text, Thinking, ToolCall, ToolResult
from sagents_nb.state import State, StateUpdate
from sagents_nb.tools import ToolContext

NO_OUTPUT = "(no output)"
"""What the model is told when a tool returned nothing: providers take no empty result."""

_PARTS = (Text, Thinking, Image, File)


def as_result(value: Any, call: ToolCall, context: ToolContext) -> ToolResult:
    """Bring a tool's return value into the one form.

    Args:
        value: a str; None; a list of content parts; a `ToolResult`; ``(content, State | StateUpdate)``;
            ``(content, value)``; an `Interrupt` or `Halt`; a State or StateUpdate alone; any other JSON value,
            dataclass or pydantic model.
        call: the call it answers.
        context: what the tool was given.

    Returns:
        A result with id and name; `update` is a `StateUpdate` or None. Of an interrupt, `processed` is it.

    Raises:
        ToolError: the value has no JSON form.
        ValueError: a returned State was not made from ``context.state``.
    """
    identity = {"tool_call_id": call.id, "name": call.name}
    match value:
        case Interrupt():
            # A placeholder: the run stops, and a person's answer takes its place.
            update = _as_update(value.state, context)
            return ToolResult(
                value.message or value.kind, is_interrupt=True, processed=value, update=update, **identity
            )
        case ToolResult():
            if value.is_interrupt and not isinstance(value.processed, Interrupt):
                raise ValueError("a result that waits for a person says for what: return Interrupt(kind, message)")
            return value.model_copy(
                update={
                    **identity,
                    "content": (Text(NO_OUTPUT),) if _is_blank(value.content) else value.content,
                    "update": _as_update(value.update, context),
                }
            )
        case State() | StateUpdate():
            return ToolResult(NO_OUTPUT, update=_as_update(value, context), **identity)
        case (content, State() | StateUpdate() as update):
            inner = as_result(content, call, context)
            return inner.model_copy(update={"update": _as_update(update, context)})
        case tuple() if len(value) == 2:
            return as_result(value[0], call, context).model_copy(update={"processed": value[1]})
    content, processed = _content(value, call)
    return ToolResult(content, processed=processed, **identity)


def _is_blank(parts: Iterable[Any]) -> bool:
    return all(isinstance(part, Text) and not part.text.strip() for part in parts)


def _as_update(update: Any, context: ToolContext) -> StateUpdate | None:
    if update is None or isinstance(update, StateUpdate):
        return update
    if isinstance(update, State):
        return StateUpdate.between(context.state, update)
    raise ValueError(f"the update is a {type(update).__name__}; it is a StateUpdate(metadata={{…}}, …) or a State")


def _content(value: Any, call: ToolCall) -> tuple[Any, Any]:
    """Content for the model, and the value for the program."""
    if value is None:
        return NO_OUTPUT, None
    if isinstance(value, str):
        return (value if value.strip() else NO_OUTPUT), None
    if isinstance(value, _PARTS):
        value = (value,)
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, _PARTS) for item in value):
        return (NO_OUTPUT if _is_blank(value) else tuple(value)), None
    try:
        if isinstance(value, BaseModel):
            return value.model_dump_json(), value
        return _json(value), value
    except (ValueError, RecursionError) as error:
        raise ToolError(
            f"Tool {call.name} returned a {type(value).__name__}, which has no JSON form; "
            "it should return a str, a JSON value, a dataclass or a pydantic model."
        ) from error


def _json(value: Any) -> str:
    try:
        return pydantic_core.to_json(value).decode()
    except pydantic_core.PydanticSerializationError:
        # A half of a character somewhere in it, perhaps: `freeze` replaces those.
        return json.dumps(freeze(value), ensure_ascii=False)
