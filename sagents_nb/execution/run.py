"""What a leg of a run knows while it lasts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

from sagents_nb.errors import AgentError, ModelError
from sagents_nb.events import Event, Published, RunInterrupted
from sagents_nb.execution.callbacks import AnyCallbacks, Callbacks, fan_out
from sagents_nb.execution.recorder import Recorder
from sagents_nb.execution.repair import HistoryKeeper
from sagents_nb.execution.scope_guard import refuse_scope
from sagents_nb.execution.tracing import trace_of
from sagents_nb.execution.until import Until
from sagents_nb.frozen import freeze
from sagents_nb.hooks import HookRun
from sagents_nb.interrupts import END, PAUSE, Continuation, Interrupt, PendingInterrupt
from sagents_nb.messages import Message, ToolResult, Usage
from sagents_nb.models.base import ChatModel, ModelRequest
from sagents_nb.stack import Stack
from sagents_nb.state import State
from sagents_nb.tools import Tool

DEFAULT_MAX_RUNS = 50
"""Model calls of one run, unless the agent says otherwise; the reference's limit."""

MAX_FAILURES = 3
"""Consecutive turns whose tool calls all failed, after which the run ends; the reference's limit."""


_BEGINNING = Continuation()
_NEVER = Until()
_NO_USAGE = Usage()


class RunOptions(TypedDict, total=False):
    """Keywords of ``agent.execute`` and of those that run like it; what they mean stands there."""

    callbacks: AnyCallbacks
    max_runs: int | None
    until_tool: str | Sequence[str] | None
    until_tool_success: str | Sequence[str] | None
    should_pause: Callable[[], object] | None


