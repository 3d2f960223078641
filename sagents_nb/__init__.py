"""Prototype, watch and teach LLM agents inside Jupyter.

Every public name is importable from here; what it needs is imported when it is first used, so that
``import sagents_nb`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sagents_nb.agent import Agent as Agent
    from sagents_nb.errors import (
        AgentError as AgentError,
        ConfigurationError as ConfigurationError,
        MessageRejected as MessageRejected,
        ModelError as ModelError,
        RunCancelled as RunCancelled,
        SagentsError as SagentsError,
        SessionError as SessionError,
        StoreClosed as StoreClosed,
        StoreError as StoreError,
        StoreLocked as StoreLocked,
        ToolError as ToolError,
        UnknownConversation as UnknownConversation,
    )
    from sagents_nb.execution.result import RunResult as RunResult
    from sagents_nb.interrupts import (
        ApprovalRequest as ApprovalRequest,
        Halt as Halt,
        Interrupt as Interrupt,
        Pause as Pause,
    )
    from sagents_nb.messages import (
        File as File,
        Image as Image,
        Message as Message,
        Text as Text,
        Thinking as Thinking,
        ToolCall as ToolCall,
        ToolResult as ToolResult,
        Usage as Usage,
    )
    from sagents_nb.middleware.process_context import ProcessContext as ProcessContext
    from sagents_nb.models.anthropic import AnthropicModel as AnthropicModel
    from sagents_nb.models.base import ChatModel as ChatModel, ModelRequest as ModelRequest
    from sagents_nb.models.recorded import RecordedModel as RecordedModel
    from sagents_nb.models.scripted import ScriptedModel as ScriptedModel
    from sagents_nb.preprocess import MessagePreprocessor as MessagePreprocessor
    from sagents_nb.server.session import Session as Session
    from sagents_nb.stack import Middleware as Middleware, Stack as Stack
    from sagents_nb.state import State as State, StateUpdate as StateUpdate
    from sagents_nb.store import Store as Store
    from sagents_nb.todos import Todo as Todo
    from sagents_nb.tools import Tool as Tool, ToolContext as ToolContext, tool as tool

_HOME = {
    "agent": ("Agent",),
    "errors": (
        "AgentError",
        "ConfigurationError",
        "MessageRejected",
        "ModelError",
        "RunCancelled",
        "SagentsError",
        "SessionError",
        "StoreClosed",
        "StoreError",
        "StoreLocked",
        "ToolError",
        "UnknownConversation",
    ),
    "execution.result": ("RunResult",),
    "interrupts": ("ApprovalRequest", "Halt", "Interrupt", "Pause"),
    "messages": ("File", "Image", "Message", "Text", "Thinking", "ToolCall", "ToolResult", "Usage"),
    "middleware.process_context": ("ProcessContext",),
    "models.anthropic": ("AnthropicModel",),
    "models.base": ("ChatModel", "ModelRequest"),
    "models.recorded": ("RecordedModel",),
    "models.scripted": ("ScriptedModel",),
    "preprocess": ("MessagePreprocessor",),
    "server.session": ("Session",),
    "stack": ("Middleware", "Stack"),
    "state": ("State", "StateUpdate"),
    "store": ("Store",),
    "todos": ("Todo",),
    "tools": ("Tool", "ToolContext", "tool"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # noqa: PLE0604 - the names are str


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        from sagents_nb.errors import did_you_mean

        raise AttributeError(f"sagents_nb has no {name!r}{did_you_mean(name, _MODULE_OF)}")
    value = getattr(import_module(f"sagents_nb.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
