"""Callbacks: handlers by event name, for those who do not want to match on event classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from sagents_nb.deltas import ToolCallDelta
from sagents_nb.errors import ConfigurationError, did_you_mean
from sagents_nb.events import (
    Event,
    MessageAdded,
    MiddlewarePrepared,
    ModelDelta,
    ModelEnded,
    ModelFailed,
    RunEnded,
    RunInterrupted,
    ToolEnded,
    ToolStarted,
)

Handler: TypeAlias = Callable[[Any], object]
Callbacks: TypeAlias = Mapping[str, Handler]


def _always(_event: Any) -> bool:
    return True


CALLBACKS: dict[str, tuple[type[Event], Callable[[Any], bool]]] = {
    "on_after_middleware": (MiddlewarePrepared, _always),
    "on_llm_new_delta": (ModelDelta, _always),
    "on_llm_new_message": (ModelEnded, _always),
    "on_llm_token_usage": (ModelEnded, lambda event: event.message.usage is not None),
    "on_llm_error": (ModelFailed, _always),
    "on_message_processed": (MessageAdded, _always),
    "on_tool_call_identified": (
        ModelDelta,
        lambda event: isinstance(event.delta, ToolCallDelta) and event.delta.name is not None,
    ),
    "on_tool_execution_started": (ToolStarted, _always),
    "on_tool_execution_completed": (ToolEnded, lambda event: not event.result.is_error),
    "on_tool_execution_failed": (ToolEnded, lambda event: event.result.is_error),
    "on_tool_interrupted": (RunInterrupted, _always),
    "on_tool_response_created": (MessageAdded, lambda event: event.message.role == "tool"),
    "on_retries_exceeded": (RunEnded, lambda event: event.error_type == "exceeded_failure_count"),
    "on_error": (RunEnded, lambda event: event.status == "error"),
}
"""Name of a callback to the event it is called with, and when."""


class CallbackFailed(Exception):
    """A callback raised; the run fails, since whoever registered it counts on it."""


def check_callbacks(callbacks: Callbacks | None, owner: str) -> None:
    """Check a map of handlers.

    Raises:
        ConfigurationError: an unknown name, or a handler that cannot be called, or a coroutine function.
    """
    if callbacks is not None and not isinstance(callbacks, Mapping):
        raise ConfigurationError(
            f"{owner}: callbacks are a dict of event name to function, got a {type(callbacks).__name__}"
        )
    for name, handler in (callbacks or {}).items():
        if name not in CALLBACKS:
            raise ConfigurationError(
                f"{owner}: there is no callback {name!r}{did_you_mean(name, CALLBACKS)}; "
                f"there are {', '.join(CALLBACKS)}"
            )
        if not callable(handler):
            raise ConfigurationError(f"{owner}: the callback {name!r} is {handler!r}, which cannot be called")
        if inspect.iscoroutinefunction(handler):
            raise ConfigurationError(
                f"{owner}: the callback {name!r} is an `async def`; callbacks are called in the middle of the run "
                "and are plain functions: use def, and asyncio.create_task in it for what takes long"
            )


def fan_out(maps: Iterable[Callbacks]) -> Callable[[Event], None] | None:
    """One listener that calls all handlers of all maps, in the order of the maps.

    Args:
        maps: handlers by callback name, checked.

    Returns:
        The listener, or None when there is nothing to call.
    """
    handlers: dict[type[Event], list[tuple[str, Callable[[Any], bool], Handler]]] = {}
    for callbacks in maps:
        for name, handler in callbacks.items():
            kind, applies = CALLBACKS[name]
            handlers.setdefault(kind, []).append((name, applies, handler))
    if not handlers:
        return None

    def call(event: Event) -> None:
        for name, applies, handler in handlers.get(type(event), ()):
            if applies(event):
                try:
                    handler(event)
                except Exception as error:
                    raise CallbackFailed(
                        f"Callback handler for {name} raised an exception: {type(error).__name__}: {error}"
                    ) from error

    return call
