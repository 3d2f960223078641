"""What an agent, a result, a session and a report show, and what they never show."""

from __future__ import annotations

from typing import Any

import pytest

from sagents_nb import State, Todo
from sagents_nb.views import (
    agent_html,
    chat_html,
    report_html,
    result_html,
    sandwich_html,
    session_html,
    state_html,
    trace_html,
)


def test_an_agent_shows_model_prompt_tools_and_sandwich(parse: Any, agent: Any) -> None:
    page = parse(agent_html(agent))
    assert page.h3.text.startswith("forecaster")
    assert "ScriptedModel" in page.h3.text
    assert "Be brief." in page.text
    assert "Current weather in a city." in page.text
    assert page.find(class_="sag-sandwich")


def test_values_of_scope_and_tool_context_are_in_no_html(agent: Any, result: Any) -> None:
    session = agent.session()
    try:
        pages = [
            agent_html(agent),
            result_html(result),
            report_html(result),
            session_html(session.snapshot(), agent),
            sandwich_html(agent.stack, result.events),
            trace_html(result.events),
            state_html(result.state),
        ]
    finally:
        session.stop()
    for page in pages:
        assert "SCOPE-SECRET" not in page
        assert "CONTEXT-SECRET" not in page
        assert "api_key" not in page
    assert "dict, 1 key" in pages[0]


def test_a_result_shows_its_answer_and_what_lies_behind_it(parse: Any, result: Any) -> None:
    page = parse(result_html(result))
    assert page.find(class_="sag-status").text == "Completed"
    assert page.find(class_="sag-md").strong.text == "sunny"
    assert [fold.summary.text for fold in page.find_all("details", class_="sag-fold")] == [
        "What the middleware did",
        "Trace",
        "State",
    ]


def test_a_report_is_one_page_that_needs_nothing_and_runs_nothing(parse: Any, result: Any) -> None:
    html = report_html(result)
    page = parse(html)
    assert html.startswith("<!doctype html>")
    assert [head.text for head in page.find_all("h2")] == ["The sandwich", "Transcript", "Trace", "Final state"]
    assert page.find(["script", "link", "iframe", "img"]) is None
    assert "url(" not in page.style.text
    assert "@import" not in page.style.text
    assert "prefers-color-scheme: dark" in page.style.text
    assert page.find(class_="sag-tool").find(class_="sag-word").text == "done"
    assert "asking the station" in page.find(class_="sag-tool").text


def test_a_session_shows_transcript_and_sandwich(parse: Any, agent: Any) -> None:
    with agent.session() as session:
        session.send("Weather in Oslo?")
        session.wait(10)
        page = parse(session_html(session.snapshot(), agent))
    assert [article.h5.text for article in page.find_all("article")] == ["You", "Assistant"]
    assert page.find(attrs={"data-cell": "before_model:Notes"}).find(class_="sag-runs").text == "×2"


def test_a_state_shows_messages_tasks_and_metadata(parse: Any) -> None:
    state = State.from_text("Weather?").put_metadata("tags", ["a", {"deep": "<b>x</b>"}])
    state = state.replace(todos=(Todo(id=1, content="Ask", status="in_progress"),))
    page = parse(state_html(state))
    assert page.find(class_="sag-todos").li["data-status"] == "in_progress"
    assert page.find(class_="sag-role").text == "user"
    assert [key.text for key in page.find_all(class_="sag-k")] == ["tags", "deep"]
    assert "<b>x</b>" in page.text
    assert page.find("b") is None


def test_empty_things_say_so(parse: Any) -> None:
    page = parse(state_html(State()))
    assert "No messages yet." in page.text
    assert "No tasks." in page.text
    assert "Nothing has happened yet." in parse(trace_html([])).text


def test_a_trace_tells_when_what_where_how_long_and_what_changed(parse: Any, result: Any) -> None:
    page = parse(trace_html(result.events))
    rows = [[cell.get_text(" ", strip=True) for cell in row.find_all("td")] for row in page.tbody.find_all("tr")]
    what = [(row[1], row[2]) for row in rows]
    assert what[0] == ("run started", "")
    assert what.index(("before_model", "Notes")) < what.index(("model answered", "scripted"))
    assert ("tool", "get_weather") in what
    assert what[-1] == ("run completed", "")
    first = next(row for row in rows if row[1:3] == ["before_model", "Notes"])
    assert "metadata.turns" in first[4]


@pytest.mark.parametrize("view", [agent_html, lambda _agent: chat_html([]), lambda agent: sandwich_html(agent.stack)])
def test_a_static_view_carries_its_own_style_and_no_script(parse: Any, agent: Any, view: Any) -> None:
    page = parse(view(agent))
    assert page.div["class"] == ["sag", "sag-static"]
    assert page.style.text
    assert page.find("script") is None
    assert not page.find_all(lambda tag: any(name.startswith("on") for name in tag.attrs))


def test_style_is_only_what_the_view_needs() -> None:
    assert "sag-phase" not in chat_html([])
    assert "sag-composer" not in chat_html([])


def test_views_import_nothing_of_jupyter() -> None:
    import subprocess
    import sys

    code = (
        "import sys, sagents_nb.views; "
        "print([m for m in ('IPython', 'ipywidgets', 'anywidget', 'ipykernel', 'duckdb', 'anthropic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
