"""The one place that looks up: floors 5 and 7, by name, when they are called.

`Agent.run`, `Agent.session`, tools for the main thread and the rich reprs are conveniences of lower floors that need
higher ones. Everything else imports downward only.
"""

from __future__ import annotations

from collections.abc import Awaitable
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(job: Awaitable[T]) -> T:
    """Run a coroutine on the runtime and wait for it."""
    result: T = import_module("sagents_nb.server.runtime").runtime().run_blocking(job)
    return result


def kernel_loop() -> Any:
    """The event loop of the kernel's main thread; None outside a kernel."""
    return import_module("sagents_nb.server.kernel").kernel_loop()


def start_session(agent: Any, **options: Any) -> Any:
    """A session of this agent."""
    return import_module("sagents_nb.server.session").start_session(agent, **options)


def _view(name: str, *arguments: Any) -> str:
    html: str = getattr(import_module("sagents_nb.views"), name)(*arguments)
    return html


def stack_html(stack: Any) -> str:
    """The picture of the sandwich."""
    return _view("sandwich_html", stack)


def state_html(state: Any) -> str:
    """A State as tables."""
    return _view("state_html", state)


def result_html(result: Any) -> str:
    """What a run did."""
    return _view("result_html", result)


def agent_html(agent: Any) -> str:
    """An agent's configuration."""
    return _view("agent_html", agent)


def session_html(snapshot: Any, agent: Any) -> str:
    """A session at one moment."""
    return _view("session_html", snapshot, agent)
