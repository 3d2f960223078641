"""Reasons to stop and wait for a person."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from sagents_nb.frozen import CleanText, FrozenDict, JsonObject, WholeText
from sagents_nb.value import Value


class Interrupt(Value):
    """Returned by a tool or a hook to stop the run and wait for a person.

    Attributes:
        kind: what is wanted, for example ``"question"`` or ``"halt"``.
        message: the same for people, in a sentence.
        data: JSON that whoever asks the person needs.
    """

    kind: CleanText
    message: CleanText = ""
    data: JsonObject = Field(default_factory=FrozenDict)

    def __init__(self, kind: str, message: str = "", data: Mapping[str, Any] | None = None, **more: Any) -> None:
        super().__init__(kind=kind, message=message, data=dict(data or {}), **more)


class Halt(Interrupt):
    """Returned by a tool to stop the run with a message; the person's next message goes on."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(**{"kind": "halt", "message": message, **more})


class PendingInterrupt(Value):
    """An interrupt that waits in ``state.interrupt``.

    Attributes:
        id: names this one interrupt; it is answered once.
        kind: as in `Interrupt`; ``"multiple"`` when several wait at once.
        message: as in `Interrupt`.
        data: as in `Interrupt`.
        source: name of the tool or middleware that asked.
        tool_call_id: the call that waits for its answer, if a tool asked.
        members: the single interrupts of a ``"multiple"`` one.
    """

    id: WholeText = Field(default_factory=lambda: uuid.uuid4().hex)
    kind: CleanText
    message: CleanText = ""
    data: JsonObject = Field(default_factory=FrozenDict)
    source: CleanText = ""
    tool_call_id: CleanText | None = None
    members: tuple[PendingInterrupt, ...] = ()
