"""From a function to what the model is told about it."""

from __future__ import annotations

import enum
import functools
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from sagents_nb import ConfigurationError, ToolContext, tool
from sagents_nb.tools import as_tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


def test_the_schema_comes_from_the_type_hints_and_the_docstring() -> None:
    @tool
    def paint(
        color: Color,
        where: Point,
        mode: Literal["fast", "slow"] = "fast",
        tags: list[str] | None = None,
        note: Annotated[str, Field(description="said by the hint")] = "",
    ) -> str:
        """Paint a point.

        It takes a while.

        Args:
            color: which color
            where: which point
            note: said by the docstring
        """
        return "painted"

    schema = paint.input_schema
    assert paint.name == "paint"
    assert paint.description == "Paint a point.\n\nIt takes a while."
    assert schema["type"] == "object"
    assert schema["required"] == ["color", "where"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["mode"] == {"default": "fast", "enum": ["fast", "slow"], "type": "string"}
    assert schema["properties"]["note"]["description"] == "said by the hint"
    assert schema["properties"]["color"]["description"] == "which color"
    assert schema["$defs"]["Color"]["enum"] == ["red", "blue"]
    assert schema["$defs"]["Point"]["required"] == ["x"]
    assert "title" not in schema["properties"]["mode"]
    checked = paint.validate({"color": "red", "where": {"x": "3"}})
    assert checked == {"color": Color.RED, "where": Point(x=3)}


def test_parameters_may_be_called_what_pydantic_calls_its_own() -> None:
    @tool
    def odd(schema: str, copy: int, json: bool, model_config: str, self_: str = "s") -> str:
        "Odd names."
        return schema

    assert list(odd.input_schema["properties"]) == ["schema", "copy", "json", "model_config", "self_"]
    given = {"schema": "s", "copy": 1, "json": True, "model_config": "m"}
    assert odd.validate(given) == given


class Service:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, question: str) -> str:
        "Ask the service."
        self.asked.append(question)
        return "answer"

    async def __call__(self, question: str) -> str:
        return question


def test_methods_partials_and_callable_objects_are_tools_too() -> None:
    service = Service()
    assert as_tool(service.ask).validate({"question": "q"}) == {"question": "q"}
    assert as_tool(service.ask)("why?") == "answer"
    assert tool(name="call")(service).is_async

    def add(a: int, b: int) -> int:
        "Add."
        return a + b

    plus_one = tool(name="plus_one")(functools.partial(add, b=1))
    assert plus_one.input_schema["required"] == ["a"]
    assert plus_one(a=2) == 3


def test_the_context_is_known_by_its_annotation_in_every_form() -> None:
    class Local:
        pass

    @tool
    def one(context: ToolContext, a: int) -> str:
        return "1"

    @tool
    def two(a: int, ctx: ToolContext | None = None) -> str:
        return "2"

    @tool
    def three(*, c: Annotated[ToolContext, "the context"], a: int) -> str:
        return "3"

    assert [each.context_parameter for each in (one, two, three)] == ["context", "ctx", "c"]
    assert [list(each.input_schema["properties"]) for each in (one, two, three)] == [["a"], ["a"], ["a"]]


def _no_hint(city) -> str:  # type: ignore[no-untyped-def]
    return str(city)


def _rest(*cities: str) -> str:
    return ""


def _unresolved(city: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def _no_schema(city: Service) -> str:
    return ""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: tool(_no_hint),
            "tool '_no_hint': parameter 'city' has no type hint; the model is told its type: write city: str",
        ),
        (lambda: tool(_rest), "parameter 'cities' is variadic positional; a model gives arguments by name"),
        (lambda: tool(_unresolved), "the type hint 'Nowhere' of parameter 'city' cannot be resolved (NameError"),
        (
            lambda: tool(_no_schema),
            "tool '_no_schema': the type hint 'tests.core.test_tools.Service' of parameter 'city' has no JSON schema",
        ),
        (lambda: tool(lambda: "x"), "'<lambda>' cannot be a tool's name"),
        (lambda: tool(name="no spaces")(_rest), "'no spaces' cannot be a tool's name"),
        (lambda: as_tool(3), "3 is no tool: tools are functions, best decorated with @tool, got a int"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_fit_for_a_tool_is_refused_with_what_to_write(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert words in str(caught.value)