class RunnableAgent(Protocol):
    """What the loop needs of an agent."""

    @property
    def model(self) -> ChatModel:
        """Its language model."""
        ...

    @property
    def fallback_models(self) -> tuple[ChatModel, ...]:
        """Who is asked, one after the other, when it fails."""
        ...

    @property
    def before_fallback(self) -> Callable[[ModelRequest, ChatModel, ModelError], Any] | None:
        """What changes the request for the next of them."""
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
    def otel_attributes(self) -> Mapping[str, Any]:
        """Attributes of every span of its runs."""
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
    def running(self) -> set[Any]:
        """Its runs that go on."""
        ...

    @property
    def mode(self) -> Any:
        """Its `Mode`: the steps of a cycle."""
        ...

    @property
    def system_prompt(self) -> str:
        """The assembled system prompt."""
        ...

    @property
    def all_callbacks(self) -> tuple[Callbacks, ...]:
        """Its own handlers, then those of its middlewares in stack order."""
        ...

    def locals_of(self, conversation_id: str | int | None) -> dict[str, dict[str, Any]]:
        """``run.local`` of every middleware, by name."""
        ...

    def history_of(self, conversation_id: str | int | None) -> HistoryKeeper:
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
        until: the tools that end it.
        tool_choice: what the model is told of its choice among the tools, see `ModelRequest`.
        should_pause: asked before every model call and before the tools of an answer whether to stop there.
        continuation: where it goes on, if it was stopped before.
    """

    def __init__(
        self,
        agent: RunnableAgent,
        state: State,
        *,
        recorder: Recorder | None = None,
        callbacks: Sequence[Callbacks] = (),
        max_runs: int | None = None,
        until: Until | None = None,
        tool_choice: str = "auto",
        should_pause: Callable[[], object] | None = None,
        continuation: Continuation | None = None,
    ) -> None:
        self.agent = agent
        self.run_id = os.urandom(16).hex()
        self.agent_id = agent.agent_id
        self.state = state
        self.recorder = recorder or Recorder()
        self.resumed = continuation is not None
        before = continuation or _BEGINNING
        self.max_runs = max_runs or before.max_runs or agent.max_runs or DEFAULT_MAX_RUNS
        self.until = until or (Until(before.until_tool, success=before.until_success) if before.until_tool else _NEVER)
        self.tool_choice = tool_choice
        self.tool_result: ToolResult | None = None
        self.cycle = before.cycle
        self.failures = before.failures
        self.step = before.step
        self.finished = False
        self.approved: set[str] = set()  # digests of the calls that a person approved
        self.unseen = self.resumed and _has_unseen_results(state)
        self.usage = _NO_USAGE
        self._should_pause = should_pause
        self._pause_asked = False
        self.history = agent.history_of(state.conversation_id)
        self.sound: tuple[Message, ...] | None = None  # the very messages that were found right last
        self.partial: Message | None = None
        self.interrupts: list[PendingInterrupt] = []
        self.outcome: Literal["completed", "interrupted", "paused"] = "completed"
        self.entered: set[str] = set()
        self.slow_hooks: set[tuple[str, str]] = set()
        self.started = time.perf_counter()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self.stop_requests = 0
        self._trace = trace_of(agent, conversation_id=state.conversation_id, attributes=agent.otel_attributes)
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
        if self._trace is not None:
            self._trace(event)
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

    def end(self) -> None:
        """The leg is over."""
        self.agent.running.discard(self)
        # They refer to the run, and the run to them: let go, it is freed with all its events at once, not by the garbage
        # collector some time later.
        self._hook_runs = {}
        self.task = None

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

    def stop_if_interrupted(self, following: str) -> bool:
        """Put what was noted into the State; True when the run has to stop.

        A halt among several wins: it is what the person is shown. A pause among others is none: the run stops anyway.

        Args:
            following: the step it goes on with when it is resumed.
        """
        if not self.interrupts:
            return self.outcome != "completed"
        noted, self.interrupts = self.interrupts, []
        pending = _one_of([item for item in noted if item.kind != PAUSE] or noted[:1])
        self.outcome = "paused" if pending.kind == PAUSE else "interrupted"
        pending = pending.replace(
            continuation=Continuation(
                step=following,
                messages=len(self.state.messages),
                cycle=self.cycle,
                failures=self.failures,
                max_runs=self.max_runs,
                until_tool=self.until.names,
                until_success=self.until.success,
            )
        )
        self.state = self.state.with_interrupt(pending)
        self.emit(RunInterrupted(kind=pending.kind, message=pending.message, interrupt_id=pending.id))
        return True

    def steps_left(self) -> tuple[Any, ...]:
        """The steps of the coming cycle: all of the mode's, or those from where the run was stopped."""
        steps: tuple[Any, ...] = self.agent.mode.steps
        if not self.step:
            return steps
        step, self.step = self.step, ""
        places = [place for place, each in enumerate(steps) if each.__name__ == step]
        return steps[places[-1] :] if places else steps

    @property
    def after_cycle(self) -> str:
        """What follows the last step of the present cycle: the beginning of the next one, or the end."""
        return "" if self.needs_model and not self.finished else END

    @property
    def needs_model(self) -> bool:
        """Whether there is something the model has not seen: tool results, or a message that a hook put in."""
        messages = self.state.messages
        return self.unseen or (bool(messages) and messages[-1].role in ("user", "tool"))

    @property
    def asked_to_stop(self) -> bool:
        """Whether its task was cancelled since it began, also where a hook or a tool swallowed that."""
        return self.task is not None and self.task.cancelling() > self.stop_requests

    def ask_pause(self) -> None:
        """Have the run stop before its next model call or its next tools; from any thread."""
        self._pause_asked = True

    def wants_pause(self) -> bool:
        """Whether somebody asked for a pause; asked once, it is told once."""
        asked, self._pause_asked = self._pause_asked, False
        return asked or (self._should_pause is not None and bool(self._should_pause()))

    def fail(self, type: str, message: str) -> AgentError:
        """An `AgentError` with the State so far, to be raised."""
        return AgentError(message, type=type, state=self.state)


def _has_unseen_results(state: State) -> bool:
    """Whether the tools of the model's latest calls have answered."""
    for message in reversed(state.messages):
        if message.role == "tool":
            return True
        if message.role == "assistant" and message.tool_calls:
            return False
    return False


def _one_of(noted: list[PendingInterrupt]) -> PendingInterrupt:
    """What the person is asked when several things want one."""
    if len(noted) == 1:
        return noted[0]
    halt = next((item for item in noted if item.kind == "halt"), None)
    if halt is not None:
        return halt.replace(members=tuple(item for item in noted if item is not halt))
    message = "; ".join(item.message for item in noted if item.message)
    return PendingInterrupt(kind="multiple", message=message, members=tuple(noted))
