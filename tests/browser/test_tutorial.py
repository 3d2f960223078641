"""The first tutorial as a person meets it: run, talk, stop, reload, restart, find it all again."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.lab import Lab
from tests.browser.test_chat import expect_status, say, view

BENCH = 21
"""Place of the cell with the workbench."""

TUTORIAL = Path(__file__).parents[2] / "notebooks" / "01_first_agent.ipynb"


def said(page: Page) -> list[str]:
    """What people said and were told, without the labels."""
    # Not the visible text: rows further up are not painted.
    rows = view(page).locator(".sag-rows > .sag-msg").all()
    return [" ".join((row.locator("> :not(.sag-who)").first.text_content() or "").split()) for row in rows]


def test_run_talk_stop_reload_restart_and_find_the_conversation_again(lab: Lab) -> None:
    page = lab.open(lab.copy_here(TUTORIAL, "tutorial"))
    lab.run_all(page)
    expect(view(page)).to_be_visible()
    expect_status(page, "idle")
    expect(view(page).locator(".sag-assistant").last).to_contain_text("light snow")
    lab.screenshot(page, "tutorial-run")

    say(page, "What is the weather in Pune?")
    expect(view(page).locator(".sag-assistant").last).to_contain_text("sunny, 31", timeout=10_000)
    expect_status(page, "idle")

    say(page, "Tell me a story")
    expect(view(page).locator("[data-key=stream-text]")).to_contain_text("Once upon a time", timeout=5000)
    view(page).locator(".sag-stop").click()
    expect_status(page, "cancelled", within=2)
    expect(view(page).locator(".sag-stopped")).to_be_visible()
    lab.screenshot(page, "tutorial-stopped")
    before = said(page)
    assert before[0] == "And in Oslo?"
    assert "What is the weather in Pune?" in before
    assert before[-1].startswith("Once upon a time")

    lab.save(page)
    lab.reload(page)
    lab.show(page, BENCH)
    expect(view(page).locator(".sag-rows > .sag-msg")).to_have_count(len(before), timeout=20_000)
    assert said(page) == before

    lab.restart_kernel(page)
    lab.run_all(page)
    expect_status(page, "idle")
    # The tutorial asks about Oslo again; before that stands everything that was said.
    expect(view(page).locator(".sag-rows > .sag-msg")).to_have_count(len(before) + 3, timeout=20_000)
    assert said(page)[: len(before)] == before
    assert said(page)[-1] == "The weather service says: light snow, -3 °C."
    lab.screenshot(page, "tutorial-restarted")
    page.close()


def test_freezing_leaves_a_picture_that_needs_no_kernel(lab: Lab) -> None:
    page = lab.open(lab.copy_here(TUTORIAL, "frozen"))
    lab.run_all(page)
    expect_status(page, "idle")
    assert lab.execute(page, "workbench.freeze()") == ""
    expect(page.locator(".sag-live")).to_have_count(0)
    lab.save(page)
    page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.shutdown() }")
    lab.reload(page, kernel=False)
    lab.show(page, BENCH)
    expect(page.locator(".jp-OutputArea .sag-chat").first).to_contain_text("light snow")
    assert page.locator("text=model not found").count() == 0
    lab.screenshot(page, "tutorial-frozen")
    page.close()
