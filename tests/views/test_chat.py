"""The transcript that people see."""

from __future__ import annotations

from typing import Any

import pytest

from sagents_nb.messages import Message, Text, Thinking, ToolCall, ToolResult
from sagents_nb.server.display import DisplayMessage, rows_of
from sagents_nb.views import chat_html
from sagents_nb.views.chat import chat_items


def rows(*messages: Any) -> Any:
    found: list[DisplayMessage] = []
    for message in messages:
        found += rows_of(message, conversation_id="c", sequence=len(found) + 1)
    return found


def row(kind: Any, content: Any, **more: Any) -> Any:
    return DisplayMessage(
        conversation_id="c",
        sequence=1,
        message_type=more.pop("role", "assistant"),
        content_type=kind,
        content=content,
        **more,
    )


def test_people_and_models_are_told_apart(parse: Any) -> None:
    page = parse(chat_html(rows(Message("user", "Hi\nthere"), Message("assistant", "**Hello**"))))
    user, answer = page.find_all("article")
    assert user.h5.text == "You"
    assert user.find(class_="sag-plain").text == "Hi\nthere"
    assert answer.h5.text == "Assistant"
    assert answer.strong.text == "Hello"


def test_a_result_is_shown_with_the_call_it_answers(parse: Any) -> None:
    call = ToolCall("get_weather", {"city": "Oslo"}, id="c1")
    found = rows(
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", tool_results=(ToolResult("Sunny", tool_call_id="c1", name="get_weather"),)),
    )
    found[0] = found[0].replace(status="completed", metadata={"duration": 0.085, "output": "asking"})
    cards = parse(chat_html(found)).find_all("details", class_="sag-tool")
    assert len(cards) == 1
    assert cards[0].find(class_="sag-word").text == "done"
    assert cards[0].find(class_="sag-sign").text == "✓"
    assert cards[0].find(class_="sag-time").text == "85 ms"
    assert [pre.text for pre in cards[0].find_all("pre")] == ['{\n  "city": "Oslo"\n}', "asking", "Sunny"]


def test_two_calls_with_the_same_id_each_keep_their_result() -> None:
    def turn(answer: str) -> Any:
        return (
            Message("assistant", "", tool_calls=(ToolCall("t", {}, id="same"),)),
            Message("tool", tool_results=(ToolResult(answer, tool_call_id="same", name="t"),)),
        )

    items = chat_items(rows(*turn("one"), *turn("two")))
    assert [item.result and item.result.content["content"] for item in items] == ["one", "two"]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("pending", "waiting"),
        ("executing", "running"),
        ("completed", "done"),
        ("failed", "failed"),
        ("interrupted", "waits for you"),
        ("cancelled", "cancelled"),
    ],
)
def test_the_status_of_a_call_is_a_sign_and_a_word(parse: Any, status: str, word: str) -> None:
    content = {"call_id": "c", "name": "t", "arguments": {}}
    card = parse(chat_html([row("tool_call", content, status=status, tool_call_id="c")])).find(class_="sag-tool")
    assert card.find(class_="sag-word").text == word
    assert len(card.find(class_="sag-sign").text) == 1


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("length", "Cut off at the length limit"),
        ("cancelled", "Stopped by you"),
        ("refused", "Refused by the model"),
        ("stream_error", "The connection was lost"),
    ],
)
def test_a_message_that_stopped_early_says_why(parse: Any, reason: str, words: str) -> None:
    page = parse(chat_html(rows(Message("assistant", "It is", status=reason))))
    assert page.find(class_="sag-stopped").text == words


def test_the_mark_stands_beside_a_folded_thought_not_in_it(parse: Any) -> None:
    page = parse(chat_html(rows(Message("assistant", [Thinking(text="hm")], status="length"))))
    assert page.find(class_="sag-stopped").find_parent("details") is None


def test_thoughts_are_folded_and_empty_texts_left_out(parse: Any) -> None:
    page = parse(chat_html(rows(Message("assistant", [Thinking(text="hm"), Text("  ")]))))
    assert page.find("details", class_="sag-thinking").summary.text == "Thought"
    assert page.find("article") is None


