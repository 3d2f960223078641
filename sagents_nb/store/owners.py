"""From a scope to the owner of rows. The scope itself goes no further than here."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from sagents_nb.errors import StoreError
from sagents_nb.execution.scope_guard import find
from sagents_nb.frozen import clean_text

OwnerFunction = Callable[[Any], Any]


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
            return "local"
        try:
            value = self.function(scope)
        except Exception as error:
            raise StoreError(
                f"Store(owner=…) raised {type(error).__name__} for a scope of type {type(scope).__name__}: {error}. "
                "Give the scope this store was made for: Agent(scope=…), or the first argument of the method"
            ) from error
        if isinstance(value, bool) or not isinstance(value, (str, int, uuid.UUID)) or value == "":
            raise StoreError(
                f"Store(owner=…) gave {value!r}, a {type(value).__name__}; an owner is a non-empty str, an int or a UUID"
            )
        # 42 and "42" are different owners, so numbers and words must not meet in one column. A quote at the beginning
        # says that something was quoted, so a word that begins with one is quoted too.
        if not isinstance(value, str):
            return json.dumps(value, default=str)
        value = clean_text(str.__str__(value))
        return json.dumps(value) if value.startswith('"') or value.lstrip("-").isdecimal() else value

    def same(self, other: OwnerFunction | None) -> bool:
        """Whether a function does the same: it is the same one, or was made by the same code with the same values.

        Re-running a cell makes a new function of the same code; that is no other owner.
        """
        mine = self.function
        if mine is other or (mine is not None and mine == other):  # a bound method is a new object every time
            return True
        if not isinstance(mine, FunctionType) or not isinstance(other, FunctionType):
            return False
        return (
            mine.__code__.co_code == other.__code__.co_code
            and mine.__code__.co_consts == other.__code__.co_consts
            and mine.__code__.co_names == other.__code__.co_names
            and [cell.cell_contents for cell in mine.__closure__ or ()]
            == [cell.cell_contents for cell in other.__closure__ or ()]
            and mine.__defaults__ == other.__defaults__
        )


def refuse_scope(scope: Any, values: Iterable[tuple[str, Any]]) -> None:
    """Refuse to write a scope.

    Args:
        scope: a dict, list, tuple or dataclass is looked for; a scalar is the integrator's business.
        values: JSON values by the name to call them in the error.

    Raises:
        StoreError: it is in one of them; the text names the place.
    """
    wanted = _plain(scope)
    if not isinstance(wanted, (dict, list)) or not wanted:
        return
    for name, value in values:
        path = find(value, wanted, name)
        if path is not None:
            raise StoreError(f"{path} holds the scope, which is never saved; nothing of this turn was written")


def _plain(value: Any) -> Any:
    """What becomes of a scope in JSON: tuples are lists there, dataclasses are objects."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
