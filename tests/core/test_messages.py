"""Messages, calls and results: which shapes there are, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from sagents_nb import Agent, File, Image, Message, ScriptedModel, State, Text, Thinking, ToolCall, ToolResult, Usage

CALL = ToolCall("pay", {"euro": 1}, id="c")
RESULT = ToolResult("paid", tool_call_id="c", name="pay")

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: Message("user", "x", tool_calls=[CALL]),
        "tool_calls in a message of role 'user': Message('assistant', …, tool_calls=…) has them",
    ),
    (lambda: Message("tool", tool_calls=[CALL]), "tool_calls in a message of role 'tool'"),
    (lambda: Message("system", "x", tool_calls=[CALL]), "tool_calls in a message of role 'system'"),
    (
        lambda: Message("assistant", "x", tool_results=[RESULT]),
        "tool_results in a message of role 'assistant': Message('tool', tool_results=…) has them",
    ),
    (lambda: Message("user", tool_results=[RESULT]), "tool_results in a message of role 'user'"),
    (lambda: Message("assistant", tool_calls=[CALL]).replace(role="user"), "tool_calls in a message of role 'user'"),
    (
        lambda: Message.from_json({"role": "user", "tool_results": [{"content": "x"}]}),
        "tool_results in a message of role 'user'",
    ),
    (
        lambda: Message("tool", [Image(url="u")], tool_results=[RESULT]),
        "the content of a tool message is text: pictures and files belong in its results, Message('tool', tool_results=[",
    ),
    (lambda: Message("tool", [Thinking(text="t")]), "the content of a tool message is text"),
    (lambda: Message("human", "x"), "'user', 'assistant', 'tool' or 'system'"),  # type: ignore[arg-type]
    (
        lambda: Image(),
        "Image takes either url or data and has neither: Image(url='https://…') or Image(data='…', media_type='image/png')",
    ),
    (lambda: Image(url="u", data="aGk=", media_type="image/png"), "Image takes either url or data and has both"),
    (lambda: Image(url="", data=""), "Image takes either url or data and has neither"),
    (lambda: Image(data="aGk="), "Image with data takes a media_type, too: Image(data='…', media_type='image/png')"),
    (
        lambda: Image(data=b"\x89PNG", media_type="image/png"),
        "data is base64 text: base64.b64encode(the_bytes).decode() (this is bytes)",
    ),
    (lambda: Image(data="aGk", media_type="image/png"), "data is base64 text: base64.b64encode(the_bytes).decode() ("),
    (lambda: Image(data="aG\nk=", media_type="image/png"), "data is base64 text"),
    (lambda: Image(data="wörd", media_type="image/png"), "data is base64 text"),
    (
        lambda: File(name="f"),
        "File takes either url or data and has neither: File(url='https://…') or File(data='…', media_type='applica",
    ),
    (lambda: File(data="aGk="), "File with data takes a media_type, too"),
    (lambda: File(data="no base64", media_type="text/plain"), "data is base64 text"),
    (
        lambda: Message("user", [Text("x"), {"type": "image"}]),  # type: ignore[list-item]
        "Image takes either url or data and has neither",
    ),
    (lambda: Usage(input_tokens=-1), "greater than or equal to 0"),
    (lambda: Usage(cache_write_tokens=-5), "greater than or equal to 0"),
    (lambda: ToolCall("pay", []), "arguments is a list; it is a dict with string keys"),  # type: ignore[arg-type]
    (lambda: ToolCall("pay", ""), "arguments is a str; it is a dict with string keys"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_together_is_refused_in_words(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make()
    assert words in str(caught.value)


LEGAL: list[Message] = [
    Message("user", ""),
    Message("user", None),
    Message("user", [Text(""), Image(url="u"), File(url="u", name="n")]),
    Message("system", "Be brief."),
    Message("assistant"),
    Message("assistant", [], tool_calls=[CALL, ToolCall("pay")]),
    Message("tool"),
    Message("tool", "all done", tool_results=[RESULT, ToolResult([Image(url="u")], tool_call_id="d")]),
]


@pytest.mark.parametrize("message", LEGAL, ids=range(len(LEGAL)))
def test_these_are_messages(message: Message) -> None:
    assert Message.from_json(message.to_json()) == message


SAID: list[tuple[Message, str, tuple[Any, ...]]] = [
    (Message("user", "hi"), "hi", (Text("hi"),)),
    (Message("user", Text("hi")), "hi", (Text("hi"),)),
    (Message("user", ["a", Text("b")]), "a\n\nb", (Text("a"), Text("b"))),
    (Message("user", None), "", ()),
    (Message("user", [Image(url="u")]), "", (Image(url="u"),)),
    (Message("assistant", [Thinking(text="hm"), Text("a")]), "a", (Thinking(text="hm"), Text("a"))),
]


@pytest.mark.parametrize(("message", "text", "content"), SAID, ids=range(len(SAID)))
def test_content_is_always_parts_and_text_is_always_a_str(
    message: Message, text: str, content: tuple[Any, ...]
) -> None:
    assert (message.text, message.content) == (text, content)


ABOUT: list[tuple[Message, bool, bool, bool]] = [
    # message, is_tool_call, tool_had_errors, is_empty
    (Message("user", "hi"), False, False, False),
    (Message("assistant", "hi"), False, False, False),
    (Message("assistant"), False, False, True),
    (Message("assistant", tool_calls=[CALL]), True, False, False),
    (Message("assistant", "so", tool_calls=[CALL]), True, False, False),
    (Message("assistant", tool_calls=[CALL], status="length"), False, False, False),
    (Message("assistant", tool_calls=[CALL], status="cancelled"), False, False, False),
    (Message("tool"), False, False, True),
    (Message("tool", tool_results=[RESULT]), False, False, False),
    (Message("tool", tool_results=[RESULT, ToolResult("no", tool_call_id="d", is_error=True)]), False, True, False),
]


@pytest.mark.parametrize(("message", "calls", "errors", "empty"), ABOUT, ids=range(len(ABOUT)))
def test_what_a_message_says_of_itself(message: Message, calls: bool, errors: bool, empty: bool) -> None:
    assert (message.is_tool_call, message.tool_had_errors, message.is_empty) == (calls, errors, empty)


async def test_an_empty_answer_is_a_message_after_which_nothing_is_asked() -> None:
    model = ScriptedModel([Message("assistant")])
    result = await Agent(model=model).execute(State.from_text("hi"))
    assert (result.status, result.state.messages[-1].content, len(model.requests)) == ("completed", (), 1)


def test_usage_adds_up() -> None:
    one, two = Usage(input_tokens=10, output_tokens=5), Usage(input_tokens=5, output_tokens=10, cache_read_tokens=7)
    assert one + two == Usage(input_tokens=15, output_tokens=15, cache_read_tokens=7)
    assert sum([one, two, two]) == Usage(input_tokens=20, output_tokens=25, cache_read_tokens=14)
    assert sum([one, two], Usage()) == one + two
    assert (one + two).total_tokens == 30


@pytest.mark.parametrize("other", [1, False, None, {"input_tokens": 1}])
def test_usage_adds_up_with_usage_only(other: Any) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        Usage() + other
    with pytest.raises(TypeError, match="unsupported operand"):
        other + Usage()