def test_errors_notices_queue_and_the_answer_in_the_making(parse: Any) -> None:
    page = parse(
        chat_html(
            [row("error", {"text": "boom", "error_type": "overloaded"}), row("notification", {"text": "stopped"})],
            status="running",
            streaming_text="It is",
            streaming_thinking="hm",
            queue=["and then?"],
            error="the store is locked",
        )
    )
    assert page.find(class_="sag-strip-error").code.text == "overloaded"
    assert page.find(class_="sag-strip-note").text == "stopped"
    assert page.find(attrs={"data-key": "stream-text"}).text == "It is"
    assert page.find(attrs={"data-key": "stream-thinking"}).text == "hm"
    assert "and then?" in page.find(class_="sag-queue").text
    assert "the store is locked" in page.find(class_="sag-notice").text
    assert page.find(class_="sag-status").text == "Running"


def test_an_empty_conversation_says_so(parse: Any) -> None:
    assert parse(chat_html([])).find(class_="sag-empty").text == "Nothing said yet."


def test_every_kind_of_row_is_shown_and_none_is_blank(parse: Any) -> None:
    kinds = [
        row("image", {"url": "https://e.org/a.png", "alt_text": "a chart"}),
        row("file_reference", {"path": "/a.txt", "name": "a.txt"}),
        row("structured_data", {"format": "json", "data": {"x": 1}}),
        row("todo_snapshot", {"todos": [{"id": 1, "content": "Plan", "status": "completed"}]}),
        row("tool_result", {"tool_call_id": "lost", "name": "t", "content": "alone"}, tool_call_id="lost"),
    ]
    page = parse(chat_html(kinds))
    assert [bool(item.get_text(strip=True)) for item in page.find(class_="sag-rows").find_all(recursive=False)] == [
        True
    ] * 5


def test_an_image_in_the_row_is_shown_only_when_it_is_a_picture(parse: Any) -> None:
    pixel = "iVBORw0KGgo="
    shown = parse(chat_html([row("image", {"data": pixel, "mime_type": "image/png"})])).img
    assert shown["src"] == f"data:image/png;base64,{pixel}"
    for kind, data in [("image/svg+xml", pixel), ("text/html", pixel), ("image/png", '" onerror="alert(1)')]:
        assert parse(chat_html([row("image", {"data": data, "mime_type": kind})])).img is None


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</pre></div></textarea></details><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "{{ 7 * 7 }}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text_in_every_position(parse: Any, text: str) -> None:
    call = ToolCall(text, {text: text}, id="c1")
    found = [
        *rows(
            Message("user", text),
            Message("system", text),
            Message("assistant", [Thinking(text=text), Text(text)], tool_calls=(call,)),
            Message("tool", tool_results=(ToolResult(text, tool_call_id="c1", name=text, is_error=True),)),
        ),
        row("error", {"text": text, "error_type": text}),
        row("notification", {"text": text, "stop_reason": text}),
        row("file_reference", {"path": text, "name": text}),
        row("image", {"url": text, "caption": text, "alt_text": text}),
        row("structured_data", {"format": text, "data": text}),
        row("todo_snapshot", {"todos": [{"id": 1, "content": text, "status": text}]}),
    ]
    found[4] = found[4].replace(metadata={"display_text": text, "output": text, "error": text, "hitl_decision": text})
    page = parse(chat_html(found, status=text, streaming_text=text, streaming_thinking=text, queue=[text], error=text))
    assert page.find(["script", "img", "textarea"]) is None
    assert not [tag for tag in page.find_all(True) for name in tag.attrs if name.startswith("on")]
    assert page.get_text().count(text) >= 15
    assert "49" not in page.get_text()


def test_a_link_of_a_file_or_image_goes_nowhere_but_the_web(parse: Any) -> None:
    for address in ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd"):
        page = parse(chat_html([row("file_reference", {"path": address, "name": "x"}), row("image", {"url": address})]))
        assert page.a is None


def test_a_line_of_a_megabyte_is_clipped_with_the_rest_behind_a_fold(parse: Any) -> None:
    call = ToolCall("t", {}, id="c1")
    html = chat_html(
        rows(
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", tool_results=(ToolResult("x" * 1_000_000, tool_call_id="c1", name="t"),)),
        )
    )
    assert len(html) < 300_000
    page = parse(html)
    assert page.find("details", class_="sag-more").summary.text == "show all (1.0 M characters)"
    assert "800000 more characters are in the session" in page.text


def test_a_long_conversation_shows_its_end(parse: Any) -> None:
    page = parse(chat_html(rows(*[Message("user", f"m{i}") for i in range(500)])))
    articles = page.find_all("article")
    assert len(articles) == 200
    assert articles[-1].find(class_="sag-plain").text == "m499"
    assert "300 earlier items are not shown" in page.text
