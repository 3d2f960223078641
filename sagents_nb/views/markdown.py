"""Markdown of models and people as HTML that can do no harm."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

LONGEST = 60_000
"""Characters beyond which a text is shown as it is: highlighting and emphasis cost more than they help."""

_FORMATTER: Any = HtmlFormatter(nowrap=True, classprefix="sag-hl-")

_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li"),
    *("strong", "em", "s", "code", "pre", "a", "span", "div", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "code": {"class"},
    "span": {"class"},
    "div": {"class"},
    "ol": {"start"},
    "td": {"align"},
    "th": {"align"},
}


def _highlight(code: str, language: str, _attributes: str) -> str:
    try:
        return str(highlight(code, get_lexer_by_name(language), _FORMATTER))
    except ClassNotFound:
        return escape(code)


def _image(_self: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    # A remote image tells its host who reads the notebook, and when: it is named and linked, never loaded.
    token = tokens[index]
    alt = escape(token.content or "image")
    source = str(token.attrGet("src") or "")
    if source.startswith(("http://", "https://")):
        return f'<span class="sag-img">[image: <a href="{escape(source)}">{alt}</a>]</span>'
    return f'<span class="sag-img">[image: {alt}]</span>'


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "highlight": _highlight}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _image)
    return parser


@lru_cache(maxsize=512)
def markdown_html(text: str) -> str:
    """Render Markdown.

    Raw HTML appears as text; links are http, https or mailto and open elsewhere; images are named and linked
    instead of loaded; code is highlighted by classes.

    Args:
        text: Markdown by anybody.

    Returns:
        Sanitised HTML.
    """
    if len(text) > LONGEST:
        return f'<div class="sag-plain">{escape(text)}</div>'
    return nh3.clean(
        str(_parser().render(text)),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )
