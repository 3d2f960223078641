"""JSON text that the database can hold and gives back equal, or an error that says where it cannot."""

from __future__ import annotations

import json
import math
from typing import Any

from sagents_nb.errors import StoreError
from sagents_nb.frozen import clean_text
from sagents_nb.value import Value


def plain(value: Value, path: str, *, nested: bool = False) -> dict[str, Any]:
    """The JSON form of a message or State.

    Args:
        value: which.
        path: how to name it in an error.
        nested: without the version, as inside of something that says it.

    Raises:
        StoreError: it has none, for example because it is nested too deeply.
    """
    try:
        return value.to_json(nested=nested)
    except (ValueError, RecursionError) as error:  # pydantic's serialisation errors are ValueErrors
        raise StoreError(f"{path} cannot be written as JSON: {error}; nothing of it was written") from error


def encode(value: Any, path: str, *, first: int = 0) -> str:
    """Compact JSON text.

    Half a character, as a stream that broke off leaves it, becomes U+FFFD like everywhere in the toolkit: neither UTF-8
    nor DuckDB holds it, and a name of a tool must not keep a conversation from being saved.

    Args:
        value: JSON.
        path: how to name the value in an error.
        first: number of the first item of a list, for the error.

    Raises:
        StoreError: something in it is no JSON; the text names the place.
    """
    try:
        return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{_fault(value, path, first) or f'{path}: {error}'}; nothing of it was written") from error


def check_text(text: str, path: str) -> str:
    """The text of an id itself, if UTF-8 can hold it: two ids must not become one.

    Raises:
        StoreError: it has half a character in it.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{path} has half a character in it (a lone surrogate), which UTF-8 cannot hold: {text!a}; nothing of it was "
            "written"
        ) from None
    return text


def _fault(value: Any, path: str, first: int = 0) -> str | None:
    """What is wrong in a value, and where; None when it is not found."""
    pending: list[tuple[Any, str]] = [(value, path)]
    while pending:
        item, place = pending.pop()
        if item is None or isinstance(item, str):
            continue
        if isinstance(item, float):
            if not math.isfinite(item):
                return f"{place} is {item!r}, which JSON cannot hold; use None or a text instead"
        elif isinstance(item, dict):
            pending += [(entry, f"{place}[{key!r}]") for key, entry in item.items()]
        elif isinstance(item, (list, tuple)):
            start = first if item is value else 0
            pending += [(entry, f"{place}[{index}]") for index, entry in enumerate(item, start)]
        elif isinstance(item, int):
            try:
                str(item)
            except ValueError:
                return (
                    f"{place} is a number of {item.bit_length()} bits, more than Python writes out; use a text instead"
                )
        else:
            return f"{place} is a {type(item).__name__}, which is no JSON; convert it first"
    return None
