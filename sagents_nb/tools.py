"""Tools: Python functions a model may call, described by their type hints and docstring."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, overload

import docstring_parser
import pydantic
from pydantic import ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from sagents_nb.errors import ConfigurationError, ToolError, did_you_mean, in_words
from sagents_nb.frozen import freeze, thaw
from sagents_nb.state import State

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names that every provider takes (Anthropic allows 128 characters, OpenAI 64)."""


class ToolContext:
    """What a tool gets to know besides its arguments: the three channels and where it runs.

    `scope` says for whom, ``tool_context`` is what the caller supplied (also as attributes and by
    ``context["key"]``), `state` is the conversation so far, ``state.metadata`` its saved notes. A name of the
    toolkit wins over an equal key in tool_context, in both spellings; ``context.tool_context["key"]`` has the
    caller's.

    Attributes:
        scope: the agent's scope, never saved.
        tool_context: the caller's mapping, read-only.
        state: the State at the beginning of this batch of calls.
        agent_id: the agent (in a sub-agent: the parent, whose events these are).
        agent_name: what people call the agent, if it has a name.
        sub_agent_id: the sub-agent in which the tool runs; None in an agent of its own.
        parent_agent_id: the agent that started the sub-agent; None in an agent of its own.
        conversation_id: the conversation, if it has an id.
        tool_call_id: this call.
        parent_middleware: the agent's middlewares.
        parent_tools: the agent's tools.
        otel_attributes: what the caller wants on every span of this agent, read-only.
    """

    __slots__ = (
        "_cancelled",
        "_publish",
        "agent_id",
        "agent_name",
        "conversation_id",
        "otel_attributes",
        "parent_agent_id",
        "parent_middleware",
        "parent_tools",
        "scope",
        "state",
        "sub_agent_id",
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
        agent_name: str | None = None,
        sub_agent_id: str | None = None,
        parent_agent_id: str | None = None,
        parent_middleware: tuple[Any, ...] = (),
        parent_tools: tuple[Tool, ...] = (),
        otel_attributes: Mapping[str, Any] | None = None,
        publish: Callable[[str, Mapping[str, Any]], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self.scope = scope
        self.tool_context = types.MappingProxyType(dict(tool_context))
        self.state = state
        self.agent_id = agent_id
        self.agent_name = agent_name
        self.sub_agent_id = sub_agent_id
        self.parent_agent_id = parent_agent_id
        self.conversation_id = state.conversation_id
        self.tool_call_id = tool_call_id
        self.parent_middleware = parent_middleware
        self.parent_tools = parent_tools
        self.otel_attributes: Mapping[str, Any] = types.MappingProxyType(dict(otel_attributes or {}))
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
    "agent_name",
    "sub_agent_id",
    "parent_agent_id",
    "conversation_id",
    "tool_call_id",
    "parent_middleware",
    "parent_tools",
    "otel_attributes",
    "cancelled",
    "publish",
)


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A function the model may call. Made by `tool` or `Tool.from_schema`; calling it calls the function.

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
        thread: ``"main"`` when it runs on the main thread; None for a thread of its own.
        parse_args: what checks and converts the arguments in place of the schema.
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
    thread: Literal["main"] | None = None
    parse_args: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None = None
    _arguments: type[pydantic.BaseModel] | None = field(default=None, repr=False)
    _validator: Any = field(default=None, repr=False)

    @classmethod
    def from_schema(
        cls,
        *,
        name: str,
        input_schema: Mapping[str, Any],
        function: Callable[..., Any],
        description: str = "",
        display_text: str | None = None,
        timeout: float | None = None,
        sequential: bool = False,
        thread: Literal["main"] | None = None,
        parse_args: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None = None,
        context_parameter: str | None = None,
    ) -> Tool:
        """Make a tool whose arguments are described by a JSON schema of your own.

        Arguments are checked against the schema before the function is called with them by name, unconverted: what the
        schema calls a date-time is a str. A name that the schema does not have is refused, unless the schema says
        something else about ``additionalProperties``.

        Args:
            name: what the model calls it.
            input_schema: JSON schema (draft 2020-12, or what its ``$schema`` says) of an object.
            function: a `def` or an `async def`. A `def` runs in a thread of its own.
            description: what the model is told about it.
            display_text: a label for people.
            timeout: seconds after which a call is given up and the model is told.
            sequential: whether it must not run beside other tools of the same message.
            thread: ``"main"`` to run on the main thread, see `tool`.
            parse_args: called with the arguments instead of checking them; returns those to call the function with, or
                None for these. The text of a ValueError or `ToolError` that it raises is what the model is told.
            context_parameter: name of the parameter that gets the `ToolContext`, where no annotation of the function
                says it.

        Raises:
            ConfigurationError: the schema is none, or does not fit the function.
        """
        _check_options(name, function, timeout, thread)
        schema, validator = _compile(name, input_schema)
        if parse_args is not None and (not callable(parse_args) or inspect.iscoroutinefunction(parse_args)):
            raise ConfigurationError(
                f"tool {name!r}: parse_args is {parse_args!r}; it is a plain function that takes the dict of arguments "
                "and returns one"
            )
        context_parameter = _fit(name, function, schema, context_parameter, parses=parse_args is not None)
        return cls(
            name=name,
            description=description,
            input_schema=schema,
            function=function,
            is_async=_is_async(function),
            context_parameter=context_parameter,
            display_text=display_text,
            timeout=timeout,
            sequential=sequential,
            thread=thread,
            parse_args=parse_args,
            _validator=validator,
        )

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
        if self.parse_args is not None:
            return self._parsed(self.parse_args, plain)
        if self._arguments is not None:
            return self._converted(self._arguments, plain)
        if self._validator is not None:
            self._check(plain)
        return plain

    def _parsed(
        self, parse_args: Callable[[dict[str, Any]], Mapping[str, Any] | None], plain: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            parsed = parse_args(plain)
        except ValueError as error:
            raise ToolError(in_words(error)) from error
        if parsed is None:
            return plain
        if not isinstance(parsed, Mapping):
            raise ToolError(
                f"parse_args of {self.name} returned unexpected shape: a {type(parsed).__name__}, not a dict of arguments"
            )
        return dict(parsed)

    def _converted(self, model: type[pydantic.BaseModel], plain: dict[str, Any]) -> dict[str, Any]:
        try:
            checked = model.model_validate(plain)
        except pydantic.ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            missing = [str(p["loc"][0]) for p in problems if p["type"] == "missing" and len(p["loc"]) == 1]
            unknown = [str(p["loc"][0]) for p in problems if p["type"] == "extra_forbidden" and len(p["loc"]) == 1]
            others = [
                f"{_place(problem['loc'])}: {problem['msg']}, got {_short(problem['input'])}"
                for problem in problems
                if len(problem["loc"]) > 1 or str(problem["loc"][0]) not in (*missing, *unknown)
            ]
            raise ToolError(self._explain(plain, missing, unknown, others)) from None
        fields = model.model_fields
        return {str(fields[name].alias): getattr(checked, name) for name in checked.model_fields_set}

    def _check(self, plain: dict[str, Any]) -> None:
        """Check arguments against a schema that was written by hand."""
        from jsonschema.exceptions import best_match

        missing = [name for name in self.input_schema.get("required", ()) if name not in plain]
        closed = _is_closed(self.input_schema)
        unknown = [name for name in plain if name not in self.input_schema["properties"]] if closed else []
        told = [["required"], ["additionalProperties"]] if closed else [["required"]]
        others = []
        for problem in sorted(self._validator.iter_errors(plain), key=lambda problem: _place(problem.absolute_path)):
            if list(problem.schema_path) in told:
                continue
            best = best_match([problem])  # of several alternatives: what is wrong with the one that fits best
            place = _place(best.absolute_path)
            others.append(f"{place}: {_cut(best.message, 200)}" if place else _cut(best.message, 200))
        if missing or unknown or others:
            raise ToolError(self._explain(plain, missing, unknown, others))

    def _explain(self, arguments: Mapping[str, Any], missing: list[str], unknown: list[str], others: list[str]) -> str:
        accepted = list(self.input_schema.get("properties", {}))
        lines = []
        if missing:
            lines.append(f"Missing parameters: {', '.join(missing)}.")
        if unknown:
            free = [name for name in accepted if name not in arguments]
            lines.append(f"Got {', '.join(name + did_you_mean(name, free) for name in unknown)}.")
        lines += [f"{other}." for other in others]
        lines.append(f"Parameters of {self.name}: {', '.join(accepted) or 'none'}.")
        return " ".join(lines)


def _place(steps: Iterable[Any]) -> str:
    return ".".join(str(step) for step in steps)


def _short(value: Any) -> str:
    return _cut(repr(value), 80)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Whether a schema written by hand names all the parameters there are."""
    if "properties" not in schema or "patternProperties" in schema:
        return False
    if "additionalProperties" in schema:
        return schema["additionalProperties"] is False
    return not schema.keys() & {"unevaluatedProperties", "$ref", "allOf", "anyOf", "oneOf", "if"}


def _compile(name: str, schema: Any) -> tuple[Mapping[str, Any], Any]:
    """A JSON schema of an object, frozen, and what checks arguments against it.

    Raises:
        ConfigurationError: it is none; the text says where.
    """
    # 15 ms, but seconds where JupyterLab is installed: it brings a grammar of addresses, which this compiles. Here it is
    # the one who makes the tool who waits, not the agents.
    import jsonschema
    import referencing
    import referencing.exceptions
    import referencing.jsonschema

    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ConfigurationError(
            f"tool {name!r}: input_schema describes the arguments together, so it is a JSON schema of an object: "
            "{'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}; "
            f"got {_short(schema)}"
        )
    try:
        frozen: Mapping[str, Any] = freeze(dict(schema), path="input_schema")
    except ValueError as error:
        raise ConfigurationError(f"tool {name!r}: {error}") from error
    kind = jsonschema.validators.validator_for(frozen, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(frozen)
    except jsonschema.SchemaError as error:
        where = "".join(f"[{step!r}]" for step in error.absolute_path)
        raise ConfigurationError(f"tool {name!r}: input_schema{where}: {_cut(error.message, 200)}") from error
    # An empty registry: with jsonschema's own, a $ref to an address would be fetched from there.
    registry: referencing.Registry[Any] = referencing.Registry()
    resource = referencing.Resource.from_contents(frozen, referencing.jsonschema.DRAFT202012)
    resolver = registry.resolver_with_root(resource)
    for reference in _references(frozen):
        try:
            resolver.lookup(reference)
        except referencing.exceptions.Unresolvable as error:
            raise ConfigurationError(
                f"tool {name!r}: the $ref {reference!r} leads nowhere in input_schema; put what it means under "
                "'$defs' and refer to '#/$defs/Name'"
            ) from error
    return frozen, kind(frozen, registry=registry)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)


def _fit(
    name: str, function: Callable[..., Any], schema: Mapping[str, Any], context_parameter: str | None, *, parses: bool
) -> str | None:
    """Check that a function can be called as a schema written by hand says.

    Args:
        name: of the tool.
        function: what is to be called.
        schema: of the arguments.
        context_parameter: the one that gets the context, if the caller said so.
        parses: whether ``parse_args`` stands in between; then nobody knows what it makes of the arguments.

    Returns:
        Name of the parameter that gets the context, if there is one.

    Raises:
        ConfigurationError: the function takes less, or needs more, than the schema has.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return context_parameter  # a function of C that does not tell
    if context_parameter is None:
        context_parameter = next((each.name for each in parameters if _is_named_context(each.annotation)), None)
    given = [] if parses else [*schema.get("properties", {})]
    if context_parameter is not None:
        if context_parameter in schema.get("properties", {}):
            raise ConfigurationError(
                f"tool {name!r}: the parameter {context_parameter!r} gets the context, so input_schema cannot have it too"
            )
        given.append(context_parameter)
    named = {each.name: each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    foreign = next((each for each in given if each not in named and not takes_all), None)
    if foreign is not None:
        raise ConfigurationError(
            f"tool {name!r}: its function takes no parameter {foreign!r}{did_you_mean(foreign, named)}; it is called "
            "with the names of input_schema: write one, or **arguments for all of them"
        )
    needed = (each.name for each in named.values() if each.default is each.empty and each.name not in given)
    lacking = None if parses else next(needed, None)
    if lacking is not None:
        raise ConfigurationError(
            f"tool {name!r}: its function needs the parameter {lacking!r}, which input_schema does not have"
            f"{did_you_mean(lacking, given)}; add it, or give the parameter a default"
        )
    return context_parameter


def _is_named_context(annotation: Any) -> bool:
    """`_is_context` without resolving names: the other hints of such a function mean nothing to us."""
    if isinstance(annotation, str):
        return "ToolContext" in re.findall(r"\w+", annotation)
    return _is_context(annotation)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _check_options(name: str, function: Any, timeout: float | None, thread: str | None) -> None:
    """Check what all tools have.

    Raises:
        ConfigurationError: something does not fit; the text says what to write.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be a tool's name: letters, digits, _ and -, at most 64. Give it one with @tool(name='…')"
        )
    if not callable(function):
        raise ConfigurationError(f"tool {name!r}: its function is {function!r}, which cannot be called")
    plain = _function_of(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigurationError(
            f"tool {name!r} is a generator, which has no one answer; collect and return a list or a str"
        )
    if timeout is not None and timeout <= 0:
        raise ConfigurationError(f"tool {name!r}: timeout is {timeout!r}; it is a number of seconds above 0, or None")
    if thread not in (None, "main"):
        raise ConfigurationError(
            f"tool {name!r}: thread is {thread!r}; it is 'main' for the main thread, or None for a thread of its own"
        )
    if thread == "main" and _is_async(function):
        raise ConfigurationError(
            f"tool {name!r} is an `async def`, which runs on the loop of its run; thread='main' is for a plain def"
        )


class _Schema(GenerateJsonSchema):
    """JSON schema without the titles pydantic makes from names: tokens that tell the model nothing."""

    # A default that JSON cannot hold is the function's own business; the parameter is optional all the same.
    ignored_warning_kinds = GenerateJsonSchema.ignored_warning_kinds | {"non-serializable-default"}

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
    thread: Literal["main"] | None = None,
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
    thread: Literal["main"] | None = None,
) -> Any:
    """Make a function a tool. Used as ``@tool`` or ``@tool(timeout=10)``.

    The schema comes from the type hints (anything pydantic understands), the descriptions from the docstring
    (Google, NumPy or reST style), from ``Annotated[str, Field(description="…")]`` or from ``Annotated[str, "…"]``. A
    parameter annotated `ToolContext` gets the context and is not part of the schema.

    Args:
        function: a `def` or an `async def`. A `def` runs in a thread of its own.
        name: what the model calls it, by default the function's name.
        description: what the model is told, by default the docstring without its sections.
        display_text: a label for people.
        timeout: seconds after which a call is given up and the model is told.
        sequential: whether it must not run beside other tools of the same message.
        thread: ``"main"`` for a `def` that has to run on the main thread (drawing, a database handle of a cell). It
            runs while a cell or a script waits for the agent, or when the kernel is idle, and waits while a cell is
            busy.

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
            thread=thread,
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
    thread: Literal["main"] | None = None,
) -> Tool:
    if not callable(target):
        raise ConfigurationError(f"@tool got {target!r}, a {type(target).__name__}; it decorates a function")
    function = _function_of(target)
    name = name or str(
        getattr(function if isinstance(target, functools.partial) else target, "__name__", type(target).__name__)
    )
    _check_options(name, target, timeout, thread)
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
        if isinstance(parameter.default, FieldInfo):
            raise ConfigurationError(
                f"tool {name!r}: the default of parameter {parameter.name!r} is a Field, which the function itself would "
                f"get; write {parameter.name}: Annotated[…, Field(…)] = the default"
            )
        # Fields have names of their own so that a parameter called "schema" or "copy" is no trouble.
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        extra: dict[str, Any] = {"alias": parameter.name}
        words = _said_of(annotation) or told.get(parameter.name)
        if words is not None:
            extra["description"] = words
        fields[f"p{len(fields)}"] = (annotation, Field(default, **extra))
    try:
        arguments, schema = _model(name, fields)
    except _NO_SCHEMA as error:
        raise ConfigurationError(_no_schema(name, fields, error)) from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    if description is None:
        description = "\n\n".join(filter(None, (doc.short_description, doc.long_description)))
    return Tool(
        name=name,
        description=description,
        input_schema=schema,
        function=target,
        is_async=_is_async(target),
        context_parameter=context_parameter,
        display_text=display_text,
        timeout=timeout,
        sequential=sequential,
        thread=thread,
        _arguments=arguments,
    )


_NO_SCHEMA = (pydantic.PydanticUserError, pydantic.errors.PydanticInvalidForJsonSchema)


def _model(name: str, fields: Mapping[str, Any]) -> tuple[type[pydantic.BaseModel], dict[str, Any]]:
    made: type[pydantic.BaseModel] = create_model(
        f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **dict(fields)
    )
    return made, made.model_json_schema(schema_generator=_Schema)


def _no_schema(name: str, fields: Mapping[str, Any], error: Exception) -> str:
    """Why a function's parameters have no schema, naming the one that is to blame."""
    who = "its parameters have"
    for annotation, info in fields.values():
        try:
            _model(name, {"p": (annotation, info)})
        except _NO_SCHEMA as found:
            error = found
            hint = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            who = f"the type hint {hint!r} of parameter {info.alias!r} has"
            break
    return (
        f"tool {name!r}: {who} no JSON schema ({str(error).splitlines()[0]}); "
        "use types a model can write as JSON, or a pydantic model"
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


def _said_of(annotation: Any) -> str | None:
    """What the hint itself says about its parameter: ``Annotated[str, "…"]`` or ``Annotated[str, Field(description="…")]``."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    extras = typing.get_args(annotation)[1:]
    told = [extra if isinstance(extra, str) else getattr(extra, "description", None) for extra in extras]
    return next((words for words in reversed(told) if isinstance(words, str)), None)
