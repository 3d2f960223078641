"""What a leg of a run knows while it lasts."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sagents_nb.errors import AgentError
from sagents_nb.events import Event, Published, RunInterrupted
from sagents_nb.execution.callbacks import Callbacks, fan_out
from sagents_nb.execution.recorder import Recorder
from sagents_nb.execution.repair import HistoryKeeper
from sagents_nb.execution.scope_guard import refuse_scope
from sagents_nb.frozen import freeze
from sagents_nb.hooks import HookRun
from sagents_nb.interrupts import Interrupt, PendingInterrupt
from sagents_nb.messages import Message
from sagents_nb.models.base import ChatModel
from sagents_nb.stack import Stack
from sagents_nb.state import State
from sagents_nb.tools import Tool

DEFAULT_MAX_RUNS = 50
"""Model calls of one run, unless the agent says otherwise; the reference's limit."""

MAX_FAILURES = 3
"""Consecutive turns whose tool calls all failed, after which the run ends; the reference's limit."""


class RunnableAgent(Protocol):
    """What the loop needs of an agent."""

    @property
    def model(self) -> ChatModel:
        """Its language model."""
        ...

    @property
    def scope(self) -> Any:
        """For whom it runs."""
        ...

    @property
    def tool_context(self) -> Mapping[str, Any]:
        """The caller's static extras."""
        ...

    @property
    def agent_id(self) -> str:
        """Its id."""
        ...

    @property
    def name(self) -> str | None:
        """What people call it."""
        ...

    @property
    def max_runs(self) -> int | None:
        """Model calls in one run."""
        ...

    @property
    def tool_timeout(self) -> float | None:
        """Seconds a tool may take."""
        ...

    @property
    def stack(self) -> Stack:
        """Its middlewares."""
        ...

    @property
    def all_tools(self) -> Mapping[str, Tool]:
        """Its own tools and those of its middlewares, by name."""
        ...

    @property
    def system_prompt(self) -> str:
        """The assembled system prompt."""
        ...

    @property
    def all_callbacks(self) -> tuple[Callbacks, ...]:
        """Its own handlers, then those of its middlewares in stack order."""
        ...

    def locals_of(self, conversation_id: str | None) -> dict[str, dict[str, Any]]:
        """``run.local`` of every middleware, by name."""
        ...

    def history_of(self, conversation_id: str | None) -> HistoryKeeper:
        """What was found right in the conversation's history."""
        ...


class Run:
    """One leg of a run. The holder may read `state` at any moment; only the loop's steps change it.

    Args:
        agent: who runs.
        state: where it begins.
        recorder: where events go.
        callbacks: further handlers, checked, called before the agent's own.
        max_runs: model calls allowed, by default the agent's, then `DEFAULT_MAX_RUNS`.
    """

    def __init__(
        self,
        agent: RunnableAgent,
        state: State,
        *,
        recorder: Recorder | None = None,
        callbacks: Sequence[Callbacks] = (),
        max_runs: int | None = None,
    ) -> None:
        self.agent = agent
        self.run_id = uuid.uuid4().hex
        self.agent_id = agent.agent_id
        self.state = state
        self.recorder = recorder or Recorder()
        self.max_runs = max_runs or agent.max_runs or DEFAULT_MAX_RUNS
        self.cycle = 0
        self.failures = 0
        self.resumed = False
        self.history = agent.history_of(state.conversation_id)
        self.sound: tuple[Message, ...] | None = None  # the very messages that were found right last
        self.partial: Message | None = None
        self.interrupts: list[PendingInterrupt] = []
        self.interrupted = False
        self.entered: set[str] = set()
        self.slow_hooks: set[tuple[str, str]] = set()
        self.started = time.perf_counter()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stop_requests = 0
        self._call_back = fan_out([*callbacks, *agent.all_callbacks], agent.all_tools)
        self._notes = agent.locals_of(state.conversation_id)
        self._hook_runs: dict[str, HookRun] = {}

    def emit(self, event: Event) -> None:
        """Record an event of this run and call the callbacks.

        Raises:
            CallbackFailed: a callback raised.
        """
        event.run_id = self.run_id
        event.agent_id = self.agent_id
        self.recorder.record(event)
        if self._call_back is not None:
            self._call_back(event)

    def publish(self, source: str, name: str, data: Mapping[str, Any]) -> None:
        """Record something a middleware or tool publishes; from any thread."""
        event = Published(source=source, name=name, data=freeze(dict(data), path=f"data of {name!r}"))
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self.loop is None or here is self.loop:
            self.emit(event)
        else:  # a hook of a class with blocking = True runs in a thread; only the run's own loop may touch the record
            self.loop.call_soon_threadsafe(self.emit, event)

    def hook_run(self, middleware: str) -> HookRun:
        """The run as this middleware sees it."""
        seen = self._hook_runs.get(middleware)
        if seen is None:
            seen = self._hook_runs[middleware] = HookRun(
                agent=self.agent,
                middleware=middleware,
                local=self._notes.setdefault(middleware, {}),
                run_id=self.run_id,
                resumed=self.resumed,
                cycle=lambda: self.cycle,
                publish=self.publish,
            )
        return seen

    def interrupt(self, interrupt: Interrupt, source: str, tool_call_id: str | None = None) -> PendingInterrupt:
        """Note that the run is to stop and wait for a person, once the present step is through.

        Raises:
            ValueError: the scope is in its data.
        """
        refuse_scope(interrupt.data, self.agent.scope, "the interrupt's data")
        pending = PendingInterrupt(
            kind=interrupt.kind,
            message=interrupt.message,
            data=interrupt.data,
            source=source,
            tool_call_id=tool_call_id,
        )
        self.interrupts.append(pending)
        return pending

    def stop_if_interrupted(self) -> bool:
        """Put what was noted into the State; True when the run has to stop.

        A halt among several wins: it is what the person is shown.
        """
        if not self.interrupts:
            return self.interrupted
        noted, self.interrupts = self.interrupts, []
        self.interrupted = True
        halt = next((item for item in noted if item.kind == "halt"), None)
        if halt is not None:
            pending = halt
        elif len(noted) == 1:
            pending = noted[0]
        else:
            message = "; ".join(item.message for item in noted if item.message)
            pending = PendingInterrupt(kind="multiple", message=message, members=tuple(noted))
        self.state = self.state.with_interrupt(pending)
        self.emit(RunInterrupted(kind=pending.kind, message=pending.message, interrupt_id=pending.id))
        return True

    def fail(self, type: str, message: str) -> AgentError:
        """An `AgentError` with the State so far, to be raised."""
        return AgentError(message, type=type, state=self.state)
