"""Reasons to stop and wait for a person."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from sagents_nb.frozen import CleanText, FrozenDict, JsonObject, WholeText
from sagents_nb.value import Value

PAUSE = "pause"
"""Kind of an interrupt that waits for nobody in particular: it is a pause."""

APPROVAL = "approval"
"""Kind of the interrupt of the gate."""

END = "end"
"""Step of a `Continuation` after which nothing is left of the cycle."""


class Interrupt(Value):
    """Returned by a tool or a hook to stop the run and wait for a person.

    Attributes:
        kind: what is wanted, for example ``"question"`` or ``"halt"``.
        message: the same for people, in a sentence.
        data: JSON that whoever asks the person needs.
        state: the State to go on from, if it is another one.
    """

    kind: CleanText
    message: CleanText = ""
    data: JsonObject = Field(default_factory=FrozenDict)
    state: Any = Field(default=None, exclude=True, repr=False)

    def __init__(self, kind: str, message: str = "", data: Mapping[str, Any] | None = None, **more: Any) -> None:
        super().__init__(kind=kind, message=message, data=dict(data or {}), **more)


class Halt(Interrupt):
    """Returned by a tool to stop the run with a message; the person's next message goes on."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(**{"kind": "halt", "message": message, **more})


class Pause(Interrupt):
    """Returned by a hook to stop the run here; ``agent.resume(state)`` goes on where it stopped.

    Args:
        reason: JSON for whoever goes on; ``state.pause_reason`` gives it back.
    """

    def __init__(self, reason: Any = None, **more: Any) -> None:
        words = reason if isinstance(reason, str) else "paused"
        data = {} if reason is None else {"reason": reason}
        super().__init__(**{"kind": PAUSE, "message": words, "data": data, **more})


class ApprovalRequest(Value):
    """Returned by ``needs_approval`` of a middleware: a person has to decide on the call before it runs.

    Attributes:
        allowed_decisions: what the person may do: ``"approve"``, ``"edit"``, ``"reject"``, ``"respond"``.
        description: what the person is told about the call.
    """

    allowed_decisions: tuple[CleanText, ...] = ("approve", "edit", "reject")
    description: CleanText = ""


class Continuation(Value):
    """Where a run stopped and what it had used up, so that nothing runs twice when it goes on.

    Attributes:
        step: the step the loop goes on with; empty for the beginning of the next cycle, `END` when only the
            after_agent hooks are left.
        messages: how many messages the State had: a user's message after these lets go of the interrupt.
        cycle: model calls so far.
        failures: turns in a row in which all tool calls failed.
        max_runs: model calls allowed.
        until_tool: names of the tools that end the run.
        until_success: whether only a result without error ends it.
    """

    step: str = ""
    messages: int = 0
    cycle: int = 0
    failures: int = 0
    max_runs: int | None = None
    until_tool: tuple[str, ...] = ()
    until_success: bool = False


class PendingInterrupt(Value):
    """An interrupt that waits in ``state.interrupt``.

    Attributes:
        id: names this one interrupt; it is answered once.
        kind: as in `Interrupt`; ``"multiple"`` when several wait at once.
        message: as in `Interrupt`.
        data: as in `Interrupt`.
        source: name of the tool or middleware that asked.
        tool_call_id: the call that waits for its answer, if a tool asked.
        members: the single interrupts of a ``"multiple"`` one, and what else waited when the run was halted.
        continuation: where the run goes on.
    """

    id: WholeText = Field(default_factory=lambda: uuid.uuid4().hex)
    kind: CleanText
    message: CleanText = ""
    data: JsonObject = Field(default_factory=FrozenDict)
    source: CleanText = ""
    tool_call_id: CleanText | None = None
    members: tuple[PendingInterrupt, ...] = ()
    continuation: Continuation | None = None
