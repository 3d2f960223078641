"""The real ES module in a real browser, without Jupyter: a view in this process, its page in Chromium."""

from __future__ import annotations

import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from sagents_nb import SessionError
from sagents_nb.deltas import TextDelta
from sagents_nb.events import (
    DisplayChanged,
    HookEnded,
    HookStarted,
    ModelDelta,
    ModelEnded,
    ModelStarted,
    StatusChanged,
)
from sagents_nb.messages import Message, ToolCall, ToolResult
from sagents_nb.server.display import DisplayMessage, rows_of
from sagents_nb.views import chat_html, report_html
from sagents_nb.widgets import ChatView, SandwichView, View, Workbench
from sagents_nb.widgets.comm import Screen
from tests.browser import chromium

pytestmark = [pytest.mark.browser]

PAGE = """<!doctype html><meta charset=utf-8><style>body { margin: 16px; background: Canvas; color-scheme: light dark }</style>
<body><div class="sag-box"><div id="screen"></div><div id="wire"></div></div><div id="static"></div>
<script type="module">
import module from "/sagents.js";
class Model {
  constructor(traits) { this.traits = traits; this.handlers = {}; this.sent = []; }
  get(name) { return this.traits[name]; }
  on(name, fn) { (this.handlers[name] ||= []).push(fn); }
  off(name, fn) { this.handlers[name] = (this.handlers[name] || []).filter((each) => each !== fn); }
  send(message) { if (this.broken) throw new Error("no kernel"); this.sent.push(message); }
  emit(message) { for (const fn of this.handlers["msg:custom"] || []) fn(message); }
}
window.begin = (snapshot) => {
  window.screenModel = new Model({ role: "screen", snapshot });
  window.wireModel = new Model({ role: "wire" });
  window.leave = module.render({ model: window.screenModel, el: document.querySelector("#screen") });
  // A host draws the second child when it likes.
  setTimeout(() => module.render({ model: window.wireModel, el: document.querySelector("#wire") }), 40);
};
window.ready = true;
</script>"""


class Server(http.server.BaseHTTPRequestHandler):
    """Serves the page, the module and the style; nothing else exists."""

    def do_GET(self) -> None:
        known = {
            "/": (PAGE, "text/html"),
            "/sagents.js": (str(Screen._esm), "text/javascript"),
            "/sagents.css": (str(Screen._css), "text/css"),
        }
        body, kind = known.get(self.path, ("", "text/plain"))
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_details: Any) -> None:
        return


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


class Elsewhere:
    """A Playwright object whose every use happens on its own thread.

    Playwright's synchronous form allows one driver per thread, and that of the JupyterLab tests may hold this one.
    """

    def __init__(self, thread: ThreadPoolExecutor, real: Any) -> None:
        self._thread = thread
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return _elsewhere(self._thread, self._thread.submit(getattr, self._real, name).result())

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _elsewhere(self._thread, self._thread.submit(self._real, *arguments, **options).result())


def _elsewhere(thread: ThreadPoolExecutor, value: Any) -> Any:
    if isinstance(value, list):
        return [_elsewhere(thread, item) for item in value]
    ours = callable(value) or type(value).__module__.startswith("playwright.")
    return Elsewhere(thread, value) if ours else value


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with ThreadPoolExecutor(1) as thread:
        playwright = _elsewhere(thread, thread.submit(lambda: sync_playwright().start()).result())
        running = playwright.chromium.launch(executable_path=chromium.find(), args=chromium.FLAGS)
        yield running
        running.close()
        playwright.stop()


