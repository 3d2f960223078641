"""Rows as an aligned table in text and as an escaped one in HTML."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import jinja2

T = TypeVar("T")

TEXT_ROWS = 20
HTML_ROWS = 100
TEXT_WIDTH = 60
HTML_WIDTH = 200


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str) -> str:
    """The first rows, aligned."""
    shown = [[_cell(value, TEXT_WIDTH) for value in row] for row in rows[:TEXT_ROWS]]
    widths = [max([len(name), *(len(row[place]) for row in shown)]) for place, name in enumerate(columns)]
    lines = [" | ".join(name.ljust(width) for name, width in zip(columns, widths, strict=True)).rstrip()]
    lines.append("-+-".join("-" * width for width in widths))
    lines += [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return "\n".join([*lines, _counted(len(rows), TEXT_ROWS, note)])


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str, caption: str = "") -> str:
    """The first rows; every value is escaped."""
    shown = [[_cell(value, HTML_WIDTH) for value in row] for row in rows[:HTML_ROWS]]
    return _template().render(columns=columns, rows=shown, footer=_counted(len(rows), HTML_ROWS, note), caption=caption)


def _counted(count: int, shown: int, note: str) -> str:
    words = f"{count:,} row{'' if count == 1 else 's'}{note}"
    return f"({words})" if count <= shown else f"({words}; the first {shown} shown, {count - shown:,} more)"


def _cell(value: Any, width: int) -> str:
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list)) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


@cache
def _template() -> jinja2.Template:
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(
        "<table>{% if caption %}<caption>{{ caption }}</caption>{% endif %}"
        "<thead><tr>{% for name in columns %}<th>{{ name }}</th>{% endfor %}</tr></thead><tbody>"
        "{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}"
        "</tbody></table><p><small>{{ footer }}</small></p>"
    )


class Listing(list[T]):
    """A list of records that a notebook shows as a table.

    Args:
        records: objects of one kind.
        columns: their attributes that are shown.
    """

    def __init__(self, records: Iterable[T], columns: Sequence[str]) -> None:
        super().__init__(records)
        self._columns = tuple(columns)

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        rows = [[getattr(record, name) for name in self._columns] for record in self]
        return {
            "text/plain": text_table(self._columns, rows, ""),
            "text/html": html_table(self._columns, rows, ""),
        }
