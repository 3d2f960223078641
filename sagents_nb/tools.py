"""Tools: Python functions a model may call, described by their type hints and docstring."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, overload

import docstring_parser
import pydantic
from pydantic import ConfigDict, Field, create_model
from pydantic.json_schema import GenerateJsonSchema

from sagents_nb.errors import ConfigurationError, ToolError, did_you_mean
from sagents_nb.frozen import thaw
from sagents_nb.state import State

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names that every provider takes (Anthropic allows 128 characters, OpenAI 64)."""


class ToolContext:
    """What a tool gets to know besides its arguments: the three channels and where it runs.

    `scope` says for whom, ``tool_context`` is what the caller supplied (also as attributes and by
    ``context["key"]``), `state` is the conversation so far, ``state.metadata`` its saved notes. A name of the
    toolkit wins over an equal key in tool_context.

    Attributes:
        scope: the agent's scope, never saved.
        tool_context: the caller's mapping, read-only.
        state: the State at the beginning of this batch of calls.
        agent_id: the agent (in a sub-agent: the parent).
        conversation_id: the conversation, if it has an id.
        tool_call_id: this call.
        parent_middleware: the agent's middlewares.
        parent_tools: the agent's tools.
    """

    __slots__ = (
        "_cancelled",
        "_publish",
        "agent_id",
        "conversation_id",
        "parent_middleware",
        "parent_tools",
        "scope",
        "state",
        "tool_call_id",
        "tool_context",
    )

    def __init__(
        self,
        *,
        scope: Any,
        tool_context: Mapping[str, Any],
        state: State,
        agent_id: str,
        tool_call_id: str,
        parent_middleware: tuple[Any, ...] = (),
        parent_tools: tuple[Tool, ...] = (),
        publish: Callable[[str, Mapping[str, Any]], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self.scope = scope
        self.tool_context = types.MappingProxyType(dict(tool_context))
        self.state = state
        self.agent_id = agent_id
        self.conversation_id = state.conversation_id
        self.tool_call_id = tool_call_id
        self.parent_middleware = parent_middleware
        self.parent_tools = parent_tools
        self._publish = publish
        self._cancelled = cancelled

    @property
    def cancelled(self) -> bool:
        """Whether the call is over (stopped or timed out) while the tool still runs; it should return soon."""
        return self._cancelled is not None and self._cancelled()

    def publish(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """Tell whoever watches the run, for example about progress.

        Args:
            name: what it is called.
            data: JSON.
        """
        if self._publish is not None:
            self._publish(name, data or {})

    def __getattr__(self, name: str) -> Any:
        # Only names that are no attribute of the class get here, so the toolkit's own always win.
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.tool_context[name]
        except KeyError:
            raise AttributeError(self._unknown(name)) from None

    def __getitem__(self, name: str) -> Any:
        if name in _CONTEXT_NAMES:
            return getattr(self, name)
        try:
            return self.tool_context[name]
        except KeyError:
            raise KeyError(self._unknown(name)) from None

    def _unknown(self, name: str) -> str:
        known = [*_CONTEXT_NAMES, *self.tool_context]
        return (
            f"this tool's context has no {name!r}{did_you_mean(name, known)}; it has {', '.join(known)}. "
            f"Supply it with Agent(tool_context={{{name!r}: …}})"
        )

    def __repr__(self) -> str:
        # Names only: a scope or a secret in tool_context must not get into an output or a log.
        return f"ToolContext(tool_call_id={self.tool_call_id!r}, tool_context keys: {', '.join(self.tool_context)})"


_CONTEXT_NAMES = (
    "scope",
    "tool_context",
    "state",
    "agent_id",
    "conversation_id",
    "tool_call_id",
    "parent_middleware",
    "parent_tools",
)


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A function the model may call. Made by `tool`; calling it calls the function.

    Attributes:
        name: what the model calls it.
        description: what the model is told about it.
        input_schema: JSON schema of its arguments.
        function: what runs.
        is_async: whether the function is a coroutine function. Others run in a thread.
        context_parameter: name of the parameter that gets the `ToolContext`.
        display_text: a label for people.
        timeout: seconds after which a call is given up; None for the agent's ``tool_timeout``.
        sequential: whether it must not run beside other tools of the same message.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    function: Callable[..., Any]
    is_async: bool = False
    context_parameter: str | None = None
    display_text: str | None = None
    timeout: float | None = None
    sequential: bool = False
    _arguments: type[pydantic.BaseModel] | None = field(default=None, repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check and convert the model's arguments.

        Args:
            arguments: as the model gave them.

        Returns:
            Keyword arguments for the function.

        Raises:
            ToolError: they do not fit; the text tells the model what to do.
        """
        plain: dict[str, Any] = thaw(dict(arguments))  # the call stays as it is, whatever the function does with them
        if self._arguments is None:
            return plain
        try:
            checked = self._arguments.model_validate(plain)
        except pydantic.ValidationError as error:
            raise ToolError(self._explain(error, arguments)) from None
        fields = self._arguments.model_fields
        return {str(fields[name].alias): getattr(checked, name) for name in checked.model_fields_set}

    def _explain(self, error: pydantic.ValidationError, arguments: Mapping[str, Any]) -> str:
        accepted = list(self.input_schema.get("properties", {}))
        problems = error.errors(include_url=False, include_context=False)
        missing = [str(p["loc"][0]) for p in problems if p["type"] == "missing" and len(p["loc"]) == 1]
        unknown = [str(p["loc"][0]) for p in problems if p["type"] == "extra_forbidden" and len(p["loc"]) == 1]
        lines = []
        if missing:
            lines.append(f"Missing parameters: {', '.join(missing)}.")
        if unknown:
            free = [name for name in accepted if name not in arguments]
            lines.append(f"Got {', '.join(name + did_you_mean(name, free) for name in unknown)}.")
        for problem in problems:
            place = ".".join(str(step) for step in problem["loc"])
            if len(problem["loc"]) > 1 or str(problem["loc"][0]) not in (*missing, *unknown):
                lines.append(f"{place}: {problem['msg']}, got {_short(problem['input'])}.")
        lines.append(f"Parameters of {self.name}: {', '.join(accepted) or 'none'}.")
        return " ".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


class _Schema(GenerateJsonSchema):
    """JSON schema without the titles pydantic makes from names: tokens that tell the model nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    display_text: str | None = None,
    timeout: float | None = None,
    sequential: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    display_text: str | None = None,
    timeout: float | None = None,
    sequential: bool = False,
) -> Any:
    """Make a function a tool. Used as ``@tool`` or ``@tool(timeout=10)``.

    The schema comes from the type hints (anything pydantic understands), the descriptions from the docstring
    (Google, NumPy or reST style) or from ``Annotated[str, Field(description="…")]``. A parameter annotated
    `ToolContext` gets the context and is not part of the schema.

    Args:
        function: a `def` or an `async def`. A `def` runs in a thread of its own.
        name: what the model calls it, by default the function's name.
        description: what the model is told, by default the docstring without its sections.
        display_text: a label for people.
        timeout: seconds after which a call is given up and the model is told.
        sequential: whether it must not run beside other tools of the same message.

    Returns:
        A `Tool`, still callable like the function.

    Raises:
        ConfigurationError: a parameter has no type hint, one that cannot be resolved, or no place in a schema.
    """
    # Names local to the function that defines the tool are needed to resolve string annotations.
    namespace = dict(sys._getframe(1).f_locals)

    def make(target: Callable[..., Any]) -> Tool:
        return _make(
            target,
            namespace,
            name=name,
            description=description,
            display_text=display_text,
            timeout=timeout,
            sequential=sequential,
        )

    return make if function is None else make(function)


def as_tool(item: Tool | Callable[..., Any]) -> Tool:
    """A `Tool` as it is; a plain function made into one.

    Raises:
        ConfigurationError: it is neither, or not fit for a tool.
    """
    if isinstance(item, Tool):
        return item
    if callable(item):
        return _make(item, {})
    raise ConfigurationError(
        f"{item!r} is no tool: tools are functions, best decorated with @tool, got a {type(item).__name__}"
    )


def _make(
    target: Callable[..., Any],
    namespace: Mapping[str, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    display_text: str | None = None,
    timeout: float | None = None,
    sequential: bool = False,
) -> Tool:
    if not callable(target):
        raise ConfigurationError(f"@tool got {target!r}, a {type(target).__name__}; it decorates a function")
    function = _function_of(target)
    name = name or str(
        getattr(function if isinstance(target, functools.partial) else target, "__name__", type(target).__name__)
    )
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be a tool's name: letters, digits, _ and -, at most 64. Give it one with @tool(name='…')"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"tool {name!r} is a generator, which has no one answer; collect and return a list or a str"
        )
    if timeout is not None and timeout <= 0:
        raise ConfigurationError(f"tool {name!r}: timeout is {timeout!r}; it is a number of seconds above 0, or None")
    own = None if isinstance(target, functools.partial) else inspect.getdoc(target)
    doc = docstring_parser.parse(own or inspect.getdoc(function) or "")
    told = {param.arg_name: param.description for param in doc.params if param.description}
    fields: dict[str, Any] = {}
    context_parameter = None
    for parameter, annotation in _parameters(target, name, namespace):
        if _is_context(annotation):
            if context_parameter is not None:
                raise ConfigurationError(
                    f"tool {name!r} takes the context twice, as {context_parameter!r} and as {parameter.name!r}; once will do"
                )
            context_parameter = parameter.name
            continue
        # Fields have names of their own so that a parameter called "schema" or "copy" is no trouble.
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        extra: dict[str, Any] = {"alias": parameter.name}
        if parameter.name in told and not _has_description(annotation):
            extra["description"] = told[parameter.name]
        fields[f"p{len(fields)}"] = (annotation, Field(default, **extra))
    try:
        arguments = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = arguments.model_json_schema(schema_generator=_Schema)
    except (pydantic.PydanticUserError, pydantic.errors.PydanticInvalidForJsonSchema) as error:
        raise ConfigurationError(
            f"tool {name!r}: its parameters have no JSON schema ({str(error).splitlines()[0]}); "
            "use types a model can write as JSON, or a pydantic model"
        ) from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    if description is None:
        description = "\n\n".join(filter(None, (doc.short_description, doc.long_description)))
    return Tool(
        name=name,
        description=description,
        input_schema=schema,
        function=target,
        is_async=inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__),
        context_parameter=context_parameter,
        display_text=display_text,
        timeout=timeout,
        sequential=sequential,
        _arguments=arguments,
    )


def _parameters(
    target: Callable[..., Any], tool_name: str, namespace: Mapping[str, Any]
) -> Iterator[tuple[inspect.Parameter, Any]]:
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError as error:
        raise ConfigurationError(
            f"tool {tool_name!r}: {error}, so its parameters are not known; write a def that calls it"
        ) from error
    for parameter in parameters:
        if parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
            inspect.Parameter.POSITIONAL_ONLY,
        ):
            raise ConfigurationError(
                f"tool {tool_name!r}: parameter {parameter.name!r} is {parameter.kind.description}; "
                "a model gives arguments by name, so write ordinary parameters with type hints"
            )
        if parameter.annotation is inspect.Parameter.empty and parameter.name in ("self", "cls"):
            raise ConfigurationError(
                f"tool {tool_name!r} is a method without its object: make the tool from one, tool(thing.{tool_name})"
            )
        if parameter.annotation is inspect.Parameter.empty:
            raise ConfigurationError(
                f"tool {tool_name!r}: parameter {parameter.name!r} has no type hint; the model is told its "
                f"type: write {parameter.name}: str (or int, list[str], …; context: ToolContext for the context)"
            )
        yield parameter, _resolve(parameter, target, tool_name, namespace)


def _resolve(
    parameter: inspect.Parameter, target: Callable[..., Any], tool_name: str, namespace: Mapping[str, Any]
) -> Any:
    function = _function_of(target)
    own: dict[str, Any] = dict(getattr(function, "__globals__", {}))
    # What is local where the tool is made is seen by functions made there; others have names of their own.
    places = [namespace, own] if "<locals>" not in getattr(function, "__qualname__", "") else [own, namespace]
    names: dict[str, Any] = {"ToolContext": ToolContext}
    for place in places:
        names.update(place)
    if inspect.isfunction(function):
        names |= inspect.getclosurevars(function).nonlocals
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)[parameter.name]
    except Exception as error:
        raise ConfigurationError(
            f"tool {tool_name!r}: the type hint {parameter.annotation!r} of parameter {parameter.name!r} cannot "
            f"be resolved ({type(error).__name__}: {error}); import the name before the tool is defined"
        ) from error


def _function_of(target: Callable[..., Any]) -> Any:
    """The plain function behind a decorated one, a partial, a method or a callable object; it knows its names."""
    target = inspect.unwrap(target)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    if inspect.isclass(target):
        target = target.__init__
    elif not inspect.isroutine(target):
        target = type(target).__call__
    return getattr(target, "__func__", target)


def _is_context(annotation: Any) -> bool:
    if annotation is ToolContext:
        return True
    if typing.get_origin(annotation) is Annotated:
        return _is_context(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(arg is ToolContext for arg in typing.get_args(annotation))
    return False


def _has_description(annotation: Any) -> bool:
    if typing.get_origin(annotation) is not Annotated:
        return False
    return any(getattr(extra, "description", None) for extra in typing.get_args(annotation)[1:])
