"""ProcessContext: context variables of the code that makes an agent, carried to wherever the agent runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

from pydantic import PrivateAttr, field_validator

from sagents_nb.errors import ConfigurationError, in_words
from sagents_nb.hooks import HookRun
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.stack import Middleware
from sagents_nb.state import State

Propagator = tuple[Callable[[], Any], Callable[[Any], object]]
"""``(capture, apply)``: reads something ambient, and sets it elsewhere."""

_UNSET = object()


class ProcessContext(Middleware):
    """Carries context variables (a trace id, a tenant, a request) into the agent's hooks, model calls and tools.

    A session answers in a task of its own, in another thread, which was often made before the variable was set. The
    values are captured when the middleware is made, and set at the beginning of every leg; from there the loop hands
    them to its tasks and to the threads of tools. They are never saved. Put it first in the list: hooks of those
    before it do not see them yet.

    After the leg everything is as it was before, also where the run shares the task of the caller.

    Attributes:
        keys: ContextVars. One that is unset, or None, where it is captured is left alone.
        propagators: ``(capture, apply)`` pairs for what is kept by other means: ``capture()`` reads it, ``apply(value)``
            sets it, whatever the value. What apply sets should itself live in a context variable, as it does with
            OpenTelemetry, Sentry and structlog: threads of tools get a copy of those, and of nothing else.

    Raises:
        ConfigurationError: something else than that, or a capture that failed.
    """

    keys: Any = ()
    propagators: Any = ()

    # Replaced as a whole, so that a leg that begins in another thread sees all of the old values or all of the new.
    _captured: tuple[tuple[tuple[ContextVar[Any], Any], ...], tuple[Any, ...]] = PrivateAttr(default=((), ()))

    @field_validator("keys", mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> tuple[ContextVar[Any], ...]:
        if isinstance(value, (list, tuple)) and all(isinstance(key, ContextVar) for key in value):
            return tuple(value)
        raise ConfigurationError(
            f"ProcessContext(keys=…): keys must be a list of ContextVar objects, got {value!r}; "
            "tenant = ContextVar('tenant') and then keys=[tenant]"
        )

    @field_validator("propagators", mode="before")
    @classmethod
    def _check_propagators(cls, value: Any) -> tuple[Propagator, ...]:
        if isinstance(value, (list, tuple)) and all(_is_propagator(pair) for pair in value):
            return tuple((pair[0], pair[1]) for pair in value)
        raise ConfigurationError(
            "ProcessContext(propagators=…): propagators must be a list of (capture, apply) pairs of plain functions, "
            f"capture() without arguments and apply(value) with one, got {value!r}"
        )

    def model_post_init(self, _context: Any) -> None:
        """Capture for the first time."""
        self.update()

    def update(self) -> None:
        """Capture again, here where it is called; for the next leg. One that runs keeps what it began with.

        Raises:
            ConfigurationError: a capture failed.
        """
        values = tuple((key, key.get(_UNSET)) for key in self.keys)
        self._captured = (
            tuple((key, value) for key, value in values if value is not _UNSET and value is not None),
            tuple(_capture(capture) for capture, _ in self.propagators),
        )

    def before_agent(self, state: State, run: HookRun) -> None:
        """Set what was captured."""
        self._enter(run)

    def handle_resume(self, state: State, interrupt: PendingInterrupt, answer: Any, run: HookRun) -> None:
        """Set what was captured, for those who settle the answer."""
        self._enter(run)

    def after_agent(self, state: State, run: HookRun) -> None:
        """Set everything back."""
        if run.run_id in run.local:
            run.local.pop(run.run_id).close()

    def on_server_start(self, state: State, server: Any) -> None:
        """Set what was captured where the conversation's server lives."""
        self._apply(ExitStack())

    def _enter(self, run: HookRun) -> None:
        # By run: two of them may go on in one conversation, each in a context of its own.
        if run.run_id not in run.local:
            self._apply(run.local.setdefault(run.run_id, ExitStack()))

    def _apply(self, undo: ExitStack) -> None:
        """Set everything; closing `undo` sets back what was set, also when the rest of it failed."""
        keys, values = self._captured
        for key, value in keys:
            undo.callback(key.reset, key.set(value))
        for (capture, apply), value in zip(self.propagators, values, strict=True):
            undo.callback(apply, capture())
            apply(value)


def _is_propagator(pair: object) -> bool:
    return (
        isinstance(pair, (list, tuple))
        and len(pair) == 2
        and all(callable(function) and not inspect.iscoroutinefunction(function) for function in pair)
        and _takes(pair[0])
        and _takes(pair[1], None)
    )


def _takes(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a function can be called with these; taken on trust where Python does not know its parameters."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _capture(capture: Callable[[], Any]) -> Any:
    try:
        return capture()
    except Exception as error:
        name = getattr(capture, "__qualname__", repr(capture))
        raise ConfigurationError(
            f"ProcessContext: the capture {name} raised {type(error).__name__}: {in_words(error)}"
        ) from error
