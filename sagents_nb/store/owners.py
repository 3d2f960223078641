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
        # 42 and "42" are different owners, so numbers and words must not meet in one column.
        return value if isinstance(value, str) and not value.lstrip("-").isdecimal() else json.dumps(value, default=str)

    def same(self, other: OwnerFunction | None) -> bool:
        """Whether a function does the same: it is the same one, or was made by the same code with the same values.

        Re-running a cell makes a new function of the same code; that is no other owner.
        """
        mine = self.function
        if mine is other:
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
    if dataclasses.is_dataclass(scope) and not isinstance(scope, type):
        wanted: Any = {item.name: getattr(scope, item.name) for item in dataclasses.fields(scope)}
    elif isinstance(scope, (dict, list)):
        wanted = scope
    elif isinstance(scope, tuple):
        wanted = list(scope)
    else:
        return
    if not wanted:
        return
    for name, value in values:
        path = find(value, wanted, name)
        if path is not None:
            raise StoreError(f"{path} holds the scope, which is never saved; nothing of this turn was written")
