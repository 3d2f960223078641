"""The workbench in a real JupyterLab: typed into, watched, stopped."""

from __future__ import annotations

import json
import re
import time

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import Lab, write_notebook

AGENT = """
import time
from sagents_nb import Agent, Middleware, ScriptedModel, ToolCall, tool
from sagents_nb.widgets import ChatView, SandwichView, Workbench

@tool
def get_weather(city: str) -> str:
    "Current weather in a city."
    time.sleep(0.3)
    return f"Sunny in {city}"

class First(Middleware):
    "Comes first."
    def before_model(self, state, run):
        return state.put_metadata("calls", state.get_metadata("calls", 0) + 1)
    def after_model(self, state, run): ...

class Second(Middleware):
    "Comes second."
    def before_model(self, state, run): ...
    def after_model(self, state, run): ...

def talk(request):
    last = request.messages[-1]
    if last.role == "tool":
        return f"It is **{last.tool_results[0].text}**."
    if "long" in last.text:
        return "word " * 2000
    if "weather" in last.text:
        return ["Let me look.", ToolCall("get_weather", {"city": "Oslo"})]
    return "You said: " + last.text

# 60 seconds of a long answer: 1,250 chunks, 48 ms each.
agent = Agent(name="talker", model=ScriptedModel([talk], repeat=True, delay=0.048), tools=[get_weather],
              middleware=[First(), Second()])
session = agent.session()
"""


@pytest.fixture
def bench(lab: Lab, request: pytest.FixtureRequest) -> Page:
    """A notebook with a workbench, run."""
    name = re.sub(r"\W+", "-", request.node.name)
    page = lab.open(
        write_notebook(lab.root / f"{name}.ipynb", [AGENT, "Workbench(session)", "time.sleep(20)", "print('hi')"])
    )
    lab.run_all_but_last(page, 2)
    expect(page.locator(".sag-composer textarea").first).to_be_visible()
    request.addfinalizer(page.close)  # noqa: PT021 - after the page is made
    return page


def view(page: Page) -> Locator:
    return page.locator(".sag-live").first


def say(page: Page, text: str) -> None:
    box = view(page).locator(".sag-composer textarea")
    box.click()
    box.fill(text)
    box.press("Enter")


def expect_status(page: Page, status: str, *, within: float = 10) -> None:
    expect(view(page)).to_have_attribute("data-status", status, timeout=within * 1000)


def test_an_answer_streams_in_while_the_hooks_light_up_in_order(lab: Lab, bench: Page) -> None:
    page = bench
    say(page, "a few words to stream, so that there is something to see while they come in")
    stream = view(page).locator("[data-key=stream-text]")
    lengths = []
    for _ in range(60):
        lengths.append(len(stream.inner_text()))
        page.wait_for_timeout(20)
        if view(page).get_attribute("data-status") == "idle" and lengths[-1] == 0 and max(lengths):
            break
    grown = sorted({length for length in lengths if length})
    assert len(grown) > 5, f"the text did not grow while it streamed: {lengths}"
    expect_status(page, "idle")
    expect(view(page).locator(".sag-assistant").last).to_contain_text("You said: a few words")
    page.wait_for_timeout(1500)
    lit = {}
    for cell in view(page).locator("[data-lit-order]").all():
        for place in (cell.get_attribute("data-lit-order") or "").split():
            lit[int(place)] = cell.get_attribute("data-cell")
    assert [lit[place] for place in sorted(lit)] == [
        "before_model:First",
        "before_model:Second",
        "model:",
        "after_model:Second",
        "after_model:First",
    ]
    changed = view(page).locator('[data-cell="before_model:First"]')
    expect(changed).to_contain_text("changed")
    expect(view(page).locator('[data-cell="before_model:Second"]')).not_to_contain_text("changed")
    lab.screenshot(page, "workbench-light")
    lab.theme(page, dark=True)
    lab.screenshot(page, "workbench-dark")
    lab.theme(page, dark=False)


def test_a_tool_call_is_shown_with_its_result(lab: Lab, bench: Page) -> None:
    page = bench
    say(page, "weather please")
    expect(view(page).locator(".sag-tool")).to_have_attribute("data-status", "completed", timeout=10_000)
    expect_status(page, "idle")
    expect(view(page).locator(".sag-assistant strong").last).to_have_text("Sunny in Oslo")
    view(page).locator(".sag-tool summary").first.click()
    expect(view(page).locator(".sag-tool-body").first).to_contain_text("Sunny in Oslo")
    lab.screenshot(page, "workbench-tool")


def test_stop_in_the_middle_of_a_minute_is_idle_within_two_seconds_and_the_next_message_works(
    lab: Lab, bench: Page
) -> None:
    page = bench
    say(page, "a long story")
    expect(view(page).locator(".sag-stop")).to_be_visible(timeout=500)
    expect(view(page).locator("[data-key=stream-text]")).to_contain_text("word word", timeout=5000)
    page.wait_for_timeout(500)
    started = time.monotonic()
    view(page).locator(".sag-stop").click()
    expect_status(page, "cancelled", within=2)
    took = time.monotonic() - started
    assert took < 2
    expect(view(page).locator(".sag-assistant").last).to_contain_text("word word")
    expect(view(page).locator(".sag-stopped").last).to_be_visible()
    lab.screenshot(page, "workbench-stopped")
    say(page, "still there?")
    expect_status(page, "idle")
    expect(view(page).locator(".sag-assistant").last).to_have_text(re.compile("You said: still there"))


