"""Agent: checked configuration, and its verbs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr, field_validator

from sagents_nb import _late
from sagents_nb.errors import AgentError, ConfigurationError
from sagents_nb.execution.callbacks import AnyCallbacks, Callbacks, check_callbacks
from sagents_nb.execution.loop import CYCLE, needs_model, run_leg
from sagents_nb.execution.recorder import Recorder
from sagents_nb.execution.repair import HistoryKeeper
from sagents_nb.execution.result import RunResult
from sagents_nb.execution.run import DEFAULT_MAX_RUNS, Run
from sagents_nb.messages import Message, ToolResult
from sagents_nb.models.base import ChatModel
from sagents_nb.stack import Configured, Middleware, Stack
from sagents_nb.state import State
from sagents_nb.tools import Tool, as_tool

if TYPE_CHECKING:
    from sagents_nb.server.session import Session

ABANDONED = "The user did not respond to this and wrote a new message instead; proceed with their new request."


class Agent(Configured):
    """How an agent behaves. Immutable: a change is a new Agent (`replace`); what evolves is the `State`.

    Attributes:
        model: the language model.
        base_system_prompt: how the system prompt begins; what the middlewares add follows.
        tools: functions (best decorated with ``@tool``) or Tools.
        middleware: the stack, first to last; position decides who runs when.
        scope: for whom it runs. Never saved anywhere.
        tool_context: static extras for tools. Never saved anywhere.
        agent_id: made up when not given.
        name: what people call it.
        callbacks: handlers by event name, or a list of such maps.
        max_runs: model calls in one run, by default 50.
        tool_timeout: seconds a tool may take, unless it says otherwise; None for no limit.

    Raises:
        TypeError: an unknown keyword; the text suggests the one that was meant.
        ConfigurationError: no model, two tools of one name, a wrong order of middleware; the text says what to type.
    """

    model: Any = Field(default=None, validate_default=True)
    base_system_prompt: str | None = None
    tools: tuple[Any, ...] = ()
    middleware: tuple[Any, ...] = ()
    scope: Any = Field(default=None, repr=False)
    tool_context: Any = Field(default_factory=dict, repr=False)
    agent_id: str = Field(default_factory=lambda: f"agent-{uuid.uuid4().hex[:12]}")
    name: str | None = None
    callbacks: Any = Field(default_factory=dict, repr=False)
    max_runs: int | None = Field(default=None, ge=1)
    tool_timeout: float | None = Field(default=None, gt=0)

    _locals: dict[str, dict[str, dict[str, Any]]] = PrivateAttr(default_factory=dict)
    _histories: dict[str | None, HistoryKeeper] = PrivateAttr(default_factory=dict)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @field_validator("model", mode="before")
    @classmethod
    def _need_model(cls, model: Any) -> Any:
        if not isinstance(model, ChatModel):
            got = "no model" if model is None else f"the model {model!r}, a {type(model).__name__}"
            raise ConfigurationError(
                f"Agent got {got}; give it one: Agent(model=AnthropicModel('claude-sonnet-4-5')) or, without a key, "
                "Agent(model=ScriptedModel(['Hello!']))"
            )
        return model

    @field_validator("tools", mode="before")
    @classmethod
    def _as_tools(cls, value: Any) -> Any:
        if callable(value) or not isinstance(value, Sequence):
            raise ConfigurationError(f"Agent(tools=…) takes a list of functions or Tools, got {value!r}")
        return tuple(as_tool(item) for item in value)

    @field_validator("middleware", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        if isinstance(value, Middleware) or not isinstance(value, Sequence):
            raise ConfigurationError(f"Agent(middleware=…) takes a list of middlewares, got {value!r}")
        return tuple(value)

    @field_validator("tool_context", mode="before")
    @classmethod
    def _as_mapping(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            # The value itself is not shown: it may hold secrets.
            raise ConfigurationError(
                f"Agent(tool_context=…) takes a dict with string keys, got a {type(value).__name__}"
            )
        return MappingProxyType(dict(value))

    def model_post_init(self, _context: Any) -> None:
        """Assemble what the middlewares contribute, once, and check that it fits together."""
        for assembled in (self.stack, self.all_tools, self.system_prompt, self.all_callbacks):
            del assembled

    def __hash__(self) -> int:
        # Not `= object.__hash__`: pydantic would take that for unset, and hash the fields of every subclass.
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    # Cached, not private attributes: pydantic looks those up by a slow path, and the loop reads these all the time.

    @cached_property
    def stack(self) -> Stack:
        """The middlewares in their order, and what each contributes."""
        return Stack(self.middleware)

    @cached_property
    def all_tools(self) -> Mapping[str, Tool]:
        """Its own tools and those of its middlewares, by name."""
        tools: dict[str, Tool] = {}
        for tool in (*self.tools, *self.stack.tools):
            if tool.name in tools:
                raise ConfigurationError(
                    f"two tools are named {tool.name!r}; rename one with @tool(name='…') "
                    "or leave out the middleware that brings the other"
                )
            tools[tool.name] = tool
        return MappingProxyType(tools)

    @cached_property
    def system_prompt(self) -> str:
        """The system prompt as the model gets it, assembled once so that providers can cache it."""
        return self.stack.prompt(self.base_system_prompt)

    @cached_property
    def all_callbacks(self) -> tuple[Callbacks, ...]:
        """Its own handlers, then those of its middlewares in stack order."""
        maps = [*check_callbacks(self.callbacks, "Agent(callbacks=…)")]
        for bound in self.stack.hooks("callbacks"):
            maps += check_callbacks(bound.function(), f"{bound.middleware}.callbacks()")
        return tuple(maps)

    def replace(self, **changes: Any) -> Agent:
        """A new Agent with some options changed, checked like any other.

        Args:
            **changes: new values by option name.
        """
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)

    def with_middleware(self, middleware: Sequence[Middleware]) -> Agent:
        """A new Agent with another stack."""
        return self.replace(middleware=middleware)

    async def execute(
        self,
        state: State | str,
        *,
        callbacks: AnyCallbacks = None,
        max_runs: int | None = None,
    ) -> RunResult:
        """Run the loop until the model has answered.

        Args:
            state: the conversation, or the user's text to begin one.
            callbacks: further handlers (a map, or a list of maps), called before the agent's own.
            max_runs: model calls allowed in this run.

        Returns:
            The result; go on from its `state`.

        Raises:
            AgentError: the run failed; its `state` is how far it came.
            asyncio.CancelledError: the awaiting task was cancelled; its `state` is how far it came.
        """
        run = self.begin(state, callbacks=callbacks, max_runs=max_runs)
        await run_leg(run)
        return RunResult(
            status="interrupted" if run.interrupted else "completed",
            state=run.state,
            agent=self,
            events=tuple(run.recorder.events),
        )

    def begin(
        self,
        state: State | str,
        *,
        recorder: Recorder | None = None,
        callbacks: AnyCallbacks = None,
        max_runs: int | None = None,
    ) -> Run:
        """A run that is ready to go, for those who drive it themselves with `run_leg`.

        Raises:
            AgentError: there is nothing to answer, or the State waits for a person and no new message follows.
        """
        if isinstance(state, str):
            state = State.from_text(state)
        if not isinstance(state, State):
            raise TypeError(f"an agent runs on a State or on the user's text, got a {type(state).__name__}: {state!r}")
        handlers = check_callbacks(callbacks, "execute(callbacks=…)")
        if max_runs is not None and max_runs < 1:
            raise ValueError(f"execute(max_runs={max_runs!r}): it is the number of model calls allowed, at least 1")
        if not state.messages:
            raise AgentError(
                "the State has no messages, so there is nothing to answer: State.from_text('…')",
                type="no_messages",
                state=state,
            )
        if state.agent_id != self.agent_id:
            state = state.model_copy(update={"agent_id": self.agent_id})
        if state.interrupt is not None:
            state = _abandon(state)
        return Run(self, state, recorder=recorder, callbacks=handlers, max_runs=max_runs)

    def run(
        self,
        state: State | str,
        *,
        callbacks: AnyCallbacks = None,
        max_runs: int | None = None,
    ) -> RunResult:
        """`execute` for code that does not await: in a cell, in a script, anywhere.

        Ctrl-C or the kernel's stop button cancels the run and keeps what it reached.

        Args:
            state: the conversation, or the user's text to begin one.
            callbacks: further handlers (a map, or a list of maps), called before the agent's own.
            max_runs: model calls allowed in this run.

        Raises:
            AgentError: the run failed.
            RunCancelled: it was interrupted; its `state` is how far it came.
        """
        job: Awaitable[RunResult] = self.execute(state, callbacks=callbacks, max_runs=max_runs)
        return _late.run_blocking(job)

    def session(self, *, store: Any = None, conversation_id: str | None = None, title: str | None = None) -> Session:
        """A conversation with this agent that goes on in the background.

        Args:
            store: where it is kept, by default only in this process.
            conversation_id: which conversation: reopened when the store has it, begun when not. None begins a
                new one.
            title: of a new conversation.

        Returns:
            A handle to send, wait, watch and stop.
        """
        session: Session = _late.start_session(self, store=store, conversation_id=conversation_id, title=title)
        return session

    def locals_of(self, conversation_id: str | None) -> dict[str, dict[str, Any]]:
        """``run.local`` of every middleware in a conversation; without an id nothing outlives the run."""
        if conversation_id is None:
            return {}
        with self._lock:
            return self._locals.setdefault(conversation_id, {})

    def history_of(self, conversation_id: str | None) -> HistoryKeeper:
        """What was found right in a conversation's history, so that a run looks at what is new only.

        Conversations without an id share one: then it is that of the latest.
        """
        with self._lock:
            return self._histories.setdefault(conversation_id, HistoryKeeper())

    def forget(self, conversation_id: str) -> None:
        """Drop ``run.local`` and what else is kept of a conversation that ended."""
        with self._lock:
            self._locals.pop(conversation_id, None)
            self._histories.pop(conversation_id, None)

    def explain(self) -> str:
        """The loop in words, and who runs where."""
        stack = self.stack

        def who(hook: str) -> str:
            return " → ".join(stack.order(hook)) or "nobody"

        lines = [f"before_agent ↓ (once per leg): {who('before_agent')}"]
        for number, step in enumerate(CYCLE):
            lines.append(f"  {'┌─' if number == 0 else '│ '} {(step.__doc__ or '').strip().rstrip('.')}")
            lines += [f"  │     {hook}: {who(hook)}" for hook in _HOOKS_OF_STEP.get(step.__name__, ())]
        lines.append(f"  └─ {(needs_model.__doc__ or '').strip().rstrip('.')}")
        lines.append(f"after_agent ↑ (once per leg, whatever the way out): {who('after_agent')}")
        lines.append(
            f"limits: {self.max_runs or DEFAULT_MAX_RUNS} model calls; tools: {', '.join(self.all_tools) or 'none'}"
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        # No values of scope and tool_context: a repr ends up in outputs and logs.
        return (
            f"Agent({self.name or self.agent_id!r}, model={self.model!r}, "
            f"middleware=[{', '.join(self.stack.names)}], tools=[{', '.join(self.all_tools)}])"
        )

    __str__ = __repr__

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": _late.agent_html(self)}


_HOOKS_OF_STEP = {
    "before_model": ("before_model",),
    "ask_model": ("wrap_model_call",),
    "after_model": ("after_model",),
    "run_tools": ("wrap_tool_call",),
}


def _abandon(state: State) -> State:
    """Let go of a pending interrupt because the person wrote something new instead of answering."""
    if state.messages[-1].role != "user":
        kind = state.interrupt.kind if state.interrupt else ""
        raise AgentError(
            f"the State waits for a person ({kind}); add the user's next message with state.add_message('…')",
            type="pending_interrupt",
            state=state,
        )

    def settle(result: ToolResult) -> ToolResult:
        if not result.is_interrupt:
            return result
        text = f"Tool halted: {result.text}" if state.interrupt and state.interrupt.kind == "halt" else ABANDONED
        return ToolResult(text, tool_call_id=result.tool_call_id, name=result.name, is_error=True)

    def settled(message: Message) -> Message:
        if not any(result.is_interrupt for result in message.tool_results):
            return message
        return message.model_copy(update={"tool_results": tuple(settle(r) for r in message.tool_results)})

    messages = tuple(settled(message) for message in state.messages)
    return state.with_messages(messages).with_interrupt(None)
