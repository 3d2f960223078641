"""The hooks of a middleware: their names, and what each is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

from sagents_nb.events import Published

CONTRIBUTIONS = ("system_prompt", "tools", "callbacks")
"""Hooks that are asked once, when the agent is built."""

LOOP_HOOKS = ("before_agent", "before_model", "wrap_model_call", "after_model", "wrap_tool_call", "after_agent")
"""Hooks that run in a leg, in the order of the loop."""

HOOKS = (
    *CONTRIBUTIONS,
    *LOOP_HOOKS,
    "needs_approval",
    "handle_resume",
    "restorable_interrupt",
    "on_server_start",
    "handle_message",
    "transform_display_message",
)
"""Every hook, in the order in which a reader meets them."""

STATE_HOOKS = (
    "before_agent",
    "before_model",
    "after_model",
    "after_agent",
    "handle_resume",
    "on_server_start",
    "handle_message",
)
"""Hooks that are given the State and may return another one."""

UPWARD_HOOKS = ("after_model", "after_agent")
"""Hooks that run from the last middleware to the first."""


class HookRun:
    """The run, as a hook sees it: the argument ``run``.

    Attributes:
        agent: the agent that runs.
        middleware: name of the middleware in the stack.
        local: a dict of this middleware in this conversation, in this process: never saved, never shared.
        run_id: the run.
        resumed: whether this leg continues an interrupted one.
    """

    __slots__ = ("_cycle", "_publish", "agent", "local", "middleware", "resumed", "run_id")

    def __init__(
        self,
        *,
        agent: Any,
        middleware: str,
        local: dict[str, Any],
        run_id: str,
        resumed: bool,
        cycle: Callable[[], int],
        publish: Callable[[str, str, Mapping[str, Any]], None],
    ) -> None:
        self.agent = agent
        self.middleware = middleware
        self.local = local
        self.run_id = run_id
        self.resumed = resumed
        self._cycle = cycle
        self._publish = publish

    @property
    def scope(self) -> Any:
        """The agent's scope."""
        return self.agent.scope

    @property
    def tool_context(self) -> Mapping[str, Any]:
        """The caller's static extras."""
        extras: Mapping[str, Any] = self.agent.tool_context
        return extras

    @property
    def cycle(self) -> int:
        """The pass of the loop, from 1; 0 before the first."""
        return self._cycle()

    def publish(self, event: str | Mapping[str, Any] | Published, data: Mapping[str, Any] | None = None) -> None:
        """Tell whoever watches the run.

        Args:
            event: what it is called, with `data` beside it. Or all in one: a dict, whose ``"name"`` is what it is
                called (``"event"`` without one) and whose other keys are the data, or what is under ``"data"`` if
                that is the only one; or a `Published`.
            data: JSON.

        Raises:
            TypeError: the name is no str, or the data are no dict.
        """
        self._publish(self.middleware, *_name_and_data(event, data))

    def __repr__(self) -> str:
        return f"HookRun({self.middleware!r}, cycle={self.cycle})"


def _name_and_data(event: object, data: object) -> tuple[str, Mapping[str, Any]]:
    """The two forms in which an event may be published, made one."""
    name = event
    if isinstance(event, (Published, Mapping)):
        if data is not None:
            raise TypeError("publish(event, data): the event brings its data along; leave out the second argument")
        if isinstance(event, Published):
            name, data = event.name, event.data
        else:
            rest = {key: value for key, value in event.items() if key != "name"}
            name, data = event.get("name", "event"), rest["data"] if rest.keys() == {"data"} else rest
    if not isinstance(name, str) or not name.strip():
        raise TypeError(
            f"publish(…): the name of an event is a non-empty str, got {name!r}, a {type(name).__name__}; "
            "publish('progress', {'done': 3})"
        )
    if not isinstance(data, (Mapping, NoneType)):
        raise TypeError(
            f"publish({name!r}, …): the data of an event are a dict, got a {type(data).__name__}; "
            f"publish({name!r}, {{'value': …}})"
        )
    return name, data or {}