class Tab:
    """A browser's page and a view, joined by hand: `sync` carries what each has said to the other."""

    def __init__(self, browser: Any, address: str, page: Any, clock: Any, **options: Any) -> None:
        self.kernel = page
        self.clock = clock
        self.context = browser.new_context(viewport={"width": 1100, "height": 900}, **options)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._requested(request.url))
        self.address = address
        self.answering = True

    def _requested(self, url: str) -> None:
        if not url.startswith((self.address, "data:")):
            self.problems.append(f"request: {url}")

    def show(self, view: View, width: int = 1100) -> None:
        self.view = view
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.goto(self.address)
        self.page.wait_for_function("window.ready")
        self.page.add_style_tag(url="/sagents.css")
        self.page.evaluate("(snapshot) => window.begin(snapshot)", view._screen.snapshot)
        self.page.wait_for_function("window.wireModel.sent.some((m) => m.t === 'visible' && m.panes.length)")
        self.sync()
        self.sync()

    def sync(self, seconds: float = 0.5) -> None:
        """Carry everything once around; the kernel's clock moves on."""
        for message in self.page.evaluate("window.wireModel.sent.splice(0)"):
            if self.answering:
                self.view._receive(self.view._wire, message, [])
        self.clock.advance(seconds)
        for message in self._taken(self.kernel.messages):
            self.page.evaluate("(message) => window.screenModel.emit(message)", message)
        for message in self._taken(self.kernel.acks):
            self.page.evaluate("(message) => window.wireModel.emit(message)", message)
        self.page.wait_for_timeout(30)

    @staticmethod
    def _taken(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # As JSON: what the comm carries, tuples as lists.
        taken = json.loads(json.dumps(messages))
        messages.clear()
        return list(taken)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)


@pytest.fixture
def tab(browser: Any, address: str, page: Any, clock: Any) -> Iterator[Tab]:
    made = Tab(browser, address, page, clock)
    yield made
    assert made.problems == []
    made.context.close()


_sequence = iter(range(1, 10**9))


def said(*messages: Message) -> DisplayChanged:
    rows: list[DisplayMessage] = []
    for message in messages:
        rows += rows_of(message, conversation_id="c", sequence=next(_sequence))
    return DisplayChanged(rows=tuple(rows))


def test_enter_sends_shift_enter_breaks_the_line_and_composing_does_neither(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    field = tab.locator("textarea")
    field.click()
    tab.keyboard.type("one")
    tab.keyboard.press("Shift+Enter")
    tab.keyboard.type("two")
    assert field.input_value() == "one\ntwo"
    field.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "bubbles": True})
    assert field.input_value() == "one\ntwo"
    tab.keyboard.press("Enter")
    assert field.input_value() == ""
    tab.sync()
    assert session.sent == ["one\ntwo"]
    assert field.evaluate("(field) => field === document.activeElement")


