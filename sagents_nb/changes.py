"""What differs between two States, in words a person can read."""

from __future__ import annotations

import json
from typing import Any, Literal

from sagents_nb.frozen import CleanText, same_json
from sagents_nb.state import State
from sagents_nb.value import Value

_SHOWN = 120
"""Characters of a value that are shown; the whole one is in the State."""


class Change(Value):
    """One difference.

    Attributes:
        path: what changed, for example ``"metadata.title"`` or ``"messages"``.
        kind: whether it was added, removed or replaced.
        before: the old value, shortened, as text.
        after: the new value, shortened, as text.
    """

    path: CleanText
    kind: Literal["added", "removed", "replaced"]
    before: CleanText = ""
    after: CleanText = ""

    def __str__(self) -> str:
        if self.kind == "added":
            return f"+ {self.path}: {self.after}"
        if self.kind == "removed":
            return f"- {self.path}: {self.before}"
        return f"~ {self.path}: {self.before} → {self.after}"


def _show(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _message(message: Any) -> str:
    said = message.text or ", ".join(
        [f"{call.name}(…)" for call in message.tool_calls] + [result.text for result in message.tool_results]
    )
    return _show(f"{message.role}: {said}")


def describe_changes(before: State, after: State) -> tuple[Change, ...]:
    """Compare two States.

    Args:
        before: the older one.
        after: the newer one.

    Returns:
        Changes of messages (kept head and tail left out), todos by id, metadata by key, interrupt; empty when
        the two are equal.
    """
    changes: list[Change] = []
    changes += _messages(before.messages, after.messages)
    old_todos = {todo.id: todo for todo in before.todos}
    new_todos = {todo.id: todo for todo in after.todos}
    changes += _mapping("todos", old_todos, new_todos, lambda todo: f"{todo.content} ({todo.status})")
    if before.metadata is not after.metadata:
        changes += _mapping("metadata", before.metadata, after.metadata, _show)
    if before.interrupt != after.interrupt:
        old, new = before.interrupt, after.interrupt
        kind: Literal["added", "removed", "replaced"] = "replaced" if old and new else "added" if new else "removed"
        changes.append(
            Change(path="interrupt", kind=kind, before=old.kind if old else "", after=new.kind if new else "")
        )
    for name in ("agent_id", "conversation_id"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            changes.append(Change(path=name, kind="replaced", before=_show(was), after=_show(now)))
    return tuple(changes)


def common_ends(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[int, int]:
    """How many items two sequences share at the head and, beyond it, at the tail.

    Items are compared by identity first, which is nearly free for States that share their messages.
    """
    limit = min(len(old), len(new))
    if old[:limit] == new[:limit]:  # one C-level pass covers the usual case: something was appended
        return limit, 0
    head = 0
    while head < limit and (old[head] is new[head] or old[head] == new[head]):
        head += 1
    tail = 0
    while tail < limit - head and (old[-1 - tail] is new[-1 - tail] or old[-1 - tail] == new[-1 - tail]):
        tail += 1
    return head, tail


def _messages(old: tuple[Any, ...], new: tuple[Any, ...]) -> list[Change]:
    if old is new:
        return []
    head, tail = common_ends(old, new)
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    changes: list[Change] = []
    for offset in range(max(len(gone), len(come))):
        was = _message(gone[offset]) if offset < len(gone) else ""
        now = _message(come[offset]) if offset < len(come) else ""
        kind: Literal["added", "removed", "replaced"] = "replaced" if was and now else "added" if now else "removed"
        changes.append(Change(path=f"messages[{head + offset}]", kind=kind, before=was, after=now))
    return changes


def _mapping(name: str, old: Any, new: Any, show: Any) -> list[Change]:
    changes: list[Change] = []
    for key in [*old, *(key for key in new if key not in old)]:
        path = f"{name}.{key}"
        if key not in new:
            changes.append(Change(path=path, kind="removed", before=show(old[key])))
        elif key not in old:
            changes.append(Change(path=path, kind="added", after=show(new[key])))
        elif not same_json(old[key], new[key]):
            changes.append(Change(path=path, kind="replaced", before=show(old[key]), after=show(new[key])))
    return changes
