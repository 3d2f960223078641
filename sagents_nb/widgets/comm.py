"""The two widgets that every view is made of; both are the same small ES module."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import anywidget
import traitlets

from sagents_nb.views._render import stylesheet

# Text, not paths: a path makes anywidget watch the file when hot reload is on, which pins every widget in memory.
_ESM = (Path(__file__).parent / "static" / "sagents.js").read_text(encoding="utf-8")


class Screen(anywidget.AnyWidget):
    """Receives and draws. Many threads publish on its comm, so nothing is sent to the kernel over it.

    Attributes:
        snapshot: ``html``, the whole view; ``seq``, the number of the last delta in it; ``lit``, cells that run.
            For drawings that come late and for saved widget state; kernel to browser only.
    """

    _esm: ClassVar[str] = _ESM
    _css: ClassVar[str] = stylesheet()
    role = traitlets.Unicode("screen").tag(sync=True)
    snapshot = traitlets.Dict().tag(sync=True)

    def __repr__(self) -> str:
        return "Screen()"


class Wire(anywidget.AnyWidget):
    """Sends what people do; invisible. Answered from the thread that was called, and by nobody else."""

    _esm: ClassVar[str] = _ESM
    role = traitlets.Unicode("wire").tag(sync=True)

    def __repr__(self) -> str:
        return "Wire()"


def box(screen: Screen, wire: Wire) -> Any:
    """Both in one box, in which they find each other."""
    from ipywidgets import Layout, VBox

    together = VBox([screen, wire], layout=Layout(width="100%", overflow="visible"))
    together.add_class("sag-box")
    return together
