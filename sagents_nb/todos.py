"""The items of a task list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, TypeAlias, get_args

from pydantic import Field, ValidationError

from sagents_nb.frozen import CleanText
from sagents_nb.value import Value

TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed", "cancelled"]

_STATUSES = get_args(TodoStatus)
_RESOLVED = ("completed", "cancelled")


class Todo(Value):
    """One item of a task list.

    Attributes:
        id: counts from 1; unique within one list.
        content: what is to be done, at most 1,000 characters.
        status: how far it is.
    """

    id: int = Field(gt=0)
    content: CleanText = Field(min_length=1, max_length=1000)
    status: TodoStatus = "pending"

    @classmethod
    def from_map(cls, item: Mapping[str, Any]) -> Self:
        """Read an item as models write it: what else it says is ignored, a status of their own is ``"pending"``.

        Args:
            item: has ``id`` (a number, or the text of one), ``content`` and perhaps ``status``.

        Raises:
            ValueError: id or content are missing or wrong.
        """
        known = {key: item[key] for key in ("id", "content", "status") if key in item}
        if isinstance(known.get("status"), str) and known["status"] not in _STATUSES:
            del known["status"]
        return cls.model_validate(known)

    def to_map(self) -> dict[str, Any]:
        """``{"id": …, "content": …, "status": …}``, as models are shown it."""
        return self.model_dump()


def todos_from_maps(items: Iterable[Mapping[str, Any]]) -> tuple[Todo, ...]:
    """A task list as models write it.

    Args:
        items: as for `Todo.from_map`. One whose id is missing or no positive number gets its position in the list, counted
            from 1, or the next number that no other has.

    Raises:
        ValueError: something is no item; the text says which and why.
    """
    maps = list(items)
    for place, item in enumerate(maps, 1):
        if not isinstance(item, Mapping):
            raise ValueError(f"todo {place} is a {type(item).__name__}; it is an object with id, content and status")
    ids = [_id_of(item.get("id")) for item in maps]
    taken = set(ids)
    todos = []
    for place, (item, given) in enumerate(zip(maps, ids, strict=True), 1):
        number = given
        if number is None:
            number = next(free for free in range(place, place + len(taken) + 1) if free not in taken)
            taken.add(number)
        try:
            todos.append(Todo.from_map({**item, "id": number}))
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            raise ValueError(f"todo {place}: {faults}") from error
    return tuple(todos)


def _id_of(value: Any) -> int | None:
    """A positive number, or its text; None for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 10 else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if type(value) is int and value > 0 else None


def resolved(item: Todo | str | None) -> bool:
    """Whether nothing is left to do.

    Args:
        item: a todo, or its status in words. Words that are no status are not resolved.

    Raises:
        TypeError: it is something else.
    """
    status = item.status if isinstance(item, Todo) else item
    if status is not None and not isinstance(status, str):
        raise TypeError(f"resolved takes a Todo or its status, got {item!r} ({type(item).__name__})")
    return status in _RESOLVED


def is_open(item: Todo | str | None) -> bool:
    """Whether something is left to do: the opposite of `resolved`."""
    return not resolved(item)
