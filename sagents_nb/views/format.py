"""Numbers, sizes and JSON as people read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sized
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from sagents_nb.frozen import thaw

SHOWN = 4_000
"""Characters of a long text that are shown at once."""
KEPT = 200_000
"""Characters of a long text that "show all" opens; the whole text stays in the session."""


def duration(seconds: float | None) -> str:
    """A time span: ``"12 µs"``, ``"0.4 ms"``, ``"85 ms"``, ``"1.2 s"``, ``"2 min 5 s"``; empty for None."""
    if seconds is None:
        return ""
    if seconds < 0.0001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.00995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def size(characters: int) -> str:
    """How long a text is: ``"812 characters"``, ``"24 k characters"``, ``"1.0 M characters"``."""
    if characters < 10_000:
        return plural(characters, "character")
    if characters < 1_000_000:
        return f"{characters / 1000:.0f} k characters"
    return f"{characters / 1e6:.1f} M characters"


def plural(count: int, word: str) -> str:
    """``"1 message"``, ``"2 messages"``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def pretty_json(value: Any) -> str:
    """JSON over several lines; what is not JSON appears as its type name, never as an address."""
    return json.dumps(thaw(value), ensure_ascii=False, indent=2, default=lambda item: f"<{type(item).__name__}>")


def preview(value: Any, limit: int = 80) -> str:
    """Arguments of a call on one line: ``city: "Oslo", days: 3``."""
    if isinstance(value, Mapping):
        parts = []
        room = limit
        for key, item in value.items():
            text = json.dumps(
                item if isinstance(item, (int, float, bool, type(None))) else _short(item, room), ensure_ascii=False
            )
            parts.append(f"{key}: {text}")
            room -= len(parts[-1])
            if room < 0:
                break
        return clip_line(", ".join(parts), limit)
    return clip_line(json.dumps(value, ensure_ascii=False, default=str), limit)


def _short(value: Any, limit: int) -> str:
    text = value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False, default=str)
    return clip_line(text, max(limit, 8))


def clip_line(text: str, limit: int) -> str:
    """The beginning of a text on one line, an ellipsis where it was cut."""
    head = " ".join(text[: limit * 2 + 40].split())
    return head if len(head) <= limit and len(text) <= limit * 2 + 40 else head[: limit - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Clipped:
    """A text in three pieces.

    Attributes:
        head: shown at once.
        rest: behind "show all".
        left_out: how many characters are in neither.
        total: how long the whole is, in words.
    """

    head: str
    rest: str
    left_out: int
    total: str


def clip(text: str, shown: int = SHOWN, kept: int = KEPT) -> Clipped:
    """Cut a long text for showing.

    A single line of a megabyte takes a browser seconds to lay out, and is sent again with every change of its
    fragment; nobody reads it at once.
    """
    if len(text) <= shown + shown // 4:
        return Clipped(text, "", 0, size(len(text)))
    cut = text.rfind("\n", shown // 2, shown)
    cut = cut + 1 if cut > 0 else shown
    return Clipped(text[:cut], text[cut:kept], max(0, len(text) - kept), size(len(text)))


def what_is(value: Any) -> str:
    """Type and size of a value, and nothing else of it: ``"Scope, 1 field"``, ``"dict, 3 keys"``, ``"None"``.

    Used for scope and tool_context, whose values may be secrets.
    """
    if value is None:
        return "None"
    name = type(value).__name__
    if isinstance(value, Mapping):
        name = "dict" if name == "mappingproxy" else name  # what somebody gave, not how an agent protects it
        return f"{name}, {plural(len(value), 'key')}"
    if is_dataclass(value):
        return f"{name}, {plural(len(fields(value)), 'field')}"
    model_fields = getattr(type(value), "model_fields", None)
    if isinstance(model_fields, Mapping):
        return f"{name}, {plural(len(model_fields), 'field')}"
    if isinstance(value, Sized) and not isinstance(value, (str, bytes)):
        return f"{name}, {plural(len(value), 'item')}"
    return name
