"""The hooks of a middleware: their names, and what each is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

HOOKS = (
    "system_prompt",
    "tools",
    "callbacks",
    "before_agent",
    "before_model",
    "wrap_model_call",
    "after_model",
    "wrap_tool_call",
    "after_agent",
)
"""Every hook, in the order in which a reader meets them."""

STATE_HOOKS = ("before_agent", "before_model", "after_model", "after_agent")
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

    def publish(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """Tell whoever watches the run.

        Args:
            name: what it is called.
            data: JSON.
        """
        self._publish(self.middleware, name, data or {})

    def __repr__(self) -> str:
        return f"HookRun({self.middleware!r}, cycle={self.cycle})"
