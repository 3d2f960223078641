"""JSON values that cannot be changed in place.

A frozen pydantic model protects its attributes, not what they refer to: a dict inside it can still be changed,
and with it every earlier State that shares it. `freeze` turns a JSON value into one that refuses.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NoReturn, TypeAlias

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

_HOW = "make a changed copy instead: {**value, 'key': …} or [*value, …]"
_FLATTEN = "flatten it, or keep the inner part as JSON text"
_SHOWN_STEPS = 8

MAX_DEPTH = 200
"""Levels of dicts and lists in one value. At 255, what lies around it included, pydantic can no longer write it: then a
conversation that holds it could not be saved any more, whatever is said in it later."""


class _NotJson(ValueError):
    """Something in a value is not JSON. Its place is put together only when there is a fault, on the way out."""

    def __init__(self, says: str) -> None:
        super().__init__(says)
        self.path = "value"
        self.steps: list[str] = []  # the innermost first

    def __str__(self) -> str:
        inner = "".join(reversed(self.steps)) if len(self.steps) <= _SHOWN_STEPS else "[…]"
        return f"{self.path}{inner} {self.args[0]}"


class FrozenDict(dict[str, Any]):
    """A JSON object that refuses changes; equal to a plain dict with the same items.

    Args:
        items: what it holds; frozen on the way in.
        hint: the call to use instead of a change, part of the error's text.

    Attributes:
        hint: as given.
        depth: levels of dicts and lists, itself included.

    Raises:
        ValueError: something in it is not JSON.
    """

    __slots__ = ("depth", "hint")

    depth: int
    hint: str

    def __init__(self, items: Any = (), *, hint: str = _HOW) -> None:
        if hasattr(self, "depth"):  # called once more on one that is made: dict.__init__ would add the items
            self._refuse()
        frozen: dict[str, Any] = {}
        depth = 0
        for key, item in (items if isinstance(items, dict) else dict(items)).items():
            if type(key) is not str:
                raise _NotJson(f"has the key {key!r} ({type(key).__name__}); keys are strings: {str(key)!r}")
            try:
                entry = _freeze(item, hint)
            except _NotJson as fault:
                fault.steps.append(f"[{key!r}]")
                raise
            if isinstance(entry, _CONTAINERS) and entry.depth > depth:
                depth = entry.depth
            frozen[clean_text(key)] = entry
        self.hint = hint
        self.depth = _one_more(depth)
        super().__init__(frozen)

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError(f"this mapping belongs to an immutable value: {self.hint}")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = _refuse
    __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self),), (None, {"hint": self.hint}))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenDict:
        return self


class FrozenList(list[Any]):
    """A JSON array that refuses changes; equal to a plain list with the same items.

    Args:
        items: what it holds; frozen on the way in.
        hint: the call to use instead of a change, part of the error's text.

    Attributes:
        hint: as given.
        depth: levels of dicts and lists, itself included.

    Raises:
        ValueError: something in it is not JSON.
    """

    __slots__ = ("depth", "hint")

    depth: int
    hint: str

    def __init__(self, items: Any = (), *, hint: str = _HOW) -> None:
        if hasattr(self, "depth"):  # called once more on one that is made: list.__init__ would replace the items
            self._refuse()
        frozen: list[Any] = []
        depth = 0
        for place, item in enumerate(items):
            try:
                entry = _freeze(item, hint)
            except _NotJson as fault:
                fault.steps.append(f"[{place}]")
                raise
            if isinstance(entry, _CONTAINERS) and entry.depth > depth:
                depth = entry.depth
            frozen.append(entry)
        self.hint = hint
        self.depth = _one_more(depth)
        super().__init__(frozen)

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError(f"this list belongs to an immutable value: {self.hint}")

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = _refuse
    sort = reverse = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (list(self),), (None, {"hint": self.hint}))

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenList:
        return self


_CONTAINERS = (FrozenDict, FrozenList)


def _one_more(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise _NotJson(f"is nested more than {MAX_DEPTH} levels deep; {_FLATTEN}")
    return depth + 1


def clean_text(text: str) -> str:
    """Replace lone surrogates (the halves of a character that a truncated stream leaves) by U+FFFD.

    Neither UTF-8, JSON over the wire nor DuckDB can hold them, so they must not get into a value.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def freeze(value: Any, *, path: str = "value", hint: str = _HOW) -> Any:
    """Turn a JSON value into an equal one that cannot be changed.

    Args:
        value: ``None``, bool, int, finite float, str, or lists, tuples and dicts of these with str keys, at most
            `MAX_DEPTH` levels deep.
        path: how to name the value in an error.
        hint: what somebody who tries to change it should do instead.

    Returns:
        The value itself if it is a scalar or frozen already, else a `FrozenDict` or `FrozenList`.

    Raises:
        ValueError: something in it is not JSON; the text names its place and its type.
    """
    try:
        return _freeze(value, hint)
    except _NotJson as fault:
        fault.path = path
        raise ValueError(str(fault)) from None
    except RecursionError:
        raise ValueError(f"{path} is nested more than {MAX_DEPTH} levels deep; {_FLATTEN}") from None


def _freeze(value: Any, hint: str) -> Any:
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if value is None or kind is bool or kind is int or kind is FrozenDict or kind is FrozenList:
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise _NotJson(f"is {value!r}, which JSON cannot hold; store None or a string instead")
    if isinstance(value, dict):
        return FrozenDict(value, hint=hint)
    if isinstance(value, (list, tuple)):
        return FrozenList(value, hint=hint)
    if isinstance(value, str):  # a str subclass such as a StrEnum member
        return clean_text(str.__str__(value))
    raise _NotJson(
        f"is a {kind.__name__}, which is not JSON (None, bool, int, float, str, lists and dicts of these); "
        "convert it first, or keep it in run.local"
    )


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same as JSON: unlike ``==`` it tells true from 1 and 1 from 1.0."""
    return one is other or (one == other and repr(one) == repr(other))


def thaw(value: Any) -> Any:
    """Plain, changeable copy of a frozen JSON value."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def frozen_object(value: Any, *, path: str, hint: str) -> FrozenDict:
    """`freeze` for a value that must be a JSON object.

    Raises:
        ValueError: it is not a dict, or something in it is not JSON.
    """
    if type(value) is FrozenDict:
        return value
    if not isinstance(value, dict):
        raise ValueError(f"{path} is a {type(value).__name__}; it is a dict with string keys")
    frozen: FrozenDict = freeze(value, path=path, hint=hint)
    return frozen


CleanText: TypeAlias = Annotated[str, BeforeValidator(lambda text: clean_text(text) if isinstance(text, str) else text)]
"""Field type: text in which halves of characters are replaced."""


def _whole(text: str) -> str:
    if clean_text(text) != text:
        raise ValueError(f"has half a character in it (a lone surrogate), which UTF-8 cannot hold: {text!a}")
    return text


WholeText: TypeAlias = Annotated[str, AfterValidator(_whole)]
"""Field type: an id. Halves of characters are refused, since replacing them could make two ids one."""


def _any_object(value: Any) -> FrozenDict:
    return frozen_object(value, path="data", hint=_HOW)


JsonObject: TypeAlias = Annotated[dict[str, Any], PlainValidator(_any_object), WithJsonSchema({"type": "object"})]
"""Field type: a JSON object, frozen when it is validated."""
