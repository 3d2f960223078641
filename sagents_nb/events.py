"""Everything that happens in a run, as data.

The trace, the store and every view are made of these. An event is written once and never changed; its `seq`
numbers are dense and rising within one recorder, so that a reader can tell whether it missed one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from sagents_nb.changes import Change, describe_changes
from sagents_nb.deltas import Delta, TextDelta
from sagents_nb.frozen import clean_text, thaw
from sagents_nb.messages import Message, ToolCall, ToolResult
from sagents_nb.state import State
from sagents_nb.value import Value

# Not frozen dataclasses: a frozen one costs three times as much to make, and some sixty are made per turn. Those made
# most often take their own fields by position too, which costs half of what keywords do.


@dataclass(slots=True, kw_only=True)
class Event:
    """Base of all events.

    Attributes:
        type: the kind, as stored.
        run_id: the run it belongs to; empty for events of a session outside a run.
        agent_id: the agent that runs.
        at: seconds since the epoch.
        seq: its number, given by whoever records it.
    """

    type: ClassVar[str] = "event"
    run_id: str = ""
    agent_id: str = ""
    at: float = field(default_factory=time.time)
    seq: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form: what the store keeps. States are left out; what changed between two is in it."""
        data: dict[str, Any] = {"type": self.type}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, State) or item.name in _LOCAL:
                continue
            data[item.name] = _plain(value)
        return data


_LOCAL = frozenset({"before", "after"})


