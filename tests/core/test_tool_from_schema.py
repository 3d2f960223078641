"""A tool whose JSON schema was written by hand: what is checked, what the function gets, what the model is told."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from sagents_nb import Agent, ConfigurationError, ScriptedModel, Tool, ToolCall, ToolContext, ToolError
from sagents_nb.events import ToolEntered

READ = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "which file"},
        "lines": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["text", "bytes"]},
        "ranges": {"type": "array", "items": {"$ref": "#/$defs/Range"}},
        "where": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Range"}]},
    },
    "required": ["path"],
    "$defs": {
        "Range": {
            "type": "object",
            "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}},
            "required": ["start"],
            "additionalProperties": False,
        }
    },
}


class Body:
    """A tool's function that says what it was given."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []

    def __call__(self, **arguments: Any) -> str:
        self.given.append(arguments)
        return "ran"


def reader(body: Callable[..., Any] | None = None, **options: Any) -> Tool:
    return Tool.from_schema(
        **{"name": "read", "description": "Read a file.", "input_schema": READ, "function": body or Body()} | options
    )


async def call(made: Tool, arguments: dict[str, Any], **options: Any) -> str:
    """What the model is told when it calls the tool."""
    agent = Agent(model=ScriptedModel([ToolCall(made.name, arguments), "done"]), tools=[made], **options)
    result = await agent.execute("go")
    return result.state.messages[2].tool_results[0].text


async def test_the_model_is_given_the_schema_as_it_was_written_and_the_function_the_arguments() -> None:
    body = Body()
    model = ScriptedModel([ToolCall("read", {"path": "/a", "ranges": [{"start": 1}]}), "done"])
    await Agent(model=model, tools=[reader(body)]).execute("go")
    assert body.given == [{"path": "/a", "ranges": [{"start": 1}]}]
    told = model.requests[0].tools[0]
    assert (told.name, told.description, told.input_schema) == ("read", "Read a file.", READ)


def test_the_function_gets_a_copy_of_its_own() -> None:
    ranges = [{"start": 1}]
    checked = reader().validate({"path": "/a", "ranges": ranges})
    checked["ranges"][0]["start"] = 2
    assert ranges == [{"start": 1}]


def test_who_changes_the_schema_afterwards_does_not_change_the_tool() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    made = reader(input_schema=schema)
    schema["properties"]["a"]["type"] = "integer"
    assert made.validate({"a": "text"}) == {"a": "text"}
    assert made.input_schema["properties"]["a"] == {"type": "string"}


PARAMETERS = " Parameters of read: path, lines, mode, ranges, where."

TOLD: list[tuple[dict[str, Any], str]] = [
    ({"file_path": "/a"}, "Missing parameters: path. Got file_path (did you mean 'path'?)."),
    ({}, "Missing parameters: path."),
    ({"path": "/a", "Lines": 3}, "Got Lines (did you mean 'lines'?)."),
    ({"path": 1}, "path: 1 is not of type 'string'."),
    ({"path": None}, "path: None is not of type 'string'."),
    ({"path": "/a", "lines": 0}, "lines: 0 is less than the minimum of 1."),
    ({"path": "/a", "lines": "3"}, "lines: '3' is not of type 'integer'."),
    ({"path": "/a", "lines": True}, "lines: True is not of type 'integer'."),
    ({"path": "/a", "mode": "fast"}, "mode: 'fast' is not one of ['text', 'bytes']."),
    ({"path": "/a", "ranges": [{"start": 1}, {"end": 2}]}, "ranges.1: 'start' is a required property."),
    ({"path": "/a", "ranges": [{"start": "1"}]}, "ranges.0.start: '1' is not of type 'integer'."),
    ({"path": "/a", "where": {"start": "x"}}, "where.start: 'x' is not of type 'integer'."),
    (
        {"lines": 0, "mode": 1, "more": 2},
        (
            "Missing parameters: path. Got more. lines: 0 is less than the minimum of 1. "
            "mode: 1 is not one of ['text', 'bytes']."
        ),
    ),
    ({"path": ["x" * 500]}, f"path: ['{'x' * 197}…."),
]


@pytest.mark.parametrize(("arguments", "words"), TOLD)
async def test_a_wrong_call_is_answered_in_words_and_the_body_does_not_run(
    arguments: dict[str, Any], words: str
) -> None:
    body = Body()
    assert await call(reader(body), arguments) == words + PARAMETERS
    assert body.given == []


async def test_without_the_check_the_body_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tool, "_check", lambda self, arguments: None)
    body = Body()
    assert await call(reader(body), {"file_path": "/a"}) == "ran"
    assert body.given == [{"file_path": "/a"}]


