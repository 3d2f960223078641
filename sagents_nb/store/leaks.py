"""The scope says for whom an agent runs. It is never saved: a turn that holds it is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from sagents_nb.errors import StoreError
from sagents_nb.frozen import thaw
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.state import State


def forms_of(scope: Any) -> list[Any]:
    """The JSON containers a scope could have become; none for a scalar, which is the integrator's business.

    An empty container is none either: it is equal to every empty list or dict.
    """
    forms: list[Any] = []
    if isinstance(scope, BaseModel):
        forms = [scope.model_dump(), scope.model_dump(mode="json")]
    elif dataclasses.is_dataclass(scope) and not isinstance(scope, type):
        try:
            forms = [dataclasses.asdict(scope)]
        except TypeError:  # something in it cannot be copied: a lock, a connection
            forms = [{item.name: getattr(scope, item.name) for item in dataclasses.fields(scope)}]
    elif isinstance(scope, Mapping):
        forms = [thaw(dict(scope))]
    elif isinstance(scope, (list, tuple)):
        forms = [thaw(scope)]
        if hasattr(scope, "_asdict"):
            forms.append(scope._asdict())
    for form in list(forms):
        try:
            written = json.loads(json.dumps(form, default=str))
        except (TypeError, ValueError):  # keys that are no text: then it cannot get into JSON this way
            continue
        if written not in forms:
            forms.append(written)
    return [form for form in forms if form]


def refuse(forms: list[Any], value: Any, path: str) -> None:
    """Refuse a JSON value that holds one of these containers.

    Raises:
        StoreError: naming the place.
    """
    for item, place in _containers(value, path):
        if item in forms:
            raise StoreError(
                f"{place} holds the scope, which is never saved; nothing of this turn was written. Save what you need "
                "of it under names of its own, or read context.scope where it is needed"
            )


def refuse_in_state(forms: list[Any], state: State) -> None:
    """`refuse` for the places of a State that programs write to."""
    refuse(forms, state.metadata, "state.metadata")
    if state.interrupt is not None:
        _refuse_in_interrupt(forms, state.interrupt, "state.interrupt")
    for index, message in enumerate(state.messages):
        if message.metadata:
            refuse(forms, message.metadata, f"state.messages[{index}].metadata")


def _refuse_in_interrupt(forms: list[Any], interrupt: PendingInterrupt, path: str) -> None:
    refuse(forms, interrupt.data, f"{path}.data")
    for index, member in enumerate(interrupt.members):
        _refuse_in_interrupt(forms, member, f"{path}.members[{index}]")


def _containers(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    pending = [(value, path)]
    while pending:
        item, place = pending.pop()
        if isinstance(item, dict):
            yield item, place
            # The arguments of a tool call are the model's words, and the model never sees the scope: get_user(user_id=42)
            # is no leak of Scope(user_id=42).
            words = "call_id" in item or "id" in item
            pending += [
                (entry, f"{place}[{key!r}]") for key, entry in item.items() if not (words and key == "arguments")
            ]
        elif isinstance(item, (list, tuple)):
            yield list(item), place
            pending += [(entry, f"{place}[{index}]") for index, entry in enumerate(item)]
