"""Callbacks: handlers by event name, for those who do not want to match on event classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sagents_nb.deltas import ThinkingDelta, ToolCallDelta
from sagents_nb.errors import ConfigurationError, did_you_mean
from sagents_nb.events import (
    Event,
    MessageAdded,
    MiddlewarePrepared,
    ModelDelta,
    ModelEnded,
    ModelFailed,
    RunEnded,
    ToolEnded,
    ToolEntered,
    ToolsInterrupted,
    ToolStarted,
)

Handler: TypeAlias = Callable[[Any], object]
Callbacks: TypeAlias = Mapping[str, Handler]
AnyCallbacks: TypeAlias = Callbacks | Sequence[Callbacks | None] | None
"""What people may give: one map, several, or none; None among several counts for nothing."""

Applies: TypeAlias = Callable[[Any, Container[str]], bool]
"""Whether a callback is called with an event; the second argument is the names of the agent's tools."""


def _always(_event: Any, _tools: Container[str]) -> bool:
    return True


def _answered(event: ModelEnded, _tools: Container[str]) -> bool:
    # An attempt that broke off is followed by its error, and what was seen of it becomes a message in its own right.
    return event.message.status not in ("stream_error", "cancelled")


CALLBACKS: dict[str, tuple[type[Event], Applies]] = {
    "on_after_middleware": (MiddlewarePrepared, _always),
    "on_llm_new_delta": (ModelDelta, _always),
    "on_llm_reasoning_delta": (ModelDelta, lambda event, _: isinstance(event.delta, ThinkingDelta)),
    "on_llm_new_message": (ModelEnded, _answered),
    "on_llm_token_usage": (ModelEnded, lambda event, _: event.message.usage is not None),
    "on_llm_error": (ModelFailed, _always),
    "on_message_processed": (MessageAdded, _always),
    "on_tool_call_identified": (
        ModelDelta,
        lambda event, tools: isinstance(event.delta, ToolCallDelta) and event.delta.name in tools,
    ),
    "on_tool_execution_started": (ToolStarted, lambda event, tools: event.call.name in tools),
    "on_tool_pre_execution": (ToolEntered, _always),
    "on_tool_execution_completed": (
        ToolEnded,
        lambda event, _: not event.result.is_error and not event.result.is_interrupt,
    ),
    "on_tool_execution_failed": (ToolEnded, lambda event, _: event.result.is_error),
    "on_tool_interrupted": (ToolsInterrupted, _always),
    "on_tool_response_created": (MessageAdded, lambda event, _: event.message.role == "tool"),
    "on_retries_exceeded": (RunEnded, lambda event, _: event.error_type == "exceeded_failure_count"),
    "on_error": (RunEnded, lambda event, _: event.status == "error"),
}
"""Name of a callback to the event it is called with, and when.

``on_tool_pre_execution`` is called in the task that runs the tool, right before it: a context variable that a handler
sets is seen by the tool, in its thread too. All others are called where the loop is.
"""


_FORM = "callbacks are a dict of event name to function, or a list of such dicts"


class CallbackFailed(Exception):
    """A callback raised; the run fails, since whoever registered it counts on it."""


def check_callbacks(callbacks: AnyCallbacks, owner: str) -> tuple[Callbacks, ...]:
    """Check maps of handlers.

    Args:
        callbacks: one map, a list of maps (None in it counts for nothing), or None.
        owner: who gave them, for the error.

    Returns:
        The maps, in their order.

    Raises:
        ConfigurationError: an unknown name, or a handler that cannot be called, or a coroutine function.
    """
    given = [callbacks] if callbacks is None or isinstance(callbacks, Mapping) else callbacks
    if not isinstance(given, (list, tuple)):
        raise ConfigurationError(f"{owner}: {_FORM}; got {callbacks!r}, a {type(callbacks).__name__}")
    maps = tuple(each for each in given if each is not None)
    for each in maps:
        if not isinstance(each, Mapping):
            raise ConfigurationError(f"{owner}: {_FORM}; got a list with {each!r}, a {type(each).__name__}")
        _check_map(each, owner)
    return maps


def _check_map(callbacks: Callbacks, owner: str) -> None:
    for name, handler in callbacks.items():
        if name not in CALLBACKS:
            raise ConfigurationError(
                f"{owner}: there is no callback {name!r}{did_you_mean(str(name), CALLBACKS)}; "
                f"there are {', '.join(CALLBACKS)}"
            )
        if not callable(handler):
            raise ConfigurationError(f"{owner}: the callback {name!r} is {handler!r}, which cannot be called")
        if inspect.iscoroutinefunction(handler):
            raise ConfigurationError(
                f"{owner}: the callback {name!r} is an `async def`; callbacks are called in the middle of the run "
                "and are plain functions: use def, and asyncio.create_task in it for what takes long"
            )


def fan_out(maps: Iterable[Callbacks], tools: Container[str]) -> Callable[[Event], None] | None:
    """One listener that calls all handlers of all maps, in the order of the maps.

    Args:
        maps: handlers by callback name, checked.
        tools: names of the agent's tools.

    Returns:
        The listener, or None when there is nothing to call.
    """
    handlers: dict[type[Event], list[tuple[str, Applies, Handler]]] = {}
    for callbacks in maps:
        for name, handler in callbacks.items():
            kind, applies = CALLBACKS[name]
            handlers.setdefault(kind, []).append((name, applies, handler))
    if not handlers:
        return None

    def call(event: Event) -> None:
        for name, applies, handler in handlers.get(type(event), ()):
            if applies(event, tools):
                try:
                    handler(event)
                except Exception as error:
                    raise CallbackFailed(
                        f"Callback handler for {name} raised an exception: {type(error).__name__}: {error}"
                    ) from error

    return call
