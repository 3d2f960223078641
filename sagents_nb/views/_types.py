"""What the views need of an agent, its stack and a result: shapes, so that a view can be tried without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sagents_nb.events import Event
from sagents_nb.state import State

HOOKS = (
    "before_agent",
    "before_model",
    "wrap_model_call",
    "after_model",
    "wrap_tool_call",
    "after_agent",
)
"""Hooks that run, in the order of the loop; `system_prompt` and `tools` only contribute."""


class EntryLike(Protocol):
    """One middleware of a stack."""

    @property
    def name(self) -> str: ...
    @property
    def class_name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def hooks(self) -> tuple[str, ...]: ...
    @property
    def tools(self) -> tuple[str, ...]: ...
    @property
    def prompt(self) -> str: ...
    @property
    def config(self) -> Mapping[str, str]: ...


class StackLike(Protocol):
    """The middleware of an agent."""

    @property
    def entries(self) -> Sequence[EntryLike]: ...
    def order(self, hook: str) -> list[str]: ...


class AgentLike(Protocol):
    """An agent: what is shown of it."""

    @property
    def agent_id(self) -> str: ...
    @property
    def model(self) -> Any: ...
    @property
    def base_system_prompt(self) -> Any: ...
    @property
    def tools(self) -> Sequence[Any]: ...
    @property
    def scope(self) -> Any: ...
    @property
    def tool_context(self) -> Any: ...
    @property
    def stack(self) -> StackLike: ...


class ResultLike(Protocol):
    """What a run gave."""

    @property
    def status(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def text(self) -> str: ...
    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def agent(self) -> Any: ...
