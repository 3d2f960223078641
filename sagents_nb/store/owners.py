"""From a scope to the owner of rows. The scope itself goes no further than here."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

from sagents_nb.errors import StoreError

OwnerFunction = Callable[[Any], Any]

LOCAL = "local"
"""Key of the one owner of a store without an owner function."""


class Owners:
    """Maps scopes to owner keys.

    Args:
        function: the integrator's; None for a single local owner.
    """

    def __init__(self, function: OwnerFunction | None) -> None:
        self.function = function

    def key(self, scope: Any) -> str:
        """The owner key of a scope.

        Raises:
            StoreError: the function failed, or gave nothing that can be a key.
        """
        if self.function is None:
            return LOCAL
        try:
            value = self.function(scope)
        except Exception as error:
            raise StoreError(
                f"Store(owner=…) raised {type(error).__name__} for a scope of type {type(scope).__name__}: {error}. "
                "Give the scope this store was made for: Agent(scope=…), or the first argument of the method"
            ) from error
        return _as_key(value)

    def same(self, other: OwnerFunction | None) -> bool:
        """Whether another function does the same as this one.

        Re-running a cell makes a new function of the same code; that is no other owner.
        """
        return _same(self.function, other)


def _as_key(value: Any) -> str:
    if isinstance(value, str) and value:
        value = str.__str__(value)  # of a member of an enum
        try:
            value.encode()
        except UnicodeEncodeError:
            # Two such texts could become one when they are cleaned, and then two owners would be one.
            raise StoreError(f"Store(owner=…) gave {value!a}, which has half a character in it") from None
        # 42 and "42" are different owners, as are ("a", 1) and its text: words that look like another kind are quoted.
        return json.dumps(value, ensure_ascii=False) if value.lstrip("-").isdecimal() or value[0] in '["' else value
    if isinstance(value, (int, uuid.UUID)) and not isinstance(value, bool):
        return json.dumps(value, default=str)
    if isinstance(value, tuple) and value and all(type(part) in (str, int) for part in value):
        # JSON, not "/".join: ("a/b", "c") and ("a", "b/c") are two owners.
        return json.dumps(list(value), ensure_ascii=False)
    raise StoreError(
        f"Store(owner=…) gave {value!r}, a {type(value).__name__}; an owner is a non-empty str, an int, a UUID, or "
        "a tuple of str and int"
    )


def _same(mine: Any, other: Any) -> bool:
    if mine is other:
        return True
    if type(mine) is not type(other):
        return False
    if isinstance(mine, FunctionType):
        return (
            _same_code(mine.__code__, other.__code__)
            and mine.__defaults__ == other.__defaults__
            and mine.__kwdefaults__ == other.__kwdefaults__
            and len(mine.__closure__ or ()) == len(other.__closure__ or ())
            and all(
                _same_value(a.cell_contents, b.cell_contents)
                for a, b in zip(mine.__closure__ or (), other.__closure__ or (), strict=True)
            )
            # A cell that runs again shares its globals. Functions of two modules must mean the same by their names.
            and (
                mine.__globals__ is other.__globals__
                or all(mine.__globals__.get(name) is other.__globals__.get(name) for name in mine.__code__.co_names)
            )
        )
    if isinstance(mine, MethodType):
        return _same(mine.__func__, other.__func__) and _same_value(mine.__self__, other.__self__)
    if isinstance(mine, functools.partial):
        return (
            _same(mine.func, other.func)
            and _same_value(mine.args, other.args)
            and _same_value(mine.keywords, other.keywords)
        )
    return _same_value(mine, other)


def _same_value(mine: Any, other: Any) -> bool:
    if mine is other:
        return True
    if isinstance(mine, (FunctionType, MethodType, functools.partial)):
        return _same(mine, other)
    if type(mine) is not type(other):
        return False
    try:
        if mine == other:
            return True
        # operator.attrgetter("user_id") has no equality, but says what it is made of.
        return type(mine).__module__ in {"operator", "_operator"} and mine.__reduce__() == other.__reduce__()
    except Exception:  # an equality that fails makes them no one thing; the error then says how to go on
        return False


def _same_code(mine: CodeType, other: CodeType) -> bool:
    """By what it does: the line it stands in and its file, which is new for each cell, do not count."""
    return (
        mine.co_code == other.co_code
        and mine.co_names == other.co_names
        and mine.co_freevars == other.co_freevars
        and mine.co_varnames == other.co_varnames
        and mine.co_argcount == other.co_argcount
        and mine.co_flags == other.co_flags
        and len(mine.co_consts) == len(other.co_consts)
        and all(
            _same_code(a, b)
            if isinstance(a, CodeType) and isinstance(b, CodeType)
            else type(a) is type(b) and bool(a == b)
            for a, b in zip(mine.co_consts, other.co_consts, strict=True)
        )
    )
