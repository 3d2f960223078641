"""The harness itself: a stock widget in a notebook, clicked for real."""

from __future__ import annotations

from tests.browser.lab import Lab, write_notebook

COUNTER = """
import ipywidgets
pressed = []
button = ipywidgets.Button(description="press me")
button.on_click(lambda _: pressed.append(1))
button
"""


def test_a_click_in_the_page_reaches_the_kernel_and_a_restart_forgets_it(lab: Lab) -> None:
    page = lab.open(write_notebook(lab.root / "harness.ipynb", [COUNTER]))
    lab.run_all(page)
    page.click(".jupyter-button")
    page.wait_for_timeout(500)
    assert lab.execute(page, "print(len(pressed))").strip() == "1"
    lab.theme(page, dark=True)
    lab.screenshot(page, "harness-dark")
    lab.theme(page, dark=False)
    lab.restart_kernel(page)
    assert "NameError" in lab.execute(page, "print(len(pressed))")
    page.close()