def test_enter_sends_shift_enter_breaks_the_line_and_jupyters_keys_stay_out(lab: Lab, bench: Page) -> None:
    page = bench
    cells = page.locator(".jp-Notebook .jp-Cell").count()
    box = view(page).locator(".sag-composer textarea")
    box.click()
    page.keyboard.type("add a b")  # in command mode, a and b add cells and d d deletes them
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    assert box.input_value() == "add a b\nsecond line"
    assert page.locator(".jp-Notebook .jp-Cell").count() == cells
    page.keyboard.press("Enter")
    expect_status(page, "idle")
    expect(view(page).locator(".sag-user").last).to_contain_text("second line")
    assert page.locator(".jp-Notebook .jp-Cell").count() == cells


def test_the_agent_works_on_and_stop_works_while_a_cell_sleeps(lab: Lab, bench: Page) -> None:
    page = bench
    say(page, "hello")  # the first click also tells the kernel where to hear the next ones
    expect_status(page, "idle")
    lab.start_cell(page, 2)  # time.sleep(20)
    page.wait_for_timeout(500)
    assert lab.is_running(page, 2)
    say(page, "a long story")
    stream = view(page).locator("[data-key=stream-text]")
    expect(stream).to_contain_text("word word", timeout=5000)
    first = len(stream.inner_text())
    page.wait_for_timeout(600)
    assert len(stream.inner_text()) > first
    started = time.monotonic()
    view(page).locator(".sag-stop").click()
    expect_status(page, "cancelled", within=2)
    assert time.monotonic() - started < 2
    assert lab.is_running(page, 2), "the cell must still be sleeping, or this test shows nothing"
    lab.interrupt(page)
    lab.wait_idle(page)


def test_a_reload_shows_the_same_transcript(lab: Lab, bench: Page) -> None:
    page = bench
    say(page, "remember me")
    expect_status(page, "idle")
    say(page, "a long story")
    expect(view(page).locator("[data-key=stream-text]")).to_contain_text("word word", timeout=5000)
    lab.save(page)
    lab.reload(page)
    expect(view(page).locator(".sag-user").first).to_contain_text("remember me", timeout=20_000)
    expect(view(page).locator("[data-key=stream-text]")).to_contain_text("word word")
    view(page).locator(".sag-stop").click()
    expect_status(page, "cancelled", within=3)
    users = [text.replace("You", "").strip() for text in view(page).locator(".sag-user").all_inner_texts()]
    assert users == ["remember me", "a long story"]


HOSTILE = [
    "<script>window.hacked = 1</script>",
    '<img src=x onerror="window.hacked = 2">',
    "[click](javascript:window.hacked=3)",
    "</div></pre></textarea></details><svg onload=window.hacked=4>",
    '"><iframe srcdoc="<script>parent.hacked=5</script>"></iframe>',
    "`</code><script>window.hacked=6</script>`",
    "A" * 1_000_000,
]

HOSTILE_AGENT = """
import json
from sagents_nb import Agent, Middleware, ScriptedModel, ToolCall, tool
from sagents_nb.widgets import Workbench
from IPython.display import HTML, display
hostile = json.loads(HOSTILE_JSON)

@tool
def echo(text: str) -> str:
    "Say it back."
    print(text)
    return text

class Note(Middleware):
    "<img src=x onerror=window.hacked=7>"
    note: str = "<script>window.hacked=8</script>"
    def before_model(self, state, run):
        return state.put_metadata("<b onclick=window.hacked=9>", hostile[1])

turns = []
for text in hostile:
    turns += [[text, ToolCall("echo", {"text": text})], text]
agent = Agent(name="<script>window.hacked=10</script>", model=ScriptedModel(turns, chunk_size=4096),
              tools=[echo], middleware=[Note(name="<i onmouseover=window.hacked=11>x</i>")])
session = agent.session()
bench = Workbench(session)
display(bench)
for text in hostile:
    session.send(text)
print(session.wait(timeout=60))
"""


def test_hostile_text_is_shown_as_text_live_and_static_and_nothing_runs(lab: Lab) -> None:
    cells = [
        f"HOSTILE_JSON = {json.dumps(json.dumps(HOSTILE))}\n{HOSTILE_AGENT}",
        "HTML(bench.html())",
        "session",
        "agent.stack",
        "session.state",
        "bench.freeze()",
    ]
    page = lab.open(write_notebook(lab.root / "hostile.ipynb", cells))
    before = len(lab.console)
    lab.run_all(page)
    page.wait_for_timeout(2000)
    assert "idle" in lab.text(page, 0)
    for text in HOSTILE[:-1]:
        expect(page.locator(".jp-OutputArea").first).to_contain_text(text[:30].strip("`[")[:20])
    for link in page.locator(".jp-OutputArea a").all():
        assert not (link.get_attribute("href") or "").lower().strip().startswith("javascript")
    for image in page.locator(".jp-OutputArea .sag img").all():
        image.hover(timeout=500)
    page.mouse.move(700, 500)
    page.wait_for_timeout(300)
    assert page.evaluate("() => window.hacked === undefined"), "something of the hostile text ran"
    assert page.locator(".jp-OutputArea script, .jp-OutputArea iframe").count() == 0
    assert page.evaluate(
        "() => [...document.querySelectorAll('.jp-OutputArea *')].every(e => "
        "[...e.attributes].every(a => !a.name.startsWith('on')))"
    )
    assert not [text for kind, text in lab.console[before:] if kind in ("dialog", "pageerror")]
    lab.screenshot(page, "hostile")
    page.close()
