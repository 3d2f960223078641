"""Runs that end with a tool: the first call of a target ends them, not the model's last word."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sagents_nb.errors import ConfigurationError, did_you_mean
from sagents_nb.messages import ToolResult
from sagents_nb.state import State


@dataclass(frozen=True, slots=True)
class Until:
    """What ends the run.

    Attributes:
        names: of the tools; any of them.
        success: whether an error result does not count.
    """

    names: tuple[str, ...] = ()
    success: bool = False

    def reached(self, state: State) -> ToolResult | None:
        """The first result of the latest batch, in the order of the calls, that ends the run."""
        if not self.names:
            return None
        latest = next((message for message in reversed(state.messages) if message.role == "tool"), None)
        return next((r for r in latest.tool_results if self._ends_with(r)), None) if latest is not None else None

    def _ends_with(self, result: ToolResult) -> bool:
        return result.name in self.names and not result.is_interrupt and not (self.success and result.is_error)


def until(
    until_tool: str | Iterable[str] | None, until_tool_success: str | Iterable[str] | None, tools: Collection[str]
) -> Until:
    """Check the two options of a run.

    Args:
        until_tool: a tool's name, or several: the first result of one of them ends the run, an error too.
        until_tool_success: the same, but only a result without error does.
        tools: what the agent has.

    Raises:
        ConfigurationError: both are given, a name is unknown, or it is no name.
    """
    if until_tool is not None and until_tool_success is not None:
        raise ConfigurationError("until_tool and until_tool_success are mutually exclusive; give one of them")
    if until_tool is not None:
        return Until(_names("until_tool", until_tool, tools))
    if until_tool_success is not None:
        return Until(_names("until_tool_success", until_tool_success, tools), success=True)
    return Until()


def _names(option: str, value: str | Iterable[str], tools: Collection[str]) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple, set)) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"{option} is the name of a tool or a list of names, got {value!r}")
    missing = [name for name in names if name not in tools]
    if missing:
        raise ConfigurationError(
            f"{option}: tool(s) {missing!r} not found{did_you_mean(missing[0], tools)}. Available: {sorted(tools)!r}"
        )
    return names
