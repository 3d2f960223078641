"""The template environment, and how a fragment becomes something that can be shown alone."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from sagents_nb.views import format as fmt
from sagents_nb.views.markdown import markdown_html

CSS = Path(__file__).parent / "static" / "sagents.css"
"""The one style sheet, of static and live views alike."""


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=fmt.duration,
        pretty_json=fmt.pretty_json,
        preview=fmt.preview,
        clip=fmt.clip,
        clip_line=fmt.clip_line,
        plural=fmt.plural,
        markdown=lambda text: Markup(markdown_html(text)),  # noqa: S704 - sanitised
    )
    return environment


def render(template: str, /, **values: Any) -> Markup:
    """Fill ``templates/<template>.html.jinja``; everything but `Markup` is escaped."""
    return Markup(_environment().get_template(f"{template}.html.jinja").render(**values))  # noqa: S704 - autoescaped


def call(template: str, macro: str, /, *args: Any, **values: Any) -> Markup:
    """One macro of a template: the fragment that a live view sends when only this part changed."""
    return Markup(getattr(_environment().get_template(f"{template}.html.jinja").module, macro)(*args, **values))  # noqa: S704 - autoescaped


@lru_cache(maxsize=16)
def stylesheet(*parts: str) -> str:
    """The style sheet without comments and needless space: its base and the named sections, or all of it.

    A static view carries its style with it; a notebook with thirty outputs should not carry thirty full copies.
    """
    sections = re.split(r"/\* =+ (\w+) =+ \*/", CSS.read_text(encoding="utf-8"))
    # split() gives: what stands before the first mark, then name and text in turns.
    chosen = [
        text
        for name, text in zip(sections[1::2], sections[2::2], strict=True)
        if not parts or name == "base" or name in parts
    ]
    css = re.sub(r"/\*.*?\*/", "", "".join(chosen), flags=re.DOTALL)
    css = re.sub(r"\s+", " ", css)
    return re.sub(r" ?([{};,]) ?", r"\1", css).strip()


def alone(fragment: Markup, *parts: str) -> str:
    """A fragment as it stands in a saved notebook: its style beside it, under the root class."""
    return f'<div class="sag sag-static"><style>{stylesheet(*parts)}</style>{fragment}</div>'