def test_an_empty_message_is_not_sent(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    tab.locator("textarea").fill("  \n ")
    tab.keyboard.press("Enter")
    tab.sync()
    assert session.sent == []


def test_stop_is_there_before_the_kernel_has_said_anything(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    assert not tab.locator(".sag-stop").is_visible()
    tab.locator("textarea").fill("go")
    tab.keyboard.press("Enter")
    assert tab.locator(".sag-stop").is_visible()
    tab.locator(".sag-stop").click()
    assert tab.locator(".sag-stop").get_attribute("aria-busy") == "true"
    tab.sync()
    assert (session.sent, session.cancelled) == (["go"], 1)
    assert tab.locator(".sag-stop").get_attribute("aria-busy") is None


def test_a_message_that_could_not_be_sent_comes_back_with_the_reason(session: Any, tab: Tab) -> None:
    session.refuse = SessionError("the session was stopped")
    tab.show(ChatView(session))
    tab.locator("textarea").fill("precious words")
    tab.keyboard.press("Enter")
    tab.locator("textarea").fill("more")
    tab.sync()
    assert tab.locator("textarea").input_value() == "precious words\nmore"
    assert tab.locator(".sag-failed").inner_text() == "the session was stopped"
    assert not tab.locator(".sag-stop").is_visible()


def test_a_message_comes_back_when_there_is_no_kernel_any_more(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    tab.evaluate("window.wireModel.broken = true")
    tab.locator("textarea").fill("precious words")
    tab.keyboard.press("Enter")
    assert tab.locator("textarea").input_value() == "precious words"
    assert "could not be sent" in tab.locator(".sag-failed").inner_text()


def test_an_update_takes_nothing_out_of_a_persons_hands(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    call = rows_of(
        Message("assistant", "look", tool_calls=(ToolCall("t", {"a": 1}, id="c1"),)), conversation_id="c", sequence=1
    )
    session.emit(DisplayChanged(rows=tuple(call)))
    tab.sync()
    tab.locator("textarea").fill("half a sent")
    tab.evaluate("document.querySelector('textarea').setSelectionRange(2, 4)")
    tab.locator(".sag-tool summary").click()
    tab.locator("textarea").focus()
    tab.evaluate("document.querySelector('.sag-tool').mine = 1")
    session.display_messages = tuple(call)
    session.emit(
        DisplayChanged(rows=(call[1].replace(status="completed", metadata={"duration": 0.1}),)),
        said(Message("tool", tool_results=(ToolResult("Sunny", tool_call_id="c1", name="t"),))),
        StatusChanged(status="running"),
    )
    tab.sync()
    tab.view._receive(tab.view._wire, {"t": "resync", "n": 1, "seq": 0}, [])
    tab.sync()
    assert tab.locator("textarea").input_value() == "half a sent"
    assert tab.evaluate("[document.querySelector('textarea').selectionStart, document.activeElement.name]") == [
        2,
        "text",
    ]
    assert tab.evaluate("[document.querySelector('.sag-tool').open, document.querySelector('.sag-tool').mine]") == [
        True,
        1,
    ]
    assert "Sunny" in tab.locator(".sag-tool").inner_text()
    assert tab.locator(".sag-tool .sag-word").inner_text() == "done"


def test_selected_text_stays_until_the_person_lets_go(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    row = rows_of(Message("user", "before"), conversation_id="c", sequence=1)[0]
    session.emit(DisplayChanged(rows=(row,)))
    tab.sync()
    tab.evaluate("document.getSelection().selectAllChildren(document.querySelector('.sag-user .sag-plain'))")
    session.emit(DisplayChanged(rows=(row.replace(content={"text": "after"}),)))
    tab.sync()
    assert tab.evaluate("String(document.getSelection())") == "before"
    tab.evaluate("document.getSelection().removeAllRanges()")
    tab.wait_for_timeout(300)
    assert tab.locator(".sag-user .sag-plain").inner_text() == "after"


def at_end(tab: Tab) -> bool:
    return bool(
        tab.evaluate(
            "(() => { const l = document.querySelector('.sag-log'); return l.scrollHeight - l.scrollTop - l.clientHeight < 30 })()"
        )
    )


def test_it_follows_only_a_reader_who_is_at_the_end(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    session.emit(*[said(Message("user", f"message {number}")) for number in range(60)])
    tab.sync()
    assert at_end(tab)
    tab.evaluate("document.querySelector('.sag-log').scrollTop = 300")
    tab.wait_for_timeout(50)
    top = tab.evaluate("document.querySelector('.sag-log').scrollTop")
    session.emit(*[said(Message("user", f"later {number}")) for number in range(10)])
    tab.sync()
    assert tab.evaluate("document.querySelector('.sag-log').scrollTop") == top
    tab.locator(".sag-latest").click()
    assert at_end(tab)
    assert not tab.locator(".sag-latest").is_visible()
    session.emit(said(Message("assistant", "long\n\n" * 30)))
    tab.sync()
    assert at_end(tab)


def test_older_messages_come_in_above_without_moving_what_is_read(session: Any, tab: Tab) -> None:
    session.display_messages = said(*[Message("user", f"message {number}") for number in range(400)]).rows
    tab.show(ChatView(session))
    tab.evaluate("document.querySelector('.sag-log').scrollTop = 0")
    tab.wait_for_timeout(50)
    where = "(text) => [...document.querySelectorAll('article')].find((a) => a.textContent.trim().endsWith(text)).getBoundingClientRect().top"
    before = tab.evaluate(where, "message 200")
    tab.locator("[data-press=earlier]").click()
    tab.sync()
    assert tab.locator("article").count() == 300
    assert tab.locator("article .sag-plain").first.text_content() == "message 100"
    assert abs(tab.evaluate(where, "message 200") - before) < 3


def test_streamed_text_is_appended_to_one_node_and_becomes_markdown_at_the_end(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    session.emit(StatusChanged(status="running"), ModelStarted(cycle=1, model="m"))
    tab.sync()
    for piece in ("It is ", "**sun", "ny** <b>"):
        session.emit(ModelDelta(delta=TextDelta(piece), cycle=1))
        tab.sync(0.05)
    nodes = "document.querySelector('[data-key=stream-text]').childNodes"
    assert tab.evaluate(f"[{nodes}.length, {nodes}[0].data]") == [1, "It is **sunny** <b>"]
    message = Message("assistant", "It is **sunny** <b>")
    session.emit(
        ModelEnded(cycle=1, model="m", message=message, duration=1), said(message), StatusChanged(status="idle")
    )
    tab.sync()
    assert tab.locator("[data-key=stream-text]").inner_text() == ""
    assert tab.locator(".sag-md strong").inner_text() == "sunny"
    assert not tab.locator(".sag-stop").is_visible()


def test_a_lost_delta_is_noticed_and_everything_asked_for(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    session.emit(said(Message("user", "lost")))
    tab.clock.advance(1)
    tab.kernel.messages.clear()
    session.emit(said(Message("user", "next")))
    tab.sync()
    assert tab.locator("article").count() == 0
    tab.sync()
    assert [text.rpartition("\n")[2] for text in tab.locator("article").all_inner_texts()] == ["lost", "next"]


def test_cells_light_up_in_order_and_long_enough_to_be_seen(session: Any, tab: Tab) -> None:
    tab.show(SandwichView(session))
    tab.evaluate("""() => {
        window.seen = [];
        new MutationObserver((records) => { for (const { target } of records)
            window.seen.push([target.dataset.cell, target.hasAttribute("data-lit"), performance.now()]) })
            .observe(document.body, { attributes: true, attributeFilter: ["data-lit"], subtree: true });
    }""")
    for name, hook in [("A", "before_model"), ("B", "before_model"), ("B", "after_model"), ("A", "after_model")]:
        session.emit(HookStarted(middleware=name, hook=hook, cycle=1))
        session.emit(HookEnded(middleware=name, hook=hook, cycle=1, duration=0.000003))
    tab.sync()
    tab.wait_for_timeout(900)
    order = {
        cell: tab.locator(f"[data-cell='{cell}']").get_attribute("data-lit-order")
        for cell in ("before_model:A", "before_model:B", "after_model:B", "after_model:A")
    }
    assert list(order.values()) == ["1", "2", "3", "4"]
    seen = tab.evaluate("window.seen")
    lit = {cell: at for cell, on, at in seen if on}
    dark = {cell: at for cell, on, at in seen if not on}
    assert all(dark[cell] - lit[cell] >= 140 for cell in order)
    assert tab.locator("[data-lit]").count() == 0


def test_lights_of_a_storm_end_within_a_second_or_so(session: Any, tab: Tab) -> None:
    tab.show(SandwichView(session))
    for _ in range(400):
        session.emit(HookStarted(middleware="A", hook="before_model", cycle=1))
        session.emit(HookEnded(middleware="A", hook="before_model", cycle=1, duration=0.000003))
    tab.sync()
    started = time.monotonic()
    tab.wait_for_function("document.querySelector(\"[data-cell='before_model:A']\").dataset.litOrder?.endsWith('400')")
    assert time.monotonic() - started < 2.5


def test_opening_a_cell_shows_what_it_changed(session: Any, tab: Tab) -> None:
    tab.show(SandwichView(session))
    before = session.state
    session.emit(
        HookEnded(
            middleware="A",
            hook="before_model",
            cycle=1,
            duration=0.1,
            changed=True,
            before=before,
            after=before.put_metadata("title", "<i>Oslo</i>"),
        )
    )
    tab.sync()
    tab.locator("[data-cell='before_model:A'] summary").click()
    tab.sync()
    assert "<i>Oslo</i>" in tab.locator("[data-cell='before_model:A'] .sag-cell-body").inner_text()


def test_tabs_by_mouse_and_by_keyboard_and_side_by_side_where_there_is_room(session: Any, tab: Tab) -> None:
    tab.show(Workbench(session), width=600)
    assert tab.locator("[data-pane=chat]").is_visible()
    assert not tab.locator("[data-pane=sandwich]").is_visible()
    tab.locator("[role=tab][data-tab=chat]").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("[data-pane=sandwich]").is_visible()
    assert not tab.locator("[data-pane=chat]").is_visible()
    tab.locator("[role=tab][data-tab=trace]").click()
    tab.wait_for_timeout(80)
    tab.sync()
    assert "Nothing has happened yet." in tab.locator("[data-pane=trace]").inner_text()
    tab.set_viewport_size({"width": 1200, "height": 900})
    assert tab.locator("[data-pane=chat]").is_visible()
    assert tab.locator("[data-pane=trace]").is_visible()


HOSTILE = (
    "</pre></div></textarea></details><script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"
    "<svg onload='window.pwned = 1'> [x](javascript:window.pwned=1) ![y](http://tracker.invalid/a.png) "
    '" onmouseover="window.pwned = 1" autofocus onfocus="window.pwned = 1"'
)


def test_hostile_text_runs_nowhere_and_loads_nothing(session: Any, tab: Tab, agent: Any) -> None:
    call = ToolCall(HOSTILE, {HOSTILE: HOSTILE}, id="c1")
    everything = said(
        Message("user", HOSTILE),
        Message("assistant", HOSTILE, tool_calls=(call,)),
        Message("tool", tool_results=(ToolResult(HOSTILE, tool_call_id="c1", name=HOSTILE),)),
    )
    session.display_messages = everything.rows
    tab.show(Workbench(session))
    session.emit(
        StatusChanged(status="running"),
        ModelStarted(cycle=1, model=HOSTILE),
        ModelDelta(delta=TextDelta(HOSTILE), cycle=1),
        HookEnded(middleware=HOSTILE, hook="before_model", cycle=1, duration=0.1, error=HOSTILE),
        said(Message("assistant", HOSTILE)),
        StatusChanged(status="error", error=HOSTILE),
    )
    tab.sync()
    tab.locator(".sag-tool summary").first.click()
    result = agent.run(HOSTILE)
    for html in (tab.view.html(), chat_html(everything.rows), report_html(result)):
        tab.evaluate("(html) => { document.querySelector('#static').innerHTML = html }", html)
        tab.wait_for_timeout(50)
    assert tab.evaluate("window.pwned") is None


def test_a_line_of_a_megabyte_does_not_hold_up_the_page(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    session.emit(said(Message("user", "x" * 1_000_000), Message("assistant", "y" * 1_000_000)))
    started = time.monotonic()
    tab.sync()
    tab.locator(".sag-more summary").first.click()
    tab.locator("textarea").fill("still here")
    assert time.monotonic() - started < 4


def test_keys_do_not_reach_the_notebook_except_with_control(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    tab.evaluate("window.keys = []; document.addEventListener('keydown', (e) => window.keys.push(e.key)); null")
    field = tab.locator("textarea")
    field.click()
    assert field.get_attribute("data-lm-suppress-shortcuts") == "true"
    tab.keyboard.type("dd")
    tab.keyboard.press("Shift+Enter")
    tab.keyboard.down("Control")
    assert field.get_attribute("data-lm-suppress-shortcuts") is None
    tab.keyboard.press("s")
    tab.keyboard.up("Control")
    assert field.get_attribute("data-lm-suppress-shortcuts") == "true"
    assert tab.evaluate("window.keys") == ["Control", "s"]


def test_names_and_roles_for_those_who_cannot_see_it(session: Any, tab: Tab) -> None:
    tab.show(Workbench(session), width=600)
    log = tab.locator("[role=log]")
    assert (log.get_attribute("aria-live"), log.get_attribute("aria-label")) == ("polite", "Messages")
    assert tab.get_by_role("textbox", name="Message").count() == 1
    assert tab.get_by_role("button", name="Send").count() == 1
    assert tab.get_by_role("tab", selected=True).inner_text() == "Chat"
    assert tab.get_by_role("status").inner_text() == "Ready"


def test_leaving_takes_every_listener_along(session: Any, tab: Tab) -> None:
    tab.show(ChatView(session))
    tab.evaluate("window.leave(); null")
    assert tab.evaluate("Object.values(window.screenModel.handlers).flat().length") == 0


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (colour, under) => { canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1); const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data; return `rgb(${r},${g},${b})`; };
  const light = (colour) => { const [r, g, b] = colour.match(/\\d+/g).map((v) => v / 255)
    .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const found = [];
  const walker = document.createTreeWalker(document.querySelector(".sag"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("style")) continue;
    const chain = []; for (let e = element; e; e = e.parentElement) chain.unshift(getComputedStyle(e).backgroundColor);
    const under = chain.reduce((below, colour) => over(colour, below), "rgb(255,255,255)");
    const [a, b] = [light(over(getComputedStyle(element).color, under)), light(under)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) found.push(`${element.className || element.tagName}: ${walker.currentNode.data.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(found)];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [600, 1200])
def test_all_text_can_be_read_in_light_and_dark(
    session: Any, browser: Any, address: str, page: Any, clock: Any, tmp_path: Path, scheme: str, width: int
) -> None:
    call = ToolCall("get_weather", {"city": "Oslo"}, id="c1")
    session.display_messages = said(
        Message("user", "Weather in Oslo?"),
        Message(
            "assistant",
            "`18 °C`, see [this](https://e.org)\n\n```python\ndef f(): return 'x'  # one\n```",
            tool_calls=(call,),
        ),
        Message("tool", tool_results=(ToolResult("no", tool_call_id="c1", name="get_weather", is_error=True),)),
        Message("assistant", "Tomorrow it will", status="length"),
    ).rows
    tab = Tab(browser, address, page, clock, color_scheme=scheme)
    tab.show(Workbench(session), width=width)
    before = session.state
    session.emit(
        StatusChanged(status="running"),
        HookEnded(
            middleware="A",
            hook="before_model",
            cycle=1,
            duration=0.1,
            changed=True,
            before=before,
            after=before.put_metadata("title", "Oslo"),
            error="ValueError: no",
        ),
        StatusChanged(status="error", error="the model is gone"),
    )
    tab.sync()
    for pane in ("chat", "sandwich", "state", "trace", "context"):
        chosen = tab.locator(f"[role=tab][data-tab={pane}]")
        if not chosen.is_visible():
            continue
        chosen.click()
        tab.wait_for_timeout(60)
        tab.sync()
        tab.wait_for_timeout(350)
        shot = Path(os.environ.get("SAGENTS_SHOTS") or tmp_path) / f"bench-{pane}-{scheme}-{width}.png"
        tab.screenshot(path=str(shot))
        assert shot.stat().st_size > 5_000
        assert tab.evaluate(CONTRAST) == []
    assert tab.problems == []
    tab.context.close()
