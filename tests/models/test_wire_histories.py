"""Any history, cut or edited anywhere, becomes a request that the Messages API takes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from sagents_nb import AnthropicModel, File, Image, Message, ModelError, Text, Thinking, ToolCall, ToolResult, tool
from sagents_nb.execution.repair import repair_history
from sagents_nb.models import ModelRequest, anthropic_wire
from sagents_nb.models.anthropic_wire import request_body, wire_messages
from tests.support.messages_rules import problems


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@tool
async def get_weather(city: str) -> str:
    "Weather."
    return city


TEXTS = st.sampled_from(["", " ", "\n\t", "Hi.", "Sunny ", "{}"]).map(Text)
THOUGHTS = st.sampled_from(
    [
        Thinking(text="no seal"),
        Thinking(text="hm", signature="c2VhbA"),
        Thinking(text="", signature="c2VhbA"),
        Thinking(redacted="eHg"),
        Thinking(),
    ]
)
FILES = st.sampled_from(
    [
        Image(data=b64("x"), media_type="image/png"),
        Image(data=b64("x"), media_type="image/bmp"),
        Image(url="data:image/png;base64,"),
        Image(url="data:image/png;base64,§"),
        Image(url="https://x/y.png"),
        Image(url="http://x/y.png"),
        Image(url="data:image/gif;base64," + b64("x")),
        Image(url="data:text/html,<b>"),
        File(data=b64("%PDF"), media_type="application/pdf", name="a.pdf"),
        File(data=b64("words"), media_type="text/plain", name=" "),
        File(data=b64("  "), media_type="text/plain", name="blank.txt"),
        File(data=b64("a,b"), media_type="text/csv", name="t.csv"),
        File(data=b64("x"), media_type="application/zip"),
        File(url="https://x/y.pdf"),
        File(url="https://x/y.txt", name="y.txt"),
        File(data=b64("x"), media_type="image/jpeg"),
    ]
)
PARTS = st.lists(st.one_of(TEXTS, TEXTS, THOUGHTS, FILES), max_size=3)
IDS = st.sampled_from(["c1", "c1", "c2", "c 3", ""])
NAMES = st.sampled_from(["get_weather", "no such tool", ""])
CALLS = st.lists(
    st.builds(lambda name, i: ToolCall(name, {"city": "Oslo"}, id=i), NAMES, IDS),
    max_size=3,
)
RESULTS = st.lists(
    st.builds(
        lambda content, i, wrong, waits: ToolResult(content, tool_call_id=i, is_error=wrong, is_interrupt=waits),
        *(PARTS, IDS, st.booleans(), st.booleans()),
    ),
    max_size=3,
)
STATUSES = st.sampled_from(["complete", "length", "cancelled", "refused", "stream_error"])
ORDERS = st.lists(st.sampled_from(["text", "thinking", "call"]), max_size=4)
MESSAGES = st.one_of(
    st.builds(lambda parts: Message("user", parts), PARTS),
    st.builds(lambda text: Message("system", [text]), TEXTS),
    st.builds(lambda results: Message("tool", tool_results=results), RESULTS),
    st.builds(
        lambda parts, calls, status, order: Message(
            "assistant", parts, tool_calls=calls, status=status, metadata={"block_order": order}
        ),
        *(PARTS, CALLS, STATUSES, ORDERS),
    ),
)
WHOLE_TURNS = st.builds(
    lambda parts, ids, content, wrong: (
        Message("assistant", parts, tool_calls=[ToolCall("get_weather", id=i) for i in ids]),
        Message("tool", tool_results=[ToolResult(content, tool_call_id=i, is_error=wrong) for i in ids]),
    ),
    *(PARTS, st.lists(IDS, min_size=1, max_size=3), PARTS, st.booleans()),
)
HISTORIES = st.lists(st.one_of(MESSAGES.map(lambda message: (message,)), WHOLE_TURNS), max_size=5).map(
    lambda groups: tuple(message for group in groups for message in group)
)
BUDGET = {"type": "enabled", "budget_tokens": 1024}
THINKING = st.sampled_from([None, BUDGET, {"type": "adaptive"}, {"type": "disabled"}])
REQUESTS = st.builds(
    lambda history, system, tools, choice, thinking: ModelRequest(
        system=system,
        messages=repair_history(history)[0],
        tools=(get_weather,) if tools else (),
        tool_choice=choice if tools else "auto",
        options={"thinking": thinking, "stop_sequences": ["END"]},
    ),
    HISTORIES,
    st.sampled_from(["", "  ", "Be brief."]),
    st.booleans(),
    st.sampled_from(["auto", "any", "none", "get_weather"]),
    THINKING,
)
MODEL = AnthropicModel("m", api_key="k", max_tokens=2048)


def the_api_takes(request: ModelRequest) -> None:
    body = request_body(MODEL, request)
    assert list(problems(body)) == []
    turns = body["messages"]
    roles = ["user", "assistant"] * len(turns)
    # Newer models go on with no unfinished answer, so the user has the last word.
    assert [turn["role"] for turn in turns] == roles[: len(turns)]
    assert turns[-1]["role"] == "user"
    used = any(block["type"] == "tool_use" for turn in turns for block in turn["content"])
    assert bool(body.get("tools")) == bool(request.tools or used)  # calls without tools are refused by some models
    said = [part.text for m in request.messages if m.role != "system" for part in m.content if isinstance(part, Text)]
    sent = str(turns)
    assert [text for text in said if text.strip() and repr(text)[1:-1] not in sent] == []


def every_history(examples: int, **more: Any) -> Callable[[], None]:
    @given(REQUESTS)
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )
    def check(request: ModelRequest) -> None:
        the_api_takes(request)

    return check


def test_every_history_becomes_a_request_the_api_takes() -> None:
    every_history(300)()


def patched(name: str, make: Callable[[Any], Any]) -> Any:
    return pytest.param(name, make, id=f"{name}")


def without_ends(real: Any) -> Any:
    """The user has neither the first nor the last word."""

    def wire(messages: Any, **options: Any) -> Any:
        added = ([{"type": "text", "text": said}] for said in (anthropic_wire.LEFT_OUT, anthropic_wire.GO_ON))
        ends = list(added)
        return [turn for turn in real(messages, **options) if turn["content"] not in ends] or real(messages, **options)

    return wire


def same_ids(_real: Any) -> Any:
    return lambda call_id, used: anthropic_wire._name(call_id, "call")


def paired_by_id(real: Any) -> Any:
    """The last id of a repeated one for all its results."""
    return lambda results, waiting: real(results, list(dict(waiting).items()))


def errors_as_others(real: Any) -> Any:
    def results(given: Any, waiting: Any) -> Any:
        blocks = real([result.replace(is_error=False) for result in given], waiting)
        return [block | ({"is_error": True} if block["type"] == "tool_result" else {}) for block in blocks]

    return results


RULES = [
    patched("wire_messages", without_ends),
    patched("_unique", same_ids),
    patched("_tool_results", paired_by_id),
    patched("_tool_results", errors_as_others),
    patched("_name", lambda real: lambda name, instead: name),
    patched("_system", lambda real: lambda request: request.system),
    patched(
        "_part", lambda real: lambda part: {"type": "text", "text": part.text} if isinstance(part, Text) else real(part)
    ),
    patched(
        "_thought",
        lambda real: lambda part: real(part) or {"type": "thinking", "thinking": part.text, "signature": ""},
    ),
    patched("_THOUGHTS", lambda real: ()),
    patched("_may_think", lambda real: lambda body, thinking: True),
    patched("_is_off", lambda real: lambda thinking: False),
    patched("_IMAGES", lambda real: (*real, "image/bmp")),
    patched("_by_url", lambda real: lambda part, url, kind: {"type": "image", "source": {"type": "url", "url": url}}),
    patched("_document", lambda real: lambda part, source: real(part, source) | {"title": part.name}),
    patched("_tools", lambda real: lambda request, given, messages: {}),
]


@pytest.mark.parametrize(("name", "make"), RULES)
def test_without_one_of_the_rules_of_the_wire_some_history_would_be_refused(
    name: str, make: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anthropic_wire, name, make(getattr(anthropic_wire, name)))
    with pytest.raises(AssertionError):
        every_history(2000, phases=[Phase.generate], database=None, derandomize=True)()


# -- what exactly is sent -------------------------------------------------------------------------


CALL = ToolCall("get_weather", {"city": "Oslo"}, id="c1")
DONE = Message("tool", tool_results=[ToolResult("Sunny", tool_call_id="c1", name="get_weather")])


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text(b) if isinstance(b, str) else b for b in blocks]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [text(b) if isinstance(b, str) else b for b in blocks]}


def use(call_id: str, name: str = "get_weather") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"city": "Oslo"}}


def answer(call_id: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    content = {"content": [text(b) if isinstance(b, str) else b for b in blocks]} if blocks else {}
    return {"type": "tool_result", "tool_use_id": call_id, **content, **more}


PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}

SENT: dict[str, tuple[list[Message], list[dict[str, Any]]]] = {
    "nothing": ([], [user("Continue.")]),
    "only a blank message": ([Message("user", "  ")], [user("Continue.")]),
    "begins with the assistant": (
        [Message("assistant", "Hello."), Message("user", "Hi")],
        [user("(The messages before this one were left out.)"), assistant("Hello."), user("Hi")],
    ),
    "ends with the assistant": (
        [Message("user", "Hi"), Message("assistant", "Once upon a ", status="cancelled")],
        [user("Hi"), assistant("Once upon a "), user("Continue.")],
    ),
    "a blank message at the end": (
        [Message("user", "Hi"), Message("assistant", "Hello."), Message("user", "\n")],
        [user("Hi"), assistant("Hello."), user("Continue.")],
    ),
    "one role in a row": (
        [
            Message("user", "a"),
            Message("user", "b"),
            Message("assistant", "c"),
            Message("assistant", "d"),
            Message("user", "e"),
        ],
        [user("a", "b"), assistant("c", "d"), user("e")],
    ),
    "a blank answer between two questions": (
        [Message("user", "a"), Message("assistant", " "), Message("user", "b")],
        [user("a", "b")],
    ),
    "system messages are sent elsewhere": ([Message("system", "s"), Message("user", "a")], [user("a")]),
    "one id for two calls of a message": (
        [
            Message("user", "a"),
            Message("assistant", "", tool_calls=[CALL, CALL]),
            Message("tool", tool_results=[ToolResult(said, tool_call_id="c1") for said in ("one", "two")]),
        ],
        [user("a"), assistant(use("c1"), use("c1-2")), user(answer("c1", "one"), answer("c1-2", "two"))],
    ),
    "an image in an error": (
        [
            Message("user", "a"),
            Message("assistant", "", tool_calls=[CALL, CALL.replace(id="c2")]),
            Message(
                "tool",
                tool_results=[
                    ToolResult(
                        [Image(data="iVBORw0KGgo=", media_type="image/png")],
                        tool_call_id="c1",
                        name="look",
                        is_error=True,
                    ),
                    ToolResult("fine", tool_call_id="c2"),
                ],
            ),
        ],
        [
            user("a"),
            assistant(use("c1"), use("c2")),
            user(
                answer("c1", "(no text)", is_error=True),
                answer("c2", "fine"),
                "From the failed call of look:",
                PNG,
            ),
        ],
    ),
    "a result without anything": (
        [
            Message("user", "a"),
            Message("assistant", "", tool_calls=[CALL]),
            Message("tool", tool_results=[ToolResult("", tool_call_id="c1")]),
        ],
        [user("a"), assistant(use("c1")), user(answer("c1"))],
    ),
    "a name that no tool can have": (
        [Message("user", "a"), Message("assistant", "", tool_calls=[CALL.replace(name="get weather!")]), DONE],
        [user("a"), assistant(use("c1", "get_weather_")), user(answer("c1", "Sunny"))],
    ),
    "an image that the assistant made": (
        [
            Message("user", "a"),
            Message("assistant", [Image(data="iVBORw0KGgo=", media_type="image/png")]),
            Message("user", "b"),
        ],
        [user("a"), assistant("(image: left out, since the API takes it from the user only)"), user("b")],
    ),
    "cut off while it thought": (
        [
            Message("user", "a"),
            Message("assistant", [Thinking(text="hm", signature="s")], status="length"),
            Message("user", "b"),
        ],
        [user("a", "b")],
    ),
    "a sealed thought whose text is not shown": (
        [Message("user", "a"), Message("assistant", [Thinking(signature="s"), Text("b")]), Message("user", "c")],
        [user("a"), assistant({"type": "thinking", "thinking": "", "signature": "s"}, "b"), user("c")],
    ),
    "calls between texts": (
        [
            Message("user", "a"),
            Message("assistant", "after", tool_calls=[CALL], metadata={"block_order": ["call", "text"]}),
            DONE,
        ],
        [user("a"), assistant(use("c1"), "after"), user(answer("c1", "Sunny"))],
    ),
    "an order that is not that of the message any more": (
        [
            Message("user", "a"),
            Message("assistant", ["b", "c"], tool_calls=[CALL], metadata={"block_order": ["call", "text"]}),
            DONE,
        ],
        [user("a"), assistant("b", "c", use("c1")), user(answer("c1", "Sunny"))],
    ),
}


@pytest.mark.parametrize("case", SENT)
def test_what_is_sent_of_a_history(case: str) -> None:
    history, expected = SENT[case]
    sent = wire_messages(tuple(history))
    for found, wanted in zip_longest(sent, expected):
        assert found == wanted


def document(source: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "document", "source": source, **more}


PARTS_SENT: list[tuple[Image | File, dict[str, Any]]] = [
    (Image(data="iVBORw0KGgo=", media_type="image/png"), PNG),
    (
        Image(data="/9j/4AAQ", media_type="IMAGE/JPEG"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}},
    ),
    (Image(url="https://x/y.png"), {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}),
    (Image(url="data:image/png;base64,iVBORw0KGgo="), PNG),
    (Image(url="http://x/y.png"), text("(image http://x/y.png: left out, since the API reads only https:// URLs)")),
    (
        Image(data="Qk0=", media_type="image/bmp"),
        text("(image: left out, since image/bmp is none of the types that the API takes)"),
    ),
    (Image(url="data:image/png;base64,"), text("(image: left out, since it is empty)")),
    (
        File(data=b64("<svg/>"), media_type="image/svg+xml", name="a.svg"),
        document({"type": "text", "media_type": "text/plain", "data": "<svg/>"}, title="a.svg"),
    ),
    (
        File(data="JVBERg==", name="a.pdf", media_type="application/pdf"),
        document({"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}, title="a.pdf"),
    ),
    (
        File(data=b64(" "), name="a.txt", media_type="text/plain"),
        text("(file a.txt: left out, since it is empty)"),
    ),
    (
        File(data=b64("Grüße"), name="notes.txt", media_type="text/plain"),
        document({"type": "text", "media_type": "text/plain", "data": "Grüße"}, title="notes.txt"),
    ),
    (
        File(data=b64("a,b"), name="t.csv", media_type="text/csv"),
        document({"type": "text", "media_type": "text/plain", "data": "a,b"}, title="t.csv"),
    ),
    (
        File(url="data:text/plain;base64,a", name="t.txt"),
        text("(file t.txt: left out, since its data URL is not base64)"),
    ),
    (File(url="https://x/y.pdf"), document({"type": "url", "url": "https://x/y.pdf"})),
    (
        File(url="https://x/y.txt", media_type="text/plain"),
        text("(file https://x/y.txt: left out, since by URL the API reads only images and PDF)"),
    ),
    (
        File(data="iVBORw0KGgo=", media_type="image/png"),
        PNG,
    ),
    (
        File(data="UEs=", name="a.zip", media_type="application/zip"),
        text("(file a.zip: left out, since application/zip is none of the types that the API takes)"),
    ),
]


@pytest.mark.parametrize(("part", "block"), PARTS_SENT, ids=range(len(PARTS_SENT)))
def test_what_is_sent_of_an_image_or_a_file(part: Any, block: dict[str, Any]) -> None:
    assert wire_messages((Message("user", [part]),)) == [user(block)]


THOUGHT = Thinking(text="hm", signature="s")
SEALED = {"type": "thinking", "thinking": "hm", "signature": "s"}
ASKED = Message("user", "a")
CHAINS: dict[str, tuple[dict[str, Any], list[Message], dict[str, Any] | None, bool]] = {
    "nothing special": ({}, [ASKED], BUDGET, False),
    "a chain that began with a thought": (
        {},
        [ASKED, Message("assistant", [THOUGHT], tool_calls=[CALL]), DONE],
        BUDGET,
        True,
    ),
    "a chain that began without one": ({}, [ASKED, Message("assistant", "b", tool_calls=[CALL]), DONE], None, False),
    "that chain is over": (
        {},
        [ASKED, Message("assistant", "b", tool_calls=[CALL]), DONE, Message("assistant", "c"), ASKED],
        BUDGET,
        False,
    ),
    "any tool is forced": (
        {"tool_choice": "any"},
        [ASKED, Message("assistant", [THOUGHT], tool_calls=[CALL]), DONE],
        None,
        False,
    ),
    "one tool is forced": ({"tool_choice": "get_weather"}, [ASKED], None, False),
    "no tool may be called": ({"tool_choice": "none"}, [ASKED], BUDGET, False),
    "switched off for this request": (
        {"options": {"thinking": {"type": "disabled"}}},
        [ASKED, Message("assistant", [THOUGHT], tool_calls=[CALL]), DONE],
        {"type": "disabled"},
        False,
    ),
    "taken away for this request": ({"options": {"thinking": None}}, [ASKED], None, False),
    "another kind, which needs no thought at the beginning": (
        {"options": {"thinking": {"type": "adaptive"}}},
        [ASKED, Message("assistant", "b", tool_calls=[CALL]), DONE],
        {"type": "adaptive"},
        False,
    ),
}


@pytest.mark.parametrize("case", CHAINS)
def test_thinking_is_left_out_exactly_where_the_api_would_refuse_it(case: str) -> None:
    more, history, thinking, thoughts = CHAINS[case]
    model = AnthropicModel("m", api_key="k", thinking_budget=1024)
    body = request_body(model, ModelRequest(messages=tuple(history), tools=(get_weather,), **more))
    assert list(problems(body)) == []
    assert body.get("thinking") == thinking
    assert any(SEALED in turn["content"] for turn in body["messages"]) is thoughts


@pytest.mark.parametrize(
    ("choice", "tools", "sent"),
    [
        ("auto", True, {"type": "auto"}),
        ("any", True, {"type": "any"}),
        ("none", True, {"type": "none"}),
        ("get_weather", True, {"type": "tool", "name": "get_weather"}),
        ("auto", False, None),
        ("none", False, None),
    ],
)
def test_which_tool_may_or_must_be_called(choice: str, tools: bool, sent: dict[str, Any] | None) -> None:
    request = ModelRequest(messages=(ASKED,), tools=(get_weather,) if tools else (), tool_choice=choice)
    body = request_body(MODEL, request)
    assert body.get("tool_choice") == sent
    assert ("tools" in body) is tools


@pytest.mark.parametrize(
    ("choice", "tools", "words"),
    [
        ("get_wether", True, "the model must call 'get_wether', which it is not offered (did you mean 'get_weather'?)"),
        ("get_weather", False, "its tools: none"),
        ("any", False, "the model must call a tool, and there is none"),
    ],
)
def test_a_tool_that_is_not_there_cannot_be_forced(choice: str, tools: bool, words: str) -> None:
    request = ModelRequest(messages=(ASKED,), tools=(get_weather,) if tools else (), tool_choice=choice)
    with pytest.raises(ModelError) as caught:
        request_body(MODEL, request)
    assert words in str(caught.value)
    assert caught.value.type == "invalid_request_error"


def test_calls_of_tools_that_are_gone_come_with_their_names_so_that_the_api_takes_them() -> None:
    history = (ASKED, Message("assistant", "", tool_calls=[CALL]), DONE)
    body = request_body(MODEL, ModelRequest(messages=history))
    assert [offered["name"] for offered in body["tools"]] == ["get_weather"]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("system", "said", "sent"),
    [
        ("", "", None),
        ("  \n", " ", None),
        ("Be brief.", "  ", "Be brief."),
        ("Be brief.", "Be kind.", "Be brief.\n\nBe kind."),
        (" ", "Be kind.", "Be kind."),
    ],
)
def test_a_blank_system_prompt_is_not_sent(system: str, said: str, sent: str | None) -> None:
    request = ModelRequest(system=system, messages=(Message("system", said), ASKED))
    body = request_body(AnthropicModel("m", api_key="k", cache=False), request)
    assert body.get("system") == ([text(sent)] if sent else None)


def test_options_of_the_request_win_over_those_of_the_model_and_none_takes_one_away() -> None:
    model = AnthropicModel(
        "m", api_key="k", options={"stop_sequences": ["A"], "temperature": 0.2, "extra_body": {"top_p": 0.5}}
    )
    request = ModelRequest(messages=(ASKED,), options={"stop_sequences": ["B"], "temperature": None, "max_tokens": 9})
    plain, changed = request_body(model, ModelRequest(messages=(ASKED,))), request_body(model, request)
    assert (plain["stop_sequences"], plain["temperature"], plain["top_p"]) == (["A"], 0.2, 0.5)
    assert (changed["stop_sequences"], changed["max_tokens"], changed["top_p"]) == (["B"], 9, 0.5)
    assert "temperature" not in changed


def test_a_choice_among_the_options_counts_unless_the_request_makes_one() -> None:
    one_at_a_time = {"type": "auto", "disable_parallel_tool_use": True}
    model = AnthropicModel("m", api_key="k", options={"tool_choice": one_at_a_time})
    free = request_body(model, ModelRequest(messages=(ASKED,), tools=(get_weather,)))
    forced = request_body(model, ModelRequest(messages=(ASKED,), tools=(get_weather,), tool_choice="any"))
    none = request_body(model, ModelRequest(messages=(ASKED,)))
    assert (free["tool_choice"], forced["tool_choice"]) == (one_at_a_time, {"type": "any"})
    assert "tool_choice" not in none


def test_building_a_body_changes_neither_request_nor_model() -> None:
    model = AnthropicModel("m", api_key="k", options={"metadata": {"user_id": "u"}})
    request = ModelRequest(system="s", messages=(ASKED, Message("assistant", "b"), ASKED), tools=(get_weather,))
    first = request_body(model, request)
    first["messages"][0]["content"].clear()
    first["metadata"]["user_id"] = "other"
    first["tools"][0]["input_schema"].clear()
    assert list(problems(request_body(model, request))) == []
    assert request_body(model, request)["metadata"] == {"user_id": "u"}
