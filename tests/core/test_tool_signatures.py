"""Functions of every kind become tools, or are refused in words that say what to write."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, BeforeValidator, Field
from typing_extensions import TypedDict

from sagents_nb import Agent, ConfigurationError, ScriptedModel, Tool, ToolCall, ToolContext, ToolError, tool
from sagents_nb.tools import as_tool


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Item(BaseModel):
    """The item of this module; others have one of the same name."""

    title: str
    parent: Optional["Item"] = None  # noqa: UP045, UP037 - a forward reference is what is tested


@dataclasses.dataclass
class Pair:
    left: int
    right: int


def properties(made: Tool) -> dict[str, Any]:
    found: dict[str, Any] = made.input_schema["properties"]
    return found


async def call(function: Any, arguments: dict[str, Any], **options: Any) -> str:
    """What the model is told when it calls the tool."""
    made = as_tool(function)
    agent = Agent(model=ScriptedModel([ToolCall(made.name, arguments), "done"]), tools=[made], **options)
    result = await agent.execute("go")
    return result.state.messages[2].tool_results[0].text


def test_types_of_every_kind() -> None:
    @tool
    def take(
        level: Level,
        pair: Pair,
        when: dt.datetime,
        where: Path,
        ratio: Annotated[float, Field(ge=0, le=1)],
        kinds: set[Literal["a", "b"]],
        either: int | str | None,
        table: dict[str, list[int]],
        free: Any,
        item: "list[Item]",  # noqa: UP037
        more: Optional["Item"] = None,  # noqa: UP045, UP037
    ) -> None: ...

    assert sorted(take.input_schema["required"]) == sorted(
        ["level", "pair", "when", "where", "ratio", "kinds", "either", "table", "free", "item"]
    )
    assert properties(take)["ratio"] == {"maximum": 1, "minimum": 0, "type": "number"}
    assert properties(take)["kinds"] == {
        "items": {"enum": ["a", "b"], "type": "string"},
        "type": "array",
        "uniqueItems": True,
    }
    given: dict[str, Any] = {
        "level": 2,
        "pair": {"left": 1, "right": "2"},
        "when": "2026-12-01T00:00:00",
        "where": "/tmp",
        "ratio": 0.5,
        "kinds": ["a", "a"],
        "either": None,
        "table": {"x": [1]},
        "free": {"any": [1]},
        "item": [{"title": "t", "parent": {"title": "p"}}],
    }
    checked = take.validate(given)
    assert checked == {
        "level": Level.HIGH,
        "pair": Pair(1, 2),
        "when": dt.datetime(2026, 12, 1),  # noqa: DTZ001
        "where": Path("/tmp"),
        "ratio": 0.5,
        "kinds": {"a"},
        "either": None,
        "table": {"x": [1]},
        "free": {"any": [1]},
        "item": [Item(title="t", parent=Item(title="p"))],
    }


class Shade(enum.Enum):
    LIGHT = "light"
    DARK = "dark"


class Where(BaseModel):
    """A place on the page."""

    page: int = Field(ge=1, description="counts from 1")
    line: int = 1


class Options(TypedDict):
    deep: bool
    limit: NotRequired[int]


def _plain(
    text: str, count: int = 3, ratio: float = 0.5, exact: bool = False, words: list[str] | None = None
) -> None: ...


def _chosen(
    shade: Shade, mode: Literal["fast", "slow"] = "fast", either: Literal[1, "one"] = 1, one: Literal["x"] = "x"
) -> None: ...


def _annotated(
    bounded: Annotated[int, Field(ge=1, le=9, description="from 1 to 9")],
    named: Annotated[str, "who it is for"],
    both: Annotated[str, Field(pattern="^a"), "begins with a"] = "a",
    bare: Annotated[int, object()] = 0,
) -> None: ...


def _optional(old: Optional[int], new: int | None, least: Optional[str] = None) -> None: ...  # noqa: UP045


def _nested(where: Where, options: Options, more: dict[str, list[Where]] | None = None) -> None: ...


def _defaults(day: dt.date = dt.date(2026, 12, 1), marker: Any = _plain, pair: tuple[int, str] = (1, "a")) -> None: ...


WHERE = {
    "description": "A place on the page.",
    "properties": {
        "page": {"description": "counts from 1", "minimum": 1, "type": "integer"},
        "line": {"default": 1, "type": "integer"},
    },
    "required": ["page"],
    "title": "Where",
    "type": "object",
}

SCHEMAS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (
        _plain,
        {
            "properties": {
                "text": {"type": "string"},
                "count": {"default": 3, "type": "integer"},
                "ratio": {"default": 0.5, "type": "number"},
                "exact": {"default": False, "type": "boolean"},
                "words": {
                    "anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}],
                    "default": None,
                },
            },
            "required": ["text"],
        },
    ),
    (
        _chosen,
        {
            "$defs": {"Shade": {"enum": ["light", "dark"], "title": "Shade", "type": "string"}},
            "properties": {
                "shade": {"$ref": "#/$defs/Shade"},
                "mode": {"default": "fast", "enum": ["fast", "slow"], "type": "string"},
                "either": {"default": 1, "enum": [1, "one"]},
                "one": {"const": "x", "default": "x", "type": "string"},
            },
            "required": ["shade"],
        },
    ),
    (
        _annotated,
        {
            "properties": {
                "bounded": {"description": "from 1 to 9", "maximum": 9, "minimum": 1, "type": "integer"},
                "named": {"description": "who it is for", "type": "string"},
                "both": {"default": "a", "description": "begins with a", "pattern": "^a", "type": "string"},
                "bare": {"default": 0, "type": "integer"},
            },
            "required": ["bounded", "named"],
        },
    ),
    (
        _optional,
        {
            "properties": {
                "old": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "new": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "least": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            },
            "required": ["old", "new"],
        },
    ),
    (
        _nested,
        {
            "$defs": {
                "Where": WHERE,
                "Options": {
                    "additionalProperties": False,
                    "properties": {"deep": {"type": "boolean"}, "limit": {"type": "integer"}},
                    "required": ["deep"],
                    "title": "Options",
                    "type": "object",
                },
            },
            "properties": {
                "where": {"$ref": "#/$defs/Where"},
                "options": {"$ref": "#/$defs/Options"},
                "more": {
                    "anyOf": [
                        {
                            "additionalProperties": {"items": {"$ref": "#/$defs/Where"}, "type": "array"},
                            "type": "object",
                        },
                        {"type": "null"},
                    ],
                    "default": None,
                },
            },
            "required": ["where", "options"],
        },
    ),
    (
        _defaults,
        {
            "properties": {
                "day": {"default": "2026-12-01", "format": "date", "type": "string"},
                "marker": {},
                "pair": {
                    "default": [1, "a"],
                    "maxItems": 2,
                    "minItems": 2,
                    "prefixItems": [{"type": "integer"}, {"type": "string"}],
                    "type": "array",
                },
            }
        },
    ),
]


@pytest.mark.parametrize(("function", "schema"), SCHEMAS, ids=[row[0].__name__ for row in SCHEMAS])
def test_the_whole_schema_of_a_function(function: Callable[..., Any], schema: dict[str, Any]) -> None:
    assert tool(function).input_schema == {"type": "object", "additionalProperties": False, **schema}


STYLES = {
    "google": """Look a word up.

        It asks the dictionary,
        twice.

        Args:
            word: the word to
                look up
            deep (bool): also in the
                appendix

        Returns:
            What was found.

        Raises:
            KeyError: there is none.
        """,
    "numpy": """Look a word up.

        It asks the dictionary,
        twice.

        Parameters
        ----------
        word : str
            the word to
            look up
        deep : bool, optional
            also in the
            appendix

        Returns
        -------
        str
            What was found.
        """,
    "rest": """Look a word up.

        It asks the dictionary,
        twice.

        :param word: the word to
            look up
        :param bool deep: also in the
            appendix
        :returns: What was found.
        :raises KeyError: there is none.
        """,
}


@pytest.mark.parametrize("style", STYLES)
def test_descriptions_come_from_docstrings_of_three_styles(style: str) -> None:
    def look(word: str, plain: str, hinted: Annotated[int, "by the hint"] = 0, *, deep: bool = False) -> str:
        return ""

    look.__doc__ = STYLES[style]
    made = tool(look)
    assert made.description == "Look a word up.\n\nIt asks the dictionary,\ntwice."
    assert properties(made) == {
        "word": {"description": "the word to\nlook up", "type": "string"},
        "plain": {"type": "string"},
        "hinted": {"default": 0, "description": "by the hint", "type": "integer"},
        "deep": {"default": False, "description": "also in the\nappendix", "type": "boolean"},
    }


def test_what_the_hint_says_of_a_parameter_wins_over_the_docstring() -> None:
    @tool
    def look(one: Annotated[str, "by the hint"], two: Annotated[str, Field(description="by the field")]) -> str:
        """Look.

        Args:
            one: by the docstring
            two: by the docstring
        """
        return ""

    assert [each["description"] for each in properties(look).values()] == ["by the hint", "by the field"]


NAMES = ["self", "cls", "schema", "copy", "json", "model_dump", "model_x", "validate", "construct", "p0", "p1", "name"]


async def test_parameters_may_have_any_name_that_python_allows() -> None:
    source = f"def odd({', '.join(f'{name}: int' for name in NAMES)}) -> str:\n    return str(sum(locals().values()))"
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    made = tool(namespace["odd"])
    assert list(properties(made)) == NAMES
    assert await call(made, {name: place for place, name in enumerate(NAMES)}) == str(sum(range(len(NAMES))))


async def test_unicode_names_and_texts_pass_through() -> None:
    @tool(name="groesse")
    def größe(länge: int, 名前: str = "☃") -> str:  # noqa: N803, PLC2401
        """Größe.

        Args:
            länge: in Metern
            名前: wer
        """
        return f"{länge} {名前}"

    assert properties(größe)["länge"] == {"description": "in Metern", "type": "integer"}
    assert await call(größe, {"länge": 3}) == "3 ☃"


class Weather:
    """A weather service.

    Args:
        city: where
    """

    def __init__(self, sky: str = "sunny") -> None:
        self.sky = sky

    def __call__(self, city: str, context: Optional["ToolContext"] = None) -> str:  # noqa: UP045, UP037
        return f"{self.sky} in {city}"

    def look(self, item: "Item") -> str:  # noqa: UP037
        "Look at an item."
        return f"{self.sky} {item.title}"

    @classmethod
    def both(cls, a: int) -> str:
        "Both."
        return f"{cls.__name__} {a}"

    @staticmethod
    def none(a: int) -> str:
        "None."
        return str(a)


def _look(sky: str, item: Item, *, loud: bool = False) -> str:
    """Look at something.

    Args:
        item: at what
        loud: with a cry
    """
    return f"{sky} {item.title}{'!' if loud else ''}"


async def _alook(sky: str, item: "Item") -> str:  # noqa: UP037
    "Look slowly."
    return f"{sky} {item.title}"


def _noisy(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


CALLABLES: list[tuple[Any, str, str, dict[str, Any], str]] = [
    (Weather(), "Weather", "A weather service.", {"city": "Oslo"}, "sunny in Oslo"),
    (Weather("grey").look, "look", "Look at an item.", {"item": {"title": "t"}}, "grey t"),
    (Weather.both, "both", "Both.", {"a": 1}, "Weather 1"),
    (Weather.none, "none", "None.", {"a": 1}, "1"),
    (
        functools.partial(_look, "blue"),
        "_look",
        "Look at something.",
        {"item": {"title": "t"}, "loud": True},
        "blue t!",
    ),
    (functools.partial(_look, sky="red"), "_look", "Look at something.", {"item": {"title": "t"}}, "red t"),
    (functools.partial(_alook, "slow"), "_alook", "Look slowly.", {"item": {"title": "t"}}, "slow t"),
    (functools.partial(functools.partial(_look, "a")), "_look", "Look at something.", {"item": {"title": "t"}}, "a t"),
    (_noisy(_look), "_look", "Look at something.", {"sky": "x", "item": {"title": "t"}}, "x t"),
    (_noisy(_alook), "_alook", "Look slowly.", {"sky": "x", "item": {"title": "t"}}, "x t"),
    (tool(name="lam")(lambda: "lambda"), "lam", "", {}, "lambda"),
    (Pair, "Pair", "Pair(left: 'int', right: 'int')", {"left": 1, "right": 2}, '{"left":1,"right":2}'),
    (
        Item,
        "Item",
        "The item of this module; others have one of the same name.",
        {"title": "t"},
        '{"title":"t","parent":null}',
    ),
]


@pytest.mark.parametrize(("made", "name", "description", "arguments", "text"), CALLABLES, ids=range(len(CALLABLES)))
async def test_whatever_can_be_called_can_be_a_tool(
    made: Any, name: str, description: str, arguments: dict[str, Any], text: str
) -> None:
    found = as_tool(made)
    assert (found.name, found.description) == (name, description)
    assert await call(found, arguments) == text


def test_names_are_those_of_the_place_where_the_function_was_written() -> None:
    def made_here() -> Tool:
        class Item(BaseModel):
            other: int

        Level = Literal["deep"]  # noqa: F841, N806

        @tool
        def inside(item: Item, level: Level) -> str:
            return ""

        assert properties(tool(name="module")(_look))["item"] == {
            "$ref": "#/$defs/Item",
            "description": "at what",
        }
        assert "title" in tool(name="module")(_look).input_schema["$defs"]["Item"]["properties"]
        return inside

    inside = made_here()
    assert "other" in inside.input_schema["$defs"]["Item"]["properties"]
    assert properties(inside)["level"] == {"const": "deep", "type": "string"}


CONTEXTS: list[Any] = [
    ToolContext,
    "ToolContext",
    "'ToolContext'",
    "ToolContext | None",
    ToolContext | None,
    Optional[ToolContext],  # noqa: UP045
    Optional["ToolContext"],
    Annotated[ToolContext, "it"],
    "Annotated[ToolContext, 'it']",
    Annotated["ToolContext | None", "it"],
]


@pytest.mark.parametrize("annotation", CONTEXTS, ids=str)
async def test_the_context_is_known_in_every_way_to_write_it(annotation: Any) -> None:
    def who(a: int, context: Any = None) -> str:
        return f"{a} {context.scope}"

    who.__annotations__["context"] = annotation
    made = tool(who)
    assert list(properties(made)) == ["a"]
    assert await call(made, {"a": 1}, scope="ann") == "1 ann"


def _args(*things: str) -> None: ...
def _kwargs(**things: str) -> None: ...
def _positional(a: str, /) -> None: ...
def _twice(one: ToolContext, two: ToolContext | None = None) -> None: ...
def _unknown_inside(a: list["Nowhere"]) -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037
def _number(a: "5") -> None: ...  # type: ignore[valid-type]  # noqa: UP037
def _with_hint(hint: str) -> Callable[..., None]:
    def broken(a: int) -> None: ...

    broken.__annotations__["a"] = hint
    return broken


def _callable(a: Callable[[], int]) -> None: ...
def _variable(a: typing.TypeVar) -> None: ...
def _second_of_two(a: int, b: Iterator[int]) -> None: ...
def _field_as_default(a: int = Field(3, ge=0)) -> None: ...


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: tool(_args), "tool '_args': parameter 'things' is variadic positional"),
    (lambda: tool(_kwargs), "tool '_kwargs': parameter 'things' is variadic keyword"),
    (lambda: tool(_positional), "tool '_positional': parameter 'a' is positional-only"),
    (lambda: tool(_twice), "tool '_twice' takes the context twice, as 'one' and as 'two'; once will do"),
    (
        lambda: tool(_unknown_inside),
        "of parameter 'a' cannot be resolved (NameError: name 'Nowhere' is not defined); import the name",
    ),
    (lambda: tool(_number), "tool '_number': the type hint '5' of parameter 'a' has no JSON schema"),
    (lambda: tool(_with_hint("list[")), "of parameter 'a' cannot be resolved (SyntaxError"),
    (
        lambda: tool(_callable),
        "tool '_callable': the type hint 'collections.abc.Callable[[], int]' of parameter 'a' has no JSON schema",
    ),
    (
        lambda: tool(_variable),
        "tool '_variable': the type hint \"<class 'TypeVar'>\" of parameter 'a' has no JSON schema",
    ),
    (
        lambda: tool(_second_of_two),
        "tool '_second_of_two': the type hint 'collections.abc.Iterator[int]' of parameter 'b' has no JSON schema",
    ),
    (
        lambda: tool(_field_as_default),
        "parameter 'a' is a Field, which the function itself would get; write a: Annotated[…, Field(…)] = the default",
    ),
    (
        lambda: tool(thread="side")(_args),  # type: ignore[call-overload]
        "tool '_args': thread is 'side'; it is 'main' for the main thread, or None for a thread of its own",
    ),
    (
        lambda: tool(thread="main")(_alook),
        "tool '_alook' is an `async def`, which runs on the loop of its run; thread='main' is for a plain def",
    ),
    (
        lambda: tool(Weather.look),
        "tool 'look' is a method without its object: make the tool from one, tool(thing.look)",
    ),
    (lambda: tool(max), "so its parameters are not known; write a def that calls it"),
    (lambda: tool(timeout=0)(_callable), "tool '_callable': timeout is 0; it is a number of seconds above 0, or None"),
    (lambda: tool(name="x" * 65)(_callable), "cannot be a tool's name: letters, digits, _ and -, at most 64"),
    (lambda: tool("text"), "@tool got 'text', a str; it decorates a function"),  # type: ignore[call-overload]
    (lambda: as_tool(None), "None is no tool: tools are functions, best decorated with @tool, got a NoneType"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_a_tool_is_refused_in_words(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert words in str(caught.value)


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_docstring_will_do(text: str) -> None:
    def f(a: int) -> str:
        return ""

    f.__doc__ = text
    assert isinstance(tool(f).description, str)


@pytest.mark.parametrize(
    "doc",
    [
        "Args:\n    a (int",
        "Short.\n\nArgs:\n    a: one\n    a: two\n",
        ":param",
        ":param a",
        "Parameters\n----------\na",
        "Returns:\n\nRaises:\n\n",
        "@param a:\n",
    ],
)
def test_docstrings_of_no_style_will_do(doc: str) -> None:
    def f(a: int) -> str:
        return ""

    f.__doc__ = doc
    assert isinstance(tool(f).description, str)


def _refuse(value: Any) -> Any:
    raise ValueError("not this one")


async def test_wrong_arguments_are_told_place_by_place() -> None:
    @tool
    def take(item: Item, count: int, pick: Annotated[str, BeforeValidator(_refuse)] = "") -> str:
        return "ran"

    told = await call(take, {"item": {"titel": "t"}, "count": "many " * 100, "pick": "p", "cuont": 1})
    assert told == (
        "Got cuont. item.title: Field required, got {'titel': 't'}. "
        "count: Input should be a valid integer, unable to parse string as an integer, got "
        "'many many many many many many many many many many many many many many many man…. "
        "pick: Value error, not this one, got 'p'. Parameters of take: item, count, pick."
    )
    with pytest.raises(ToolError, match=r"Missing parameters: item, count\. Got itme \(did you mean 'item'\?\)\."):
        take.validate({"itme": 1})


def test_a_made_tool_says_what_it_is_and_stays_callable() -> None:
    @tool(display_text="Looking", timeout=3, sequential=True, description="Mine.")
    def look(a: int = 1) -> int:
        "Docstring."
        return a + 1

    assert (look.name, look.description, look.display_text) == ("look", "Mine.", "Looking")
    assert (look.timeout, look.sequential, look.is_async) == (3, True, False)
    assert look() == 2
    assert look(a=4) == 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        look.name = "other"  # type: ignore[misc]
