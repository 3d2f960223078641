"""Where the browser is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "msedge")
_MAC = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""Headless, also as root, and silent towards the network."""


def find() -> str:
    """Path of a Chromium, Chrome or Edge.

    Raises:
        RuntimeError: there is none; the text says how to get one.
    """
    wanted = os.environ.get("CHROMIUM")
    if wanted:
        if Path(wanted).exists():
            return wanted
        raise RuntimeError(f"CHROMIUM is {wanted!r}, which does not exist")
    for command in _COMMANDS:
        found = shutil.which(command)
        if found:
            return found
    for path in _MAC:
        if Path(path).exists():
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    if Path(own).exists():
        return own
    raise RuntimeError(
        "the browser tests need Chromium: `apt-get install -y chromium`, or `python -m playwright install chromium`, "
        "or install Chrome or Edge, or set CHROMIUM=/path/to/it"
    )
