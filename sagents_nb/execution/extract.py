"""Structured results: a tool whose arguments are the result."""

from __future__ import annotations

from typing import Any

import pydantic

from sagents_nb.errors import AgentError
from sagents_nb.execution.result import RunResult
from sagents_nb.frozen import freeze
from sagents_nb.state import State
from sagents_nb.tools import Tool

NAME = "give_result"
"""Name of the tool by which the model hands over a result."""

MAX_RUNS = 5
"""Model calls of an extraction, unless said otherwise; the reference's limit."""


def result_tool(kind: Any, name: str = NAME) -> Tool:
    """A tool that takes a value of a type as its arguments, and gives it back to the program.

    Args:
        kind: a pydantic model, or anything else that pydantic can check.
        name: what the model calls it.
    """
    adapter = pydantic.TypeAdapter(kind)
    schema = adapter.json_schema()
    wrapped = schema.get("type") != "object" or "properties" not in schema
    if wrapped:
        definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        schema = {"type": "object", "properties": {"value": schema}, "required": ["value"], **definitions}

    def parse(arguments: dict[str, Any]) -> dict[str, Any]:
        given = arguments.get("value") if wrapped else arguments
        try:
            return {"value": adapter.validate_python(given)}
        except pydantic.ValidationError as error:
            raise ValueError(_words(error)) from error

    async def give(value: Any) -> tuple[str, Any]:
        return "Recorded.", value

    # Not `Tool.from_schema`: pydantic checks the arguments here, and the import of jsonschema, which takes seconds beside
    # JupyterLab, would hold up the loop.
    return Tool(
        name=name,
        description="Hand over the result. Call it once, with all that is known.",
        input_schema=freeze(schema),
        function=give,
        is_async=True,
        parse_args=parse,
    )


def _words(error: pydantic.ValidationError) -> str:
    lines = [
        f"{'.'.join(str(step) for step in problem['loc']) or 'the result'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return "; ".join(lines) + ". Call the tool again with values that fit."


def no_target(state: State) -> AgentError:
    """The error for an extraction that does not say what it is to give."""
    return AgentError(
        "extract needs what to give: a type, as in agent.extract(text, Person), or tool='name' of one of the agent's "
        "tools",
        type="extract_invalid_opts",
        state=state,
    )


def extracted(result: RunResult, *, own: bool) -> Any:
    """What an extraction gives: the tool's value for the program, else the model's arguments.

    Args:
        result: of the run.
        own: whether the tool is `result_tool`, whose value may be None.
    """
    if own:
        return result.require_tool_result().processed
    value = result.require_tool_result().processed
    return result.tool_arguments() if value is None else value
