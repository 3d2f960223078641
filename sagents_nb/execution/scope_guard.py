"""The scope says for whom an agent runs. It is never saved, so it must not get into what is saved."""

from __future__ import annotations

from typing import Any

from sagents_nb.frozen import thaw
from sagents_nb.state import State


def check_scope(after: State, before: State, scope: Any) -> None:
    """Refuse a State whose metadata holds the scope.

    Only metadata that changed is looked at. A scope that is a scalar (a user's id, say) is the integrator's
    business; one that is no JSON cannot get into metadata anyway.

    Raises:
        ValueError: naming the place.
    """
    if after.metadata is not before.metadata:
        refuse_scope(after.metadata, scope, "metadata")


def refuse_scope(value: Any, scope: Any, path: str) -> None:
    """Refuse a JSON value that holds the scope.

    Args:
        value: what is to be saved.
        scope: the agent's.
        path: how to name the value in the error.

    Raises:
        ValueError: naming the place.
    """
    if not isinstance(scope, (dict, list, tuple)) or not scope:
        return
    path = find(value, thaw(scope), path) or ""  # JSON has lists where the scope may have tuples
    if path:
        raise ValueError(
            f"{path} holds the scope, which is never saved; store what you need of it under names of its own, "
            "or read context.scope where it is needed"
        )


def find(value: Any, wanted: Any, path: str) -> str | None:
    """Path of the first place in a JSON value that equals another one, or None."""
    if isinstance(value, dict):
        if value == wanted:
            return path
        pairs = ((f"{path}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, list):
        if value == wanted:
            return path
        pairs = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    else:
        return None
    return next((found for place, item in pairs if (found := find(item, wanted, place))), None)
