"""Markdown becomes HTML that can do no harm."""

from __future__ import annotations

from typing import Any

import pytest

from sagents_nb.views import markdown_html


def test_ordinary_markdown_is_rendered(parse: Any) -> None:
    page = parse(markdown_html("# Title\n\n1. **bold** and `code`\n2. *more*\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"))
    assert page.h1.text == "Title"
    assert [item.text for item in page.ol.find_all("li")] == ["bold and code", "more"]
    assert page.find("strong").text == "bold"
    assert [cell.text for cell in page.find_all("td")] == ["1", "2"]


def test_code_is_highlighted_by_classes_and_an_unknown_language_is_plain(parse: Any) -> None:
    page = parse(markdown_html("```python\ndef f() -> Any: pass\n```\n\n```klingon\n<b>qapla</b>\n```"))
    first, second = page.find_all("pre")
    assert first.find("span", class_="sag-hl-k").text == "def"
    assert second.text.strip() == "<b>qapla</b>"
    assert second.find("b") is None


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](vbscript:msgbox)",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](file:///etc/passwd)",
        "![x](javascript:alert(1))",
        "![x](https://tracker.example/pixel.png)",
        '[x](https://e.org "a\\" onmouseover=\\"alert(1)")',
        "```\n</code></pre><script>alert(1)</script>\n```",
        '```"><img src=x onerror=alert(1)>\nx\n```',
        '<https://e.org/"onclick=alert(1)>',
        "</div></section><style>body{display:none}</style>",
        "<svg onload=alert(1)>",
    ],
)
def test_nothing_that_runs_or_loads_comes_through(parse: Any, text: str) -> None:
    page = parse(markdown_html(text))
    assert page.find(["script", "img", "svg", "style", "iframe", "object", "form", "input"]) is None
    for tag in page.find_all(True):
        assert not [name for name in tag.attrs if name.startswith("on") or name in ("style", "src", "id")]
        assert tag.get("href", "https://").startswith(("http://", "https://", "mailto:"))


def test_links_open_elsewhere_and_tell_nothing(parse: Any) -> None:
    link = parse(markdown_html("[docs](https://example.org/a?b=1&c=2)")).a
    assert link["href"] == "https://example.org/a?b=1&c=2"
    assert link["target"] == "_blank"
    assert link["rel"] == ["noopener", "noreferrer", "nofollow"]


def test_a_remote_image_is_named_and_linked_instead_of_loaded(parse: Any) -> None:
    page = parse(markdown_html("![a chart](https://example.org/c.png)"))
    assert page.text.strip() == "[image: a chart]"
    assert page.a["href"] == "https://example.org/c.png"


def test_a_text_of_a_megabyte_is_shown_as_it_is(parse: Any) -> None:
    text = "**" * 500_000
    page = parse(markdown_html(text))
    assert page.div.text == text
