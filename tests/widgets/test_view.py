"""What people and browsers do with a view: press, display, freeze, close, make again."""

from __future__ import annotations

import threading
from typing import Any

import ipywidgets
import pytest

from sagents_nb import Agent, ConfigurationError, ScriptedModel, SessionError
from sagents_nb.server.cell import CellRun
from sagents_nb.widgets import ChatView, SandwichView, Workbench


def living() -> int:
    return len(ipywidgets.widgets.widget._instances)


def test_press_sends_and_stops_as_a_click_does(session: Any, page: Any) -> None:
    view = ChatView(session)
    view.press("send", text="hello")
    view.press("stop")
    page.say(view, t="press", n=3, name="send", values={"text": "from a browser"})
    assert session.sent == ["hello", "from a browser"]
    assert session.cancelled == 1
    assert page.acks == [{"t": "ack", "n": 3}]


def test_a_mistyped_press_says_what_there_is(session: Any) -> None:
    view = ChatView(session)
    with pytest.raises(ConfigurationError) as raised:
        view.press("sned", text="x")
    assert str(raised.value) == (
        "ChatView has no action 'sned' (did you mean 'send'?); it has cell, earlier, send, stop"
    )
    with pytest.raises(ConfigurationError) as raised:
        view.press("send", words="x")
    assert str(raised.value) == "send: text: Field required; words: Extra inputs are not permitted"


def test_what_the_session_refuses_is_raised_from_press_and_answered_to_the_page(session: Any, page: Any) -> None:
    session.refuse = SessionError("the session was stopped")
    view = ChatView(session)
    with pytest.raises(SessionError):
        view.press("send", text="x")
    page.say(view, t="press", n=7, name="send", values={"text": "x"})
    assert page.acks == [{"t": "ack", "n": 7, "error": "the session was stopped"}]


@pytest.mark.parametrize(
    "message",
    [
        None,
        "text",
        {},
        {"t": "eval", "code": "1"},
        {"t": "press"},
        {"t": "press", "name": 1},
        {"t": "press", "name": "send", "values": {"text": ["x"]}},
        {"t": "press", "name": "send", "values": {"text": "x" * 1_000_001}},
        {"t": "press", "name": "send", "values": {"text": "x"}, "extra": 1},
        {"t": "press", "name": "x" * 100},
        {"t": "visible", "view": "v", "panes": "chat"},
        {"t": "resync", "seq": "1"},
    ],
)
def test_what_a_browser_may_not_say_is_logged_and_ignored(
    session: Any, page: Any, caplog: pytest.LogCaptureFixture, message: Any
) -> None:
    view = ChatView(session)
    view._receive(view._wire, message, [])
    assert session.sent == []
    assert "does not understand" in caplog.text
    assert page.acks == []


def test_a_message_that_was_not_understood_is_answered_so_that_no_text_is_lost(session: Any, page: Any) -> None:
    view = ChatView(session)
    page.say(view, t="press", n=4, name="send", values={"text": "x" * 1_000_001})
    assert page.acks == [{"t": "ack", "n": 4, "error": "The kernel did not understand this."}]


def test_hello_is_answered_on_the_thread_that_asked(session: Any, page: Any) -> None:
    page.say(ChatView(session), t="hello", n=0)
    assert page.acks == [{"t": "ack", "n": 0}]


def test_nothing_goes_out_over_the_wire_but_answers(session: Any, clock: Any, page: Any) -> None:
    # What other threads publish on a comm decides which thread hears it, on ipykernel 7.4.
    view = ChatView(session)
    page.open(view, "chat")
    view.press("send", text="x")
    clock.advance(1)
    assert [ack["t"] for ack in page.acks] == ["ack"] * 3


def test_a_bundle_holds_the_live_view_static_html_and_a_stable_text(session: Any) -> None:
    view = ChatView(session)
    bundle = view._repr_mimebundle_()
    assert bundle["text/plain"] == "ChatView(helper)"
    assert bundle["text/html"].startswith('<div class="sag sag-static">')
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == view.widget.model_id


def test_a_closed_view_is_static_and_the_session_goes_on(session: Any) -> None:
    before = living()
    view = ChatView(session)
    assert session.subscribers
    view.close()
    view.close()
    assert session.subscribers == []
    assert living() == before
    assert set(view._repr_mimebundle_()) == {"text/plain", "text/html"}
    with pytest.raises(ConfigurationError):
        view.press("send", text="x")


def test_freeze_puts_static_html_in_place_and_closes(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Handle:
        def update(self, bundle: dict[str, Any], *, raw: bool) -> None:
            shown.append((bundle, raw))

    monkeypatch.setattr("IPython.display.display", lambda *_arguments, **_options: Handle())
    view = ChatView(session)
    view._ipython_display_()
    view._ipython_display_()
    view.freeze()
    assert [sorted(bundle) for bundle, raw in shown if raw] == [["text/html", "text/plain"]] * 2
    assert session.subscribers == []
    assert view.html() == shown[0][0]["text/html"]


def test_running_a_cell_again_closes_what_it_made_before(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = [CellRun("cell", "0")]
    monkeypatch.setattr("sagents_nb.widgets.view.executing_cell", lambda: run[0])
    counts = []
    for number in range(20):
        run[0] = CellRun("cell", str(number))
        first, second = ChatView(session), SandwichView(session)
        counts.append((living(), threading.active_count(), len(session.subscribers)))
        assert not first._closed
        assert not second._closed
    assert len(set(counts)) == 1
    run[0] = CellRun("another", "99")
    third = ChatView(session)
    assert not second._closed
    run[0] = CellRun("cell", "100")
    ChatView(session).close()
    assert [view._closed for view in (second, third)] == [True, False]
    third.close()


def test_a_view_of_something_else_says_what_it_shows() -> None:
    with pytest.raises(ConfigurationError) as raised:
        SandwichView(42)
    assert str(raised.value) == (
        "SandwichView shows a session, an agent, a stack or a result, got 42, a int; "
        "for a conversation: SandwichView(agent.session())"
    )


def test_agents_stacks_and_results_can_be_looked_at(agent: Agent) -> None:
    result = agent.run("hello")
    for what in (agent, agent.stack, result):
        view = SandwichView(what)
        assert 'data-cell="before_model:A"' in view.html()
        assert view.session is None
        view.close()
    bench = Workbench(result)
    assert ">hi<" in bench.html()
    bench.close()


def test_a_workbench_of_an_agent_has_a_session_of_its_own() -> None:
    bench = Workbench(Agent(name="helper", model=ScriptedModel(["Hello!"])))
    try:
        bench.press("send", text="hi")
        assert bench.session.wait(10) == "idle"
        html = bench.html()
        assert "Hello!" in html
        assert [title in html for title in ("Sandwich", "State", "Trace", "Context")] == [True] * 4
    finally:
        bench.close()
        assert not bench.session.stopped
        bench.session.stop()


def test_a_live_view_of_a_real_session_streams_lights_and_settles(agent: Agent, page: Any) -> None:
    with agent.session() as session:
        bench = Workbench(session)
        page.open(bench, "chat", "sandwich")
        bench.press("send", text="hello")
        session.wait(10)
        deadline = threading.Event()
        for _ in range(50):
            if any(op.get("status") == "idle" for op in page.ops) and "hi" in str(page.ops):
                break
            deadline.wait(0.1)
        steps = [step[0] for op in page.ops if op["op"] == "lit" for step in op["steps"] if step[1]]
        assert steps == ["before_model:A", "before_model:B", "model:", "after_model:B", "after_model:A"]
        assert any("<p>hi</p>" in op.get("html", "") for op in page.ops)
        bench.close()


def test_both_comms_carry_the_same_module_and_only_the_screen_the_style(session: Any) -> None:
    view = ChatView(session)
    assert view._screen._esm == view._wire._esm
    assert "sag-composer" in view._screen._css
    assert not view._wire.has_trait("_css")
    view.close()
