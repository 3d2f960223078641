"""From a function to what the model is told about it."""

from __future__ import annotations

import enum
import functools
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from sagents_nb import Agent, ConfigurationError, Middleware, ScriptedModel, State, ToolCall, ToolContext, tool
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


TOOLKIT: dict[str, Any] = {
    "scope": "ann",
    "agent_id": "agent-1",
    "agent_name": "Ann's",
    "sub_agent_id": None,
    "parent_agent_id": None,
    "conversation_id": "c-1",
    "tool_call_id": "call-1",
    "otel_attributes": {},
    "cancelled": False,
}
"""What a tool is told by the toolkit, as far as it can be written down."""

OBJECTS = ("state", "tool_context", "parent_middleware", "parent_tools", "publish")


class Quiet(Middleware):
    pass


async def test_every_name_of_the_toolkit_wins_over_an_equal_key_of_the_caller() -> None:
    own = dict.fromkeys((*TOOLKIT, *OBJECTS), "spoofed") | {"user_id": 42, "tenant": "acme"}
    seen: list[ToolContext] = []
    during: list[Any] = []

    @tool
    async def look(context: ToolContext) -> str:
        seen.append(context)
        during.extend([context.cancelled, context["cancelled"]])
        return "ok"

    quiet = Quiet()
    agent = Agent(
        model=ScriptedModel([ToolCall("look", id="call-1"), "done"]),
        tools=[look],
        middleware=[quiet],
        scope="ann",
        agent_id="agent-1",
        name="Ann's",
        tool_context=own,
    )
    await agent.execute(State.from_text("go", conversation_id="c-1"))
    [context] = seen
    for name, value in TOOLKIT.items():
        if name != "cancelled":  # which is another one now that the call is over
            assert (name, getattr(context, name), context[name]) == (name, value, value)
    assert during == [False, False]
    assert (context.cancelled, context["cancelled"]) == (True, True)
    for name in OBJECTS:
        assert getattr(context, name) != "spoofed"
        assert context[name] == getattr(context, name)
    assert context.state.agent_id == context.agent_id
    assert context.tool_context == own
    assert (context.user_id, context["tenant"]) == (42, "acme")
    assert context.parent_middleware == (quiet,)
    assert context.parent_tools == (look,)


@pytest.mark.parametrize("name", ["cancelled", "publish", "otel_attributes", "agent_name"])
def test_without_the_list_of_names_an_item_would_be_the_callers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    context = ToolContext(scope=None, tool_context={name: "spoofed"}, state=State(), agent_id="a", tool_call_id="c")
    assert context[name] != "spoofed"
    monkeypatch.setattr("sagents_nb.tools._CONTEXT_NAMES", ())
    assert context[name] == "spoofed"


def test_what_a_context_is_given_cannot_be_changed_through_it() -> None:
    attributes = {"team": "a"}
    context = ToolContext(
        scope=None,
        tool_context={},
        state=State(),
        agent_id="parent",
        sub_agent_id="parent-sub-1",
        parent_agent_id="parent",
        tool_call_id="c",
        otel_attributes=attributes,
    )
    attributes["team"] = "b"
    assert context.otel_attributes == {"team": "a"}
    with pytest.raises(TypeError):
        context.otel_attributes["team"] = "c"  # type: ignore[index]
    assert (context.sub_agent_id, context["parent_agent_id"]) == ("parent-sub-1", "parent")


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
