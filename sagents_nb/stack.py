"""Middleware, and the stack it stands in. Position is the program: there are no priorities."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler, field_validator, model_validator

from sagents_nb.errors import ConfigurationError, did_you_mean, in_words
from sagents_nb.hooks import HOOKS, LOOP_HOOKS, STATE_HOOKS, UPWARD_HOOKS, HookRun
from sagents_nb.interrupts import ApprovalRequest, Interrupt, PendingInterrupt
from sagents_nb.messages import Message, ToolCall, ToolResult
from sagents_nb.models.base import ModelRequest
from sagents_nb.state import State
from sagents_nb.tools import Tool, ToolContext, as_tool

HookReturn: TypeAlias = State | Interrupt | None

Tools: TypeAlias = Sequence[Tool | Callable[..., Any]]
Handlers: TypeAlias = Mapping[str, Callable[[Any], object]] | None

T = TypeVar("T")

logger = logging.getLogger("sagents_nb")


class Configured(BaseModel):
    """Base of what is configured by keywords: frozen, and an unknown keyword is answered with a suggestion."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name in data:
                if name not in cls.model_fields:
                    raise TypeError(
                        f"{cls.__name__} has no option {name!r}{did_you_mean(str(name), cls.model_fields)}; "
                        f"it has {', '.join(cls.model_fields)}"
                    )
        return data