A = {"a": {"type": "string"}}

MORE_NAMES: list[tuple[dict[str, Any], bool]] = [
    ({"properties": A}, False),
    ({"properties": {}}, False),
    ({"properties": A, "additionalProperties": False}, False),
    ({"properties": A, "additionalProperties": True}, True),
    ({"properties": A, "additionalProperties": {"type": "integer"}}, True),
    ({"properties": A, "additionalProperties": {"type": "string"}}, False),
    ({"properties": A, "patternProperties": {"^m": {}}}, True),
    ({"properties": A, "patternProperties": {"^m": {}}, "additionalProperties": False}, True),
    ({"properties": A, "patternProperties": {"^x": {}}, "additionalProperties": False}, False),
    ({"properties": A, "allOf": [{"properties": {"more": {}}}]}, True),
    ({"properties": A, "allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, False),
    ({}, True),  # it says nothing about names
]


@pytest.mark.parametrize(("schema", "taken"), MORE_NAMES)
def test_a_name_the_schema_does_not_have_is_refused_unless_it_says_otherwise(
    schema: dict[str, Any], taken: bool
) -> None:
    made = reader(input_schema={"type": "object", **schema})
    if taken:
        assert made.validate({"more": 1}) == {"more": 1}
    else:
        with pytest.raises(ToolError):
            made.validate({"more": 1})


BY_PARTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"allOf": [{"required": ["a"]}]}, {}, "'a' is a required property. Parameters of read: none."),
    ({"allOf": [{"properties": {"a": {"type": "string"}}}]}, {"a": 1}, "a: 1 is not of type 'string'."),
    ({"properties": A, "minProperties": 1}, {}, "{} should be non-empty. Parameters of read: a."),
    ({"required": ["a"]}, {"b": 1}, "Missing parameters: a. Parameters of read: none."),
]


@pytest.mark.parametrize(("schema", "arguments", "words"), BY_PARTS)
def test_what_other_parts_of_the_schema_want_is_told_too(
    schema: dict[str, Any], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError) as caught:
        reader(input_schema={"type": "object", **schema}).validate(arguments)
    assert words in str(caught.value)


# What stands between the arguments and the function.


def need_device(arguments: dict[str, Any]) -> dict[str, Any]:
    if "device_task_id" not in arguments:
        raise ValueError("device_task_id is required")
    return {"device": int(arguments["device_task_id"])}


def refuse(arguments: dict[str, Any]) -> dict[str, Any]:
    raise ToolError("Ask for the device first.")


def say_nothing(arguments: dict[str, Any]) -> dict[str, Any]:
    raise ValueError


