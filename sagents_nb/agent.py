"""Agent: checked configuration, and its verbs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from pydantic import Field, ValidationInfo, field_validator

from sagents_nb import _late
from sagents_nb.errors import AgentError, ConfigurationError, did_you_mean
from sagents_nb.execution.abandon import abandon
from sagents_nb.execution.callbacks import AnyCallbacks, Callbacks, check_callbacks
from sagents_nb.execution.extract import MAX_RUNS, extracted, no_target, result_tool
from sagents_nb.execution.loop import run_leg
from sagents_nb.execution.modes import DEFAULT, Mode
from sagents_nb.execution.recorder import Recorder
from sagents_nb.execution.repair import HistoryKeeper
from sagents_nb.execution.result import RunResult
from sagents_nb.execution.run import DEFAULT_MAX_RUNS, Run, RunOptions
from sagents_nb.execution.stream import RunStream
from sagents_nb.execution.until import until
from sagents_nb.interrupts import PAUSE, Continuation
from sagents_nb.models.base import ChatModel
from sagents_nb.stack import Configured, Middleware, Stack, contribution, initializing
from sagents_nb.state import State
from sagents_nb.tools import Tool, as_tool

if TYPE_CHECKING:
    from sagents_nb.server.session import Session

T = TypeVar("T")


class Agent(Configured):
    """How an agent behaves. Immutable: a change is a new Agent (`replace`); what evolves is the `State`.

    Attributes:
        model: the language model.
        fallback_models: who is asked, one after the other, when a model fails, its retries included, before anything of
            its answer was seen. Only the model call is repeated: no tool runs twice.
        before_fallback: ``(request, model, error)`` to the request for `model`, the next one, after `error`; None for
            "unchanged". `def` or `async def`.
        base_system_prompt: how the system prompt begins; what the middlewares add follows.
        tools: functions (best decorated with ``@tool``) or Tools.
        middleware: the stack, first to last; position decides who runs when.
        scope: for whom it runs. Never saved anywhere.
        tool_context: static extras for tools. Never saved anywhere.
        agent_id: made up when not given.
        name: what people call it.
        callbacks: handlers by event name, or a list of such maps.
        otel_attributes: attributes of every OpenTelemetry span of its runs, by name. Never saved.
        max_runs: model calls in one run, by default 50.
        tool_timeout: seconds a tool may take, unless it says otherwise; None for no limit.
        mode: the steps of a cycle, see `sagents_nb.execution.modes`.

    Raises:
        TypeError: an unknown keyword; the text suggests the one that was meant.
        ConfigurationError: no model, two tools of one name, a wrong order of middleware; the text says what to type.
    """

    model: Any = Field(default=None, validate_default=True)
    fallback_models: tuple[Any, ...] = ()
    before_fallback: Any = Field(default=None, repr=False)
    base_system_prompt: str | None = None
    tools: tuple[Any, ...] = ()
    middleware: tuple[Any, ...] = ()
    scope: Any = Field(default=None, repr=False)
    tool_context: Any = Field(default_factory=dict, repr=False)
    agent_id: str = Field(default_factory=lambda: f"agent-{uuid.uuid4().hex[:12]}")
    name: str | None = None
    callbacks: Any = Field(default_factory=dict, repr=False)
    otel_attributes: Any = Field(default_factory=dict, repr=False)
    max_runs: int | None = Field(default=None, ge=1)
    tool_timeout: float | None = Field(default=None, gt=0)
    mode: Any = Field(default=DEFAULT, repr=False)

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

    @field_validator("fallback_models", mode="before")
    @classmethod
    def _need_models(cls, value: Any) -> Any:
        models = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        wrong = [model for model in models if not isinstance(model, ChatModel)]
        if wrong or models is not value:
            raise ConfigurationError(
                f"Agent(fallback_models=…) takes a list of models, got {(wrong or models)[0]!r}: "
                "fallback_models=[AnthropicModel('…')]"
            )
        return tuple(models)

    @field_validator("before_fallback", mode="before")
    @classmethod
    def _need_function(cls, value: Any) -> Any:
        if value is not None and not callable(value):
            raise ConfigurationError(
                f"Agent(before_fallback=…) takes a function (request, model, error) -> request, got {value!r}"
            )
        return value

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

    @field_validator("tool_context", "otel_attributes", mode="before")
    @classmethod
    def _as_mapping(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.field_name == "otel_attributes":
            value = {}
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            # The value itself is not shown: it may hold secrets.
            raise ConfigurationError(
                f"Agent({info.field_name}=…) takes a dict with string keys, got a {type(value).__name__}"
            )
        return MappingProxyType(dict(value))

    def model_post_init(self, _context: Any) -> None:
        """Assemble what the middlewares contribute, once, and check that it fits together."""
        for assembled in (self.stack, self.all_tools, self.system_prompt, self.all_callbacks):
            del assembled
        for kept in (self._lock, self._locals, self._histories, self.running):  # before any thread asks for them
            del kept

    def __hash__(self) -> int:
        # Not `= object.__hash__`: pydantic would take that for unset, and hash the fields of every subclass.
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @field_validator("mode")
    @classmethod
    def _need_mode(cls, mode: Any) -> Any:
        if not isinstance(mode, Mode):
            raise ConfigurationError(f"Agent(mode=…) takes a Mode of sagents_nb.execution.modes, got {mode!r}")
        return mode

    # Cached, not private attributes: pydantic looks those up by a slow path, and the loop reads these all the time.

    @cached_property
    def _lock(self) -> threading.Lock:
        return threading.Lock()

    @cached_property
    def _locals(self) -> dict[str | int, dict[str, dict[str, Any]]]:
        return {}

    @cached_property
    def _histories(self) -> dict[str | int | None, HistoryKeeper]:
        return {}

    @cached_property
    def running(self) -> set[Run]:
        """Its runs that go on now."""
        return set()

    @cached_property
    def stack(self) -> Stack:
        """The middlewares in their order, and what each contributes."""
        return Stack(self.middleware)

    @cached_property
    def all_tools(self) -> Mapping[str, Tool]:
        """Its own tools and those of its middlewares, by name."""
        return MappingProxyType(self.stack.all_tools(self.tools))

    @cached_property
    def system_prompt(self) -> str:
        """The system prompt as the model gets it, assembled once so that providers can cache it."""
        return self.stack.prompt(self.base_system_prompt)

    @cached_property
    def all_callbacks(self) -> tuple[Callbacks, ...]:
        """Its own handlers, then those of its middlewares in stack order."""
        maps = [*check_callbacks(self.callbacks, "Agent(callbacks=…)")]
        for bound in self.stack.hooks("callbacks"):
            with initializing(bound.middleware, "callbacks"):
                maps += check_callbacks(contribution(bound.function), f"{bound.middleware}.callbacks()")
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

    def put_otel_attributes(self, attributes: Mapping[str, Any] | None) -> Agent:
        """A new Agent whose `otel_attributes` are the present ones overlaid with these."""
        return self.replace(otel_attributes={**self.otel_attributes, **(attributes or {})})

    async def execute(
        self,
        state: State | str,
        *,
        callbacks: AnyCallbacks = None,
        max_runs: int | None = None,
        until_tool: str | Sequence[str] | None = None,
        until_tool_success: str | Sequence[str] | None = None,
        should_pause: Callable[[], object] | None = None,
    ) -> RunResult:
        """Run the loop until the model has answered.

        Args:
            state: the conversation, or the user's text to begin one.
            callbacks: further handlers (a map, or a list of maps), called before the agent's own.
            max_runs: model calls allowed in this run.
            until_tool: name of a tool, or several: the run ends with the first result of one of them, an error too.
            until_tool_success: the same, but only a result without error ends it.
            should_pause: asked before every model call and before the tools of an answer; true pauses the run there.

        Returns:
            The result; go on from its `state`.

        Raises:
            AgentError: the run failed; its `state` is how far it came.
            ConfigurationError: an option does not fit, a tool that the agent does not have for example.
            asyncio.CancelledError: the awaiting task was cancelled; its `state` is how far it came.
        """
        run = self.begin(
            state,
            callbacks=callbacks,
            max_runs=max_runs,
            until_tool=until_tool,
            until_tool_success=until_tool_success,
            should_pause=should_pause,
        )
        await run_leg(run)
        return self._result(run)

    async def resume(
        self,
        state: State,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Go on with a run that was paused: at the very step where it stopped, with what it had used up.

        Args:
            state: of the paused run, also when it was saved and read again.
            **options: keywords of `execute`. `max_runs` and the tools that end it are those of the run that was
                paused, unless given.

        Raises:
            AgentError: the State is not that of a paused run, or the run failed.
        """
        run = self.begin(
            state,
            **options,
            resumed=True,
        )
        await run_leg(run)
        return self._result(run)

    def stream(
        self,
        state: State | str,
        **options: Unpack[RunOptions],
    ) -> RunStream:
        """`execute`, watched: iterate over what it gives with ``async for`` to run and see every event.

        Args:
            state: the conversation, or the user's text to begin one.
            **options: keywords of `execute`.

        Raises:
            AgentError: there is nothing to answer.
        """
        run = self.begin(
            state,
            **options,
        )
        return RunStream(run, self._result)

    @overload
    async def extract(
        self, state: State | str, kind: type[T], *, max_runs: int = MAX_RUNS, callbacks: AnyCallbacks = None
    ) -> T: ...
    @overload
    async def extract(
        self,
        state: State | str,
        kind: Any = None,
        *,
        tool: str | None = None,
        max_runs: int = MAX_RUNS,
        callbacks: AnyCallbacks = None,
    ) -> Any: ...

    async def extract(
        self,
        state: State | str,
        kind: Any = None,
        *,
        tool: str | None = None,
        max_runs: int = MAX_RUNS,
        callbacks: AnyCallbacks = None,
    ) -> Any:
        """Have the model put what a text or a conversation says into a form.

        The model has to call a tool whose arguments are the result. What does not fit goes back to it in words.

        Args:
            state: the text, or a conversation.
            kind: the form: a pydantic model, or any other type that pydantic can check.
            tool: instead of `kind`, one of the agent's own tools: the run ends with its first result without error.
            max_runs: model calls allowed.
            callbacks: as in `execute`.

        Returns:
            The value of that type; of an own tool its value for the program, else the arguments it was called with.

        Raises:
            AgentError: the model did not do it (``"until_tool_not_called"``, ``"exceeded_max_runs"``,
                ``"exceeded_failure_count"``), the run stopped for a person (``"interrupted"``, ``"paused"``), or what is
                asked for does not fit (``"extract_invalid_opts"``, ``"extract_tool_not_found"``).
        """
        state = State.from_text(state) if isinstance(state, str) else state
        if (kind is None) == (tool is None):
            raise no_target(state)
        agent, target = self, tool
        if target is None:
            form = result_tool(kind)
            agent, target = self.replace(tools=(*self.tools, form)), form.name
        elif target not in self.all_tools:
            raise AgentError(
                f"extract: the agent has no tool {target!r}{did_you_mean(target, self.all_tools)}; it has "
                f"{', '.join(self.all_tools) or 'none'}",
                type="extract_tool_not_found",
                state=state,
            )
        run = agent.begin(
            state,
            callbacks=callbacks,
            max_runs=max_runs,
            until_tool_success=target,
            tool_choice=target if len(agent.all_tools) == 1 else "any",
        )
        await run_leg(run)
        return extracted(agent._result(run), own=tool is None)

    def pause(self, conversation_id: str | int | None = None) -> int:
        """Have the agent's runs stop before their next model call or their next tools; from any thread.

        Each ends with the status ``"paused"``; ``agent.resume(result.state)`` goes on.

        Args:
            conversation_id: only the runs of this conversation.

        Returns:
            How many runs were asked.
        """
        asked = [run for run in tuple(self.running) if conversation_id in (None, run.state.conversation_id)]
        for run in asked:
            run.ask_pause()
        return len(asked)

    def begin(
        self,
        state: State | str,
        *,
        recorder: Recorder | None = None,
        tool_choice: str = "auto",
        resumed: bool = False,
        **options: Unpack[RunOptions],
    ) -> Run:
        """A run that is ready to go, for those who drive it themselves with `run_leg`.

        Args:
            state: the conversation, or the user's text to begin one.
            recorder: where the events go.
            tool_choice: see `ModelRequest`.
            resumed: whether it goes on with a paused run.
            **options: keywords of `execute`.

        Raises:
            AgentError: there is nothing to answer, or the State waits for a person and no new message follows.
        """
        if isinstance(state, str):
            state = State.from_text(state)
        if not isinstance(state, State):
            raise TypeError(f"an agent runs on a State or on the user's text, got a {type(state).__name__}: {state!r}")
        max_runs = options.get("max_runs")
        handlers = check_callbacks(options.get("callbacks"), "execute(callbacks=…)")
        if max_runs is not None and max_runs < 1:
            raise ValueError(f"execute(max_runs={max_runs!r}): it is the number of model calls allowed, at least 1")
        target = until(options.get("until_tool"), options.get("until_tool_success"), self.all_tools)
        if not state.messages:
            raise AgentError(
                "the State has no messages, so there is nothing to answer: State.from_text('…')",
                type="no_messages",
                state=state,
            )
        if state.agent_id != self.agent_id:
            state = state.model_copy(update={"agent_id": self.agent_id})
        continuation = _continuation(state) if resumed else None
        return Run(
            self,
            state.with_interrupt(None) if resumed else abandon(state),
            recorder=recorder,
            callbacks=handlers,
            max_runs=max_runs,
            until=target if target.names else None,
            tool_choice=tool_choice,
            should_pause=options.get("should_pause"),
            continuation=continuation,
        )

    def run(
        self,
        state: State | str,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """`execute` for code that does not await: in a cell, in a script, anywhere.

        Ctrl-C or the kernel's stop button cancels the run and keeps what it reached.

        Args:
            state: the conversation, or the user's text to begin one.
            **options: keywords of `execute`.

        Raises:
            AgentError: the run failed.
            RunCancelled: it was interrupted; its `state` is how far it came.
        """
        job: Awaitable[RunResult] = self.execute(
            state,
            **options,
        )
        return _late.run_blocking(job)

    def _result(self, run: Run) -> RunResult:
        return RunResult(
            status=run.outcome,
            state=run.state,
            agent=self,
            events=tuple(run.recorder.events),
            tool_result=run.tool_result,
            usage=run.usage,
        )

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

    def locals_of(self, conversation_id: str | int | None) -> dict[str, dict[str, Any]]:
        """``run.local`` of every middleware in a conversation; without an id nothing outlives the run."""
        if conversation_id is None:
            return {}
        with self._lock:
            return self._locals.setdefault(conversation_id, {})

    def history_of(self, conversation_id: str | int | None) -> HistoryKeeper:
        """What was found right in a conversation's history, so that a run looks at what is new only.

        Conversations without an id share one: then it is that of the latest.
        """
        with self._lock:
            keeper = self._histories.get(conversation_id)
            if keeper is None:
                keeper = self._histories[conversation_id] = HistoryKeeper()
            return keeper

    def forget(self, conversation_id: str | int) -> None:
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
        for number, step in enumerate(self.mode.steps):
            lines.append(f"  {'┌─' if number == 0 else '│ '} {(step.__doc__ or '').strip().rstrip('.')}")
            lines += [f"  │     {hook}: {who(hook)}" for hook in _HOOKS_OF_STEP.get(step.__name__, ())]
        lines.append("  └─ Again while there is something the model has not seen: tool results, or a message of a hook")
        lines.append(f"after_agent ↑ (once per leg, whatever the way out): {who('after_agent')}")
        if self.fallback_models:
            lines.append(f"models: {', and when it fails '.join(m.name for m in (self.model, *self.fallback_models))}")
        lines.append(
            f"limits: {self.max_runs or DEFAULT_MAX_RUNS} model calls; tools: {', '.join(self.all_tools) or 'none'}"
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        fallbacks = f"fallback_models={list(self.fallback_models)!r}, " if self.fallback_models else ""
        # No values of scope and tool_context: a repr ends up in outputs and logs.
        return (
            f"Agent({self.name or self.agent_id!r}, model={self.model!r}, {fallbacks}"
            f"middleware=[{', '.join(self.stack.names)}], tools=[{', '.join(self.all_tools)}])"
        )

    __str__ = __repr__

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": _late.agent_html(self)}


_HOOKS_OF_STEP = {
    "before_model": ("before_model",),
    "ask_model": ("wrap_model_call",),
    "after_model": ("after_model",),
    "gate": ("needs_approval",),
    "run_tools": ("wrap_tool_call",),
}


def _continuation(state: State) -> Continuation:
    pending = state.interrupt
    if pending is None or pending.kind != PAUSE or pending.continuation is None:
        waits = f"waits for a person ({pending.kind})" if pending else "is not that of a run that was stopped"
        raise AgentError(
            f"the State {waits}; agent.resume goes on with a paused one, agent.execute(state.add_message('…')) with any",
            type="nothing_to_resume",
            state=state,
        )
    return pending.continuation