class Middleware(Configured):
    """One capability of an agent: part of the prompt, tools, and hooks around the model and the tools.

    Subclass it, declare what is configurable as fields, and override the hooks you need; every hook may be a
    `def` or an `async def`. The instance is configuration and cannot be changed: what changes during a run lives
    in ``run.local`` (this process) or in ``state.metadata`` (saved). A list, dict or set handed in is kept, not
    copied. Two instances are equal only if they are the same one.

    Attributes:
        name: what it is called in the stack; by default the class name.
        blocking: set True in a class whose synchronous hooks take long (over 50 ms): they then run in a thread.
        must_be_last: the class must stand at the end of the stack.
        before: class names that must come later in the stack, if they are there.
        after: class names that must come earlier in the stack, if they are there.
        requires: class names that must be in the stack. In all three, a class stands for its subclasses too.
    """

    blocking: ClassVar[bool] = False
    must_be_last: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()

    name: str = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for hook in HOOKS:
            if hook in cls.model_fields:
                raise ConfigurationError(
                    f"{cls.__name__}.{hook} is declared as a field, but {hook} is a hook; rename the field"
                )

    @model_validator(mode="before")
    @classmethod
    def _name_it(cls, data: Any) -> Any:
        return {**data, "name": data.get("name") or cls.__name__} if isinstance(data, dict) else data

    @field_validator("*", mode="wrap")
    @classmethod
    def _keep_containers(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        # pydantic copies containers; somebody who hands in a list to collect a log wants that very list.
        checked = check(value)
        return value if type(value) in (list, dict, set) and checked == value else checked

    def __hash__(self) -> int:
        # Not `= object.__hash__`: pydantic would take that for unset, and hash the fields of every subclass.
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    # The hooks. These bodies never run: the stack knows who overrides which.

    def system_prompt(self) -> str | Sequence[str] | Awaitable[str | Sequence[str]]:
        """Part of the system prompt, asked once when the agent is built; several parts get a blank line in between."""
        return ""

    def tools(self) -> Tools | Awaitable[Tools]:
        """Tools it brings, asked once when the agent is built."""
        return ()

    def callbacks(self) -> Handlers | Awaitable[Handlers]:
        """Handlers by event name, called for every event of that name."""
        return {}

    def before_agent(self, state: State, run: HookRun) -> HookReturn | Awaitable[HookReturn]:
        """Once at the beginning of a leg, first middleware first."""

    def before_model(self, state: State, run: HookRun) -> HookReturn | Awaitable[HookReturn]:
        """Before every model call, first middleware first."""

    def wrap_model_call(
        self, request: ModelRequest, call_next: Callable[[ModelRequest], Awaitable[Message]]
    ) -> Awaitable[Message]:
        """Around every model call; the first middleware is outermost."""
        return call_next(request)

    def after_model(self, state: State, run: HookRun) -> HookReturn | Awaitable[HookReturn]:
        """After every model call, last middleware first."""

    def wrap_tool_call(
        self,
        call: ToolCall,
        context: ToolContext,
        call_next: Callable[[ToolCall], Awaitable[ToolResult]],
    ) -> Awaitable[ToolResult]:
        """Around every tool call; the first middleware is outermost."""
        return call_next(call)

    def after_agent(self, state: State, run: HookRun) -> HookReturn | Awaitable[HookReturn]:
        """Once at the end of a leg, whatever the way out, last middleware first."""

    def needs_approval(
        self, call: ToolCall, run: HookRun
    ) -> ApprovalRequest | Awaitable[ApprovalRequest | None] | None:
        """Whether a person has to decide on a call before it runs; only one middleware of a stack may say so.

        Asked when the model has called the tool, and again for the very call that is about to run, so the answer must
        depend on nothing but the call and the agent.

        Returns:
            None: it may run. An `ApprovalRequest`: not without the person.
        """

    def handle_resume(self, state: State, interrupt: PendingInterrupt, answer: Any, run: HookRun) -> Any:
        """When a person has answered an interrupt, first middleware first, until one of them settles it.

        Args:
            state: with the interrupt pending.
            interrupt: what was asked, as it was when the answer came.
            answer: the person's; None asks only whose interrupt this is.
            run: the run that goes on.

        Returns:
            None or a State: not mine, the next one is asked. ``Resolved(state)``: settled. An `Interrupt`: something
            is still to be asked.
        """

    def restorable_interrupt(self, interrupt: PendingInterrupt) -> bool:
        """Whether an interrupt can be answered after a restart: True if all that needs is in the interrupt itself."""
        return False

    def on_server_start(self, state: State, server: Any) -> State | Awaitable[State | None] | None:
        """Once when a conversation's server starts, first middleware first; may return another State."""

    def handle_message(self, message: Any, state: State, server: Any) -> State | Awaitable[State | None] | None:
        """A message for this middleware arrived at the conversation's server, often from work it started itself.

        Args:
            message: whatever was sent.
            state: of the conversation, outside of any run.
            server: of the conversation.

        Returns:
            Another State, or None for unchanged.
        """

    def transform_display_message(self, message: Any) -> Any:
        """What people see instead of a message of the transcript; the model's copy stays as it is.

        Each middleware is given what the one before it returned, first middleware first. None for unchanged.
        """


@dataclass(frozen=True, slots=True)
class BoundHook:
    """A hook of one middleware of a stack, ready to be called.

    Attributes:
        middleware: name of the middleware.
        hook: which hook.
        function: the bound method.
        is_async: whether it is a coroutine function.
        in_thread: whether it runs in a thread.
    """

    middleware: str
    hook: str
    function: Callable[..., Any]
    is_async: bool
    in_thread: bool


@dataclass(frozen=True, slots=True)
class StackEntry:
    """A middleware in its place.

    Attributes:
        name: unique in the stack.
        middleware: the instance.
        class_name: of the instance.
        summary: first line of the class's docstring.
        hooks: the hooks it implements, in the order of `HOOKS`.
        prompt: what it adds to the system prompt.
        tools: names of the tools it brings.
        config: its fields as short text.
        constraints: where it must stand, in words: ``"last"``, ``"before HumanInTheLoop"``, ``"with FileSystem"``.
    """

    name: str
    middleware: Middleware
    class_name: str
    summary: str
    hooks: tuple[str, ...]
    prompt: str
    tools: tuple[str, ...]
    config: Mapping[str, str]
    constraints: tuple[str, ...] = ()


class Stack:
    """The middlewares of an agent in their order; the order is checked when it is made.

    Iterating gives the middlewares; `entries` tells what each contributes. In a notebook it shows itself as the
    picture of the sandwich.

    Args:
        middleware: first to last.

    Raises:
        ConfigurationError: something that is no middleware, two of the same name, one whose `system_prompt` or `tools`
            fails, two tools of the same name, or a wrong order.
    """

    def __init__(self, middleware: Sequence[Middleware] = ()) -> None:
        self._hooks: dict[str, tuple[BoundHook, ...]] = {}
        self.entries: tuple[StackEntry, ...] = ()
        self.tools: tuple[Tool, ...] = ()
        entries: list[StackEntry] = []
        tools: list[Tool] = []
        for name, item in zip(_unique_names(middleware), middleware, strict=True):
            own = _tools(item, name)
            tools += own
            entries.append(
                StackEntry(
                    name=name,
                    middleware=item,
                    class_name=type(item).__name__,
                    summary=_summary(type(item)),
                    hooks=tuple(hook for hook in HOOKS if _implements(item, hook)),
                    prompt=_prompt(item, name),
                    tools=tuple(each.name for each in own),
                    config={key: _short(getattr(item, key)) for key in type(item).model_fields if key != "name"},
                    constraints=_constraints(item, name),
                )
            )
        self.entries = tuple(entries)
        self.tools = tuple(tools)
        self.all_tools()
        for hook in HOOKS:
            bound = [_bind(entry, hook) for entry in self.entries if hook in entry.hooks]
            self._hooks[hook] = tuple(reversed(bound)) if hook in UPWARD_HOOKS else tuple(bound)
        problems = self.lint()
        if problems:
            raise ConfigurationError("; ".join(problems))

    def __iter__(self) -> Iterator[Middleware]:
        return (entry.middleware for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the middlewares, first to last."""
        return tuple(entry.name for entry in self.entries)

    def order(self, hook: str) -> list[str]:
        """Names of the middlewares that implement a hook, in the order in which they run.

        Raises:
            ValueError: there is no such hook.
        """
        return [bound.middleware for bound in self.hooks(hook)]

    def hooks(self, hook: str) -> tuple[BoundHook, ...]:
        """The implementations of a hook, in the order in which they run.

        Raises:
            ValueError: there is no such hook.
        """
        try:
            return self._hooks[hook]
        except KeyError:
            raise ValueError(
                f"there is no hook {hook!r}{did_you_mean(hook, HOOKS)}; the hooks are {', '.join(HOOKS)}"
            ) from None

    def prompt(self, base: str | None = None) -> str:
        """The system prompt: the base, then what the middlewares add, a blank line between two."""
        return "\n\n".join(filter(None, [base or "", *(entry.prompt for entry in self.entries)]))

    def all_tools(self, own: Sequence[Tool] = ()) -> dict[str, Tool]:
        """Every tool by name: the agent's own, then those of the middlewares.

        Args:
            own: the agent's.

        Raises:
            ConfigurationError: two have the same name; the text says who brings them.
        """
        owned = [("the agent itself: Agent(tools=[…])", tool) for tool in own]
        tools = iter(self.tools)
        owned += [(entry.name, next(tools)) for entry in self.entries for _ in entry.tools]
        owners: dict[str, str] = {}
        for owner, tool in owned:
            if tool.name in owners:
                first = owners[tool.name]
                raise ConfigurationError(
                    f"two tools are named {tool.name!r}; rename one with @tool(name='…') or leave one out. "
                    + (f"Both come from {owner}" if owner == first else f"They come from {first} and from {owner}")
                )
            owners[tool.name] = owner
        return {tool.name: tool for _, tool in owned}

    def lint(self) -> list[str]:
        """What is wrong with the order, a sentence each; empty when nothing is."""
        problems = []
        gates = [entry.name for entry in self.entries if "needs_approval" in entry.hooks]
        if len(gates) > 1:
            problems.append(f"{' and '.join(gates)} both decide what a person has to approve; keep one of them")
        classes = [_class_names(type(entry.middleware)) for entry in self.entries]

        def there(other: str, among: list[set[str]]) -> bool:
            return any(other in names for names in among)

        for place, entry in enumerate(self.entries):
            item = entry.middleware
            later = self.names[place + 1 :]
            if item.must_be_last and later:
                problems.append(
                    f"{entry.name} must be the last middleware, but {', '.join(later)} "
                    f"{'comes' if len(later) == 1 else 'come'} after it; move it to the end of the list"
                )
            problems += [
                f"{entry.name} must come before {other}; move it up in the list"
                for other in item.before
                if there(other, classes[:place])
            ]
            problems += [
                f"{entry.name} must come after {other}; move it down in the list"
                for other in item.after
                if there(other, classes[place + 1 :])
            ]
            problems += [
                f"{entry.name} needs {other} in the stack; add {other}() to the list"
                for other in item.requires
                if not there(other, classes)
            ]
        return problems

    def __repr__(self) -> str:
        lines = [f"Stack of {len(self)}: {' → '.join(self.names) or 'no middleware'}"]
        implemented = [hook for hook in HOOKS if self._hooks[hook]]
        width = max(map(len, (*LOOP_HOOKS, *implemented)))
        lines += [f"  {hook:<{width}}  {' → '.join(self.order(hook))}" for hook in implemented]
        lines += [
            f"  {entry.name} must stand {', '.join(entry.constraints)}" for entry in self.entries if entry.constraints
        ]
        return "\n".join(lines)

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        from sagents_nb import _late

        return {"text/plain": repr(self), "text/html": _late.stack_html(self)}


def _unique_names(middleware: Sequence[Middleware]) -> list[str]:
    names: list[str] = []
    for item in middleware:
        if isinstance(item, type) and issubclass(item, Middleware):
            raise ConfigurationError(f"{item.__name__} is the class; put an instance in the list: {item.__name__}()")
        if not isinstance(item, Middleware):
            raise ConfigurationError(
                f"{item!r} in middleware is a {type(item).__name__}; a middleware is an instance of a subclass of "
                "sagents_nb.Middleware"
            )
        if item.name != type(item).__name__ and item.name in names:
            raise ConfigurationError(
                f"two middlewares are named {item.name!r}; give one another name: {type(item).__name__}(name='…')"
            )
        count = 1
        name = item.name
        while name in names:
            count += 1
            name = f"{item.name}-{count}"
        names.append(name)
    return names


def _implements(item: Middleware, hook: str) -> bool:
    return getattr(type(item), hook) is not getattr(Middleware, hook)


def _bind(entry: StackEntry, hook: str) -> BoundHook:
    function = getattr(entry.middleware, hook)
    is_async = inspect.iscoroutinefunction(function)
    return BoundHook(
        middleware=entry.name,
        hook=hook,
        function=function,
        is_async=is_async,
        in_thread=entry.middleware.blocking and not is_async and hook in STATE_HOOKS,
    )


@contextmanager
def initializing(middleware: str, hook: str) -> Iterator[None]:
    """Around what a middleware contributes: whatever goes wrong is a ConfigurationError that names both.

    Args:
        middleware: its name in the stack.
        hook: which of its hooks is asked.
    """
    hook = f"{middleware}.{hook}()"
    try:
        yield
    except Exception as error:
        words = in_words(error)
        if not isinstance(error, ConfigurationError):
            words = f"{hook} raised {type(error).__name__}: {words}"
        elif not words.startswith(hook):
            words = f"{hook}: {words}"
        logger.error("Middleware initialization failed: %s", words)  # noqa: TRY400 - the error raised has the traceback
        raise ConfigurationError(
            f"Failed to initialize {middleware}; middleware initialization failed: {words}"
        ) from error


def contribution(function: Callable[[], T | Awaitable[T]]) -> T:
    """What a hook that is asked when the agent is built answers.

    An `async def` is run to its end in a thread, on a loop of its own: the one that runs here, if one does, cannot wait.
    """
    answer = function()
    if not inspect.iscoroutine(answer):
        return cast("T", answer)
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as thread:
        return cast("T", thread.submit(copy_context().run, asyncio.run, answer).result())


def _tools(item: Middleware, name: str) -> tuple[Tool, ...]:
    with initializing(name, "tools"):
        tools: object = contribution(item.tools)
        if not isinstance(tools, (list, tuple)):
            raise ConfigurationError(f"{name}.tools() returned {tools!r}; it returns a list of functions or Tools")
        return tuple(as_tool(each) for each in tools)


def _prompt(item: Middleware, name: str) -> str:
    with initializing(name, "system_prompt"):
        prompt: object = contribution(item.system_prompt)
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, (list, tuple)) and all(isinstance(part, str) for part in prompt):
            return "\n\n".join(prompt)
        raise ConfigurationError(f"{name}.system_prompt() returned {prompt!r}; it returns a str or a list of str")


def _class_names(cls: type) -> set[str]:
    """What a constraint may call a middleware of this class."""
    return {base.__name__ for base in cls.__mro__ if issubclass(base, Middleware) and base is not Middleware}


def _constraints(item: Middleware, name: str) -> tuple[str, ...]:
    words = ["last"] if item.must_be_last else []
    for constraint, preposition in (("before", "before"), ("after", "after"), ("requires", "with")):
        classes: object = getattr(item, constraint)
        # A str is a sequence too: of letters, which no class is named, so that the rule would never be broken.
        if not isinstance(classes, (tuple, list)) or not all(isinstance(other, str) for other in classes):
            raise ConfigurationError(
                f"{name}.{constraint} is {classes!r}; it is a tuple of class names: {constraint} = ('HumanInTheLoop',)"
            )
        words += [f"{preposition} {other}" for other in classes]
    return tuple(words)


def _summary(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0] if cls.__doc__ else ""


def _short(value: Any) -> str:
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))  # an address differs from run to run
    return text if len(text) <= 80 else text[:79] + "…"