def _plain(value: Any) -> Any:
    # Messages and results are kept whole in the State and the transcript; an event only says which and how much.
    if isinstance(value, Message):
        usage = {"usage": value.usage.to_json(nested=True)} if value.usage else {}
        calls = [call.name for call in value.tool_calls]
        return {"role": value.role, "status": value.status, "characters": len(value.text), "tool_calls": calls} | usage
    if isinstance(value, ToolCall):
        return {"id": value.id, "name": value.name}
    if isinstance(value, ToolResult):
        return {"is_error": value.is_error, "is_interrupt": value.is_interrupt, "characters": len(value.text)}
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Value):
        return value.to_json(nested=True)
    if isinstance(value, Delta):
        return {"type": value.type} | {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return thaw(value)
    return value


@dataclass(slots=True, kw_only=True)
class RunStarted(Event):
    """A leg of a run began: one call of ``execute`` or ``resume``."""

    type: ClassVar[str] = "run_started"
    resumed: bool = False


@dataclass(slots=True, kw_only=True)
class RunEnded(Event):
    """The leg ended.

    Attributes:
        status: ``"completed"``, ``"interrupted"``, ``"paused"``, ``"cancelled"`` or ``"error"``.
        error: what went wrong, in words.
        error_type: the same in one word.
        duration: seconds.
    """

    type: ClassVar[str] = "run_ended"
    status: str
    error: str | None = None
    error_type: str | None = None
    duration: float = 0.0


@dataclass(slots=True, kw_only=True)
class CycleStarted(Event):
    """One pass of the loop began; `cycle` counts from 1."""

    type: ClassVar[str] = "cycle_started"
    cycle: int


@dataclass(slots=True)
class HookStarted(Event):
    """A hook of a middleware was entered."""

    type: ClassVar[str] = "hook_started"
    middleware: str
    hook: str
    cycle: int


@dataclass(slots=True)
class HookEnded(Event):
    """A hook of a middleware was left.

    Attributes:
        middleware: its name in the stack.
        hook: which hook.
        cycle: the pass of the loop, 0 outside.
        duration: seconds; of a wrap hook, everything inside it included.
        changed: whether the State afterwards is another one.
        before: State the hook was given.
        after: State the hook left.
        error: what it raised, in words.
        cancelled: whether the run was stopped while it ran.
    """

    type: ClassVar[str] = "hook_ended"
    middleware: str
    hook: str
    cycle: int
    duration: float
    changed: bool = False
    before: State | None = None
    after: State | None = None
    error: str | None = None
    cancelled: bool = False

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the hook changed; computed when somebody asks."""
        if not self.changed or self.before is None or self.after is None:
            return ()
        return describe_changes(self.before, self.after)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form, with `changes` computed."""
        # Not super(): a dataclass with slots is a second class, which the zero-argument form does not know.
        return {**Event.to_json(self), "changes": [change.to_json(nested=True) for change in self.changes]}


@dataclass(slots=True, kw_only=True)
class HookSlow(Event):
    """A synchronous hook held up the event loop, and with it every agent and the Stop button.

    Attributes:
        duration: seconds.
        advice: what to change, in words.
    """

    type: ClassVar[str] = "hook_slow"
    middleware: str
    hook: str
    duration: float
    advice: str


@dataclass(slots=True, kw_only=True)
class MiddlewarePrepared(Event):
    """All ``before_model`` hooks of a cycle ran; the State is what the model call is made from."""

    type: ClassVar[str] = "middleware_prepared"
    cycle: int
    state: State | None = None


@dataclass(slots=True, kw_only=True)
class HistoryRepaired(Event):
    """The history did not fit the rule "every tool call has exactly one result" and was mended.

    Attributes:
        repairs: what was done, a sentence each.
    """

    type: ClassVar[str] = "history_repaired"
    cycle: int
    repairs: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class ModelStarted(Event):
    """A request goes to the model.

    Attributes:
        model: its name.
        attempt: 1, and one more for every retry of the same request.
        messages: how many messages it is sent.
        tools: names of the tools it is offered.
    """

    type: ClassVar[str] = "model_started"
    cycle: int
    model: str
    attempt: int = 1
    messages: int = 0
    tools: tuple[str, ...] = ()


@dataclass(slots=True)
class ModelDelta(Event):
    """A piece of the answer arrived. Not stored: the message that they become is.

    Attributes:
        delta: the piece.
        attempt: the attempt it belongs to; pieces of an earlier attempt are void.
    """

    type: ClassVar[str] = "model_delta"
    delta: Delta
    cycle: int
    attempt: int = 1

    @property
    def text(self) -> str:
        """The text in it, if it is a piece of text."""
        return self.delta.text if isinstance(self.delta, TextDelta) else ""


@dataclass(slots=True, kw_only=True)
class ModelFailed(Event):
    """A request failed.

    Attributes:
        retry_in: seconds until the next attempt; None when there is none.
        fallback: name of the model that is asked instead, if another one is.
    """

    type: ClassVar[str] = "model_failed"
    cycle: int
    model: str
    error: str
    error_type: str
    attempt: int = 1
    retry_in: float | None = None
    fallback: str | None = None


@dataclass(slots=True, kw_only=True)
class ModelEnded(Event):
    """The model answered, or was stopped in the middle.

    Attributes:
        message: the answer.
        duration: seconds.
    """

    type: ClassVar[str] = "model_ended"
    cycle: int
    model: str
    message: Message
    duration: float
    attempt: int = 1


@dataclass(slots=True, kw_only=True)
class MessageAdded(Event):
    """A message of the model or of the tools became part of the State."""

    type: ClassVar[str] = "message_added"
    message: Message
    cycle: int


@dataclass(slots=True, kw_only=True)
class ToolStarted(Event):
    """A tool call begins."""

    type: ClassVar[str] = "tool_started"
    call: ToolCall
    cycle: int


@dataclass(slots=True, kw_only=True)
class ToolEntered(Event):
    """The tool's own function is about to be called: the arguments are right, and every wrap hook let the call pass."""

    type: ClassVar[str] = "tool_entered"
    call: ToolCall
    cycle: int


@dataclass(slots=True, kw_only=True)
class ToolWaiting(Event):
    """A tool that runs on the main thread waits for it: a cell is busy, or nobody lets it work there."""

    type: ClassVar[str] = "tool_waiting"
    call: ToolCall
    cycle: int


@dataclass(slots=True, kw_only=True)
class ToolEnded(Event):
    """A tool call ended.

    Attributes:
        call: what was asked.
        result: what the model will see.
        duration: seconds.
        output: what the tool printed.
        cancelled: whether the run was stopped before the tool had answered.
    """

    type: ClassVar[str] = "tool_ended"
    call: ToolCall
    result: ToolResult
    cycle: int
    duration: float
    output: str = ""
    cancelled: bool = False


@dataclass(slots=True, kw_only=True)
class ToolAbandoned(Event):
    """A tool in a worker thread still runs although its call is over (timeout or cancel); its result is dropped."""

    type: ClassVar[str] = "tool_abandoned"
    call: ToolCall
    cycle: int


@dataclass(slots=True, kw_only=True)
class StateUpdated(Event):
    """The updates of a batch of tools were merged into the State.

    Attributes:
        before: State the tools were given.
        after: State with their updates.
        conflicts: metadata keys that two calls of the batch wrote; the later call won.
    """

    type: ClassVar[str] = "state_updated"
    cycle: int
    before: State | None = None
    after: State | None = None
    conflicts: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was changed; computed when somebody asks."""
        if self.before is None or self.after is None:
            return ()
        return describe_changes(self.before, self.after)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form, with `changes` computed."""
        return {**Event.to_json(self), "changes": [change.to_json(nested=True) for change in self.changes]}


@dataclass(slots=True, kw_only=True)
class ToolsInterrupted(Event):
    """Tools of one message wait for a person; the others of the message ran.

    Attributes:
        results: the placeholders of those that wait, in the order of the calls.
    """

    type: ClassVar[str] = "tools_interrupted"
    results: tuple[ToolResult, ...]
    cycle: int


@dataclass(slots=True, kw_only=True)
class RunInterrupted(Event):
    """The run stops and waits for a person.

    Attributes:
        kind: of the interrupt.
        message: for people.
        interrupt_id: which one.
    """

    type: ClassVar[str] = "run_interrupted"
    kind: str
    message: str
    interrupt_id: str


@dataclass(slots=True, kw_only=True)
class Published(Event):
    """Something a middleware or tool published with ``run.publish`` or ``context.publish``.

    Attributes:
        source: name of the middleware or tool.
        name: what it is called.
        data: JSON.
    """

    type: ClassVar[str] = "published"
    source: str
    name: str
    data: dict[str, Any] = field(default_factory=dict)


# Events of a session, outside of any run or around it.


@dataclass(slots=True, kw_only=True)
class StatusChanged(Event):
    """A session's status is another one now: idle, running, interrupted, paused, cancelled or error.

    Attributes:
        status: the new one.
        error: what went wrong, in words, for ``"error"``.
    """

    type: ClassVar[str] = "status_changed"
    status: str
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class DisplayChanged(Event):
    """Rows of the transcript that people see were added or changed.

    Attributes:
        rows: the rows as they are now, each a `DisplayMessage`.
    """

    type: ClassVar[str] = "display_changed"
    rows: tuple[Any, ...]


@dataclass(slots=True, kw_only=True)
class QueueChanged(Event):
    """Messages that wait for the present run to end.

    Attributes:
        texts: of all that wait, in order.
    """

    type: ClassVar[str] = "queue_changed"
    texts: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Saved(Event):
    """A turn is durable.

    Attributes:
        revision: the revision of the conversation's state that it became.
    """

    type: ClassVar[str] = "saved"
    revision: int


@dataclass(slots=True, kw_only=True)
class SaveFailed(Event):
    """A turn could not be saved; the session goes on and tries again with the next one."""

    type: ClassVar[str] = "save_failed"
    error: str


@dataclass(slots=True, kw_only=True)
class SessionStopped(Event):
    """The session's server stopped; no event follows."""

    type: ClassVar[str] = "session_stopped"