def break_down(arguments: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("no")


PARSED: list[tuple[Callable[[dict[str, Any]], Any], dict[str, Any], str, list[dict[str, Any]]]] = [
    (need_device, {"device_task_id": "7"}, "ran", [{"device": 7}]),
    (need_device, {"path": "/a"}, "device_task_id is required", []),
    (refuse, {}, "Ask for the device first.", []),
    (say_nothing, {}, "(the tool failed and said nothing)", []),
    (break_down, {}, "ERROR: (RuntimeError) no", []),
    (lambda arguments: None, {"anything": 1}, "ran", [{"anything": 1}]),
    (
        lambda arguments: [1],
        {},
        "parse_args of read returned unexpected shape: a list, not a dict of arguments",
        [],
    ),
]


@pytest.mark.parametrize(("parse", "arguments", "told", "given"), PARSED)
async def test_parse_args_checks_and_converts_in_place_of_the_schema(
    parse: Callable[[dict[str, Any]], Any], arguments: dict[str, Any], told: str, given: list[dict[str, Any]]
) -> None:
    body = Body()
    heard: list[Any] = []
    agent = Agent(
        model=ScriptedModel([ToolCall("read", arguments), "done"]),
        tools=[reader(body, parse_args=parse)],
        callbacks={"on_tool_response_created": heard.append},
    )
    result = await agent.execute("go")
    [answer] = result.state.messages[2].tool_results
    assert (answer.text, answer.is_error, body.given) == (told, told != "ran", given)
    assert len(heard) == 1
    assert len([event for event in result.events if isinstance(event, ToolEntered)]) == len(given)


# The function.


async def test_the_context_is_known_by_its_annotation_or_by_name() -> None:
    def typed(path: str, context: ToolContext) -> str:
        return f"{path} for {context.scope}"

    def named(path, who):  # type: ignore[no-untyped-def]
        return f"{path} for {who.scope}"

    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    assert await call(reader(typed, input_schema=schema), {"path": "/a"}, scope="ann") == "/a for ann"
    assert (
        await call(reader(named, input_schema=schema, context_parameter="who"), {"path": "/a"}, scope=2) == "/a for 2"
    )
    body = Body()
    await call(reader(body, context_parameter="context"), {"path": "/a"})
    assert isinstance(body.given[0]["context"], ToolContext)


async def test_hints_that_nobody_can_resolve_do_not_matter() -> None:
    def look(path: Nowhere, context: ToolContext | None = None) -> str:  # type: ignore[name-defined]  # noqa: F821
        return f"{path} {context is not None}"

    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    assert await call(reader(look, input_schema=schema), {"path": "/a"}) == "/a True"


async def test_an_async_function_and_options_are_taken_as_with_the_decorator() -> None:
    async def body(**arguments: Any) -> str:
        return "async"

    made = reader(body, display_text="Reading", timeout=3, sequential=True)
    assert (made.display_text, made.timeout, made.sequential, made.thread, made.is_async) == (
        *("Reading", 3, True, None),
        True,
    )
    assert await call(made, {"path": "/a"}) == "async"
    assert reader(thread="main").thread == "main"


def test_a_tool_from_a_schema_stays_callable() -> None:
    assert reader()(path="/a") == "ran"


def _takes_file(file: str) -> None: ...
def _takes_more(path: str, mode: str, lines: int = 1, ranges: Any = None, where: Any = None) -> None: ...
def _needs(path: str, mood: str, **rest: Any) -> None: ...
def _generates(**arguments: Any) -> Any:
    yield 1


async def _parse(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


PATH_ONLY = {"type": "object", "properties": {"path": {"type": "string"}}}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input_schema": {"properties": {}}}, "tool 'read': input_schema describes the arguments together, so it is"),
    ({"input_schema": {"type": "string"}}, "got {'type': 'string'}"),
    ({"input_schema": None}, "got None"),
    (
        {"input_schema": {"type": "object", "properties": {"a": {"type": "text"}}}},
        "tool 'read': input_schema['properties']['a']['type']: 'text' is not valid under any of the given schemas",
    ),
    (
        {"input_schema": {"type": "object", "properties": {"a": {"enum": [{1, 2}]}}}},
        "tool 'read': input_schema['properties']['a']['enum'][0] is a set, which is not JSON",
    ),
    (
        {"input_schema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
        "the $ref '#/$defs/A' leads nowhere in input_schema; put what it means under '$defs'",
    ),
    (
        {"input_schema": {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}},
        "the $ref 'https://example.com/a.json' leads nowhere in input_schema",
    ),
    (
        {"function": _takes_file, "input_schema": PATH_ONLY},
        "tool 'read': its function takes no parameter 'path'; it is called with the names of input_schema",
    ),
    (
        {"function": _takes_more, "input_schema": PATH_ONLY},
        "tool 'read': its function needs the parameter 'mode', which input_schema does not have; add it, or give",
    ),
    ({"function": _needs}, "needs the parameter 'mood', which input_schema does not have (did you mean 'mode'?)"),
    (
        {"function": _takes_file, "input_schema": PATH_ONLY, "parse_args": need_device, "context_parameter": "context"},
        "its function takes no parameter 'context'",
    ),
    ({"context_parameter": "path"}, "'path' gets the context, so input_schema cannot have it too"),
    ({"parse_args": 3}, "parse_args is 3; it is a plain function that takes the dict of arguments"),
    ({"parse_args": _parse}, "it is a plain function that takes the dict of arguments and returns one"),
    ({"function": 3}, "tool 'read': its function is 3, which cannot be called"),
    ({"function": _generates}, "tool 'read' is a generator, which has no one answer"),
    ({"name": "two words"}, "'two words' cannot be a tool's name"),
    ({"name": None}, "None cannot be a tool's name"),
    ({"timeout": 0}, "tool 'read': timeout is 0; it is a number of seconds above 0, or None"),
    ({"thread": "worker"}, "tool 'read': thread is 'worker'; it is 'main' for the main thread"),
    ({"function": _parse, "thread": "main"}, "tool 'read' is an `async def`, which runs on the loop of its run"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_together_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        reader(**options)
    assert words in str(caught.value)


async def test_what_an_address_in_the_schema_means_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.tools._references", lambda schema: [])  # as if the refusal were not there
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it was fetched"))
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/a.json"}}}
    assert "Unresolvable" in await call(reader(input_schema=schema), {"a": 1})
