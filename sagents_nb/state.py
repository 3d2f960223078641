"""The runtime data of one conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator

from sagents_nb.frozen import CleanText, freeze, frozen_object, same_json
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.messages import Content, Message
from sagents_nb.value import Value

STATE_VERSION = 1
"""Version of the JSON form of a State; `State.from_json` refuses newer ones."""

_METADATA_HINT = "state.put_metadata('key', value) gives a changed State"


def _metadata(value: Any) -> Any:
    return frozen_object(value, path="metadata", hint=_METADATA_HINT)


class Todo(Value):
    """One item of a task list."""

    id: int = Field(gt=0)
    content: CleanText = Field(min_length=1, max_length=1000)
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"


class State(Value):
    """Messages, todos, metadata and pending interrupt of one conversation.

    Immutable to the bottom: every update returns a new State, and the old one is still what it was.

    Attributes:
        messages: the conversation, without the agent's system prompt.
        todos: the task list.
        metadata: saved JSON that middleware and tools read and write; never put the scope into it.
        interrupt: why the run waits for a person, if it does.
        agent_id: the agent that runs it.
        conversation_id: the conversation it belongs to.
    """

    messages: tuple[Message, ...] = ()
    todos: tuple[Todo, ...] = ()
    metadata: Annotated[dict[str, Any], PlainValidator(_metadata)] = Field(default_factory=lambda: _metadata({}))
    interrupt: PendingInterrupt | None = None
    agent_id: str | None = None
    conversation_id: str | None = None

    @classmethod
    def from_text(cls, text: Content, **fields: Any) -> Self:
        """A State that holds one user message.

        Args:
            text: what the person says: text or content parts.
            **fields: other fields of the State.
        """
        return cls(messages=(Message("user", text),), **fields)

    # Updates of one field skip the validation of all the others: in a long conversation it would cost more
    # with every message. What goes in is checked here.

    def add_message(self, message: Message | str) -> Self:
        """A State with one more message at the end; a str is a user message."""
        return self.add_messages((Message("user", message) if isinstance(message, str) else message,))

    def add_messages(self, messages: Iterable[Message]) -> Self:
        """A State with more messages at the end."""
        new = tuple(messages)
        for message in new:
            if not isinstance(message, Message):
                raise TypeError(
                    f"add_message got a {type(message).__name__}: give it a Message, or the user's text as a str"
                )
        return self.model_copy(update={"messages": self.messages + new})

    def with_messages(self, messages: Iterable[Message]) -> Self:
        """A State with these messages instead."""
        new = tuple(messages)
        for message in new:
            if not isinstance(message, Message):
                raise TypeError(f"with_messages got a {type(message).__name__} among the messages: {message!r}")
        return self.model_copy(update={"messages": new})

    def get_metadata(self, key: str, default: Any = None) -> Any:
        """The value under `key`, or `default` when the key is absent."""
        return self.metadata.get(key, default)

    def put_metadata(self, key: str, value: Any) -> Self:
        """A State with one metadata key set.

        Args:
            key: a string.
            value: JSON; frozen on the way in.

        Raises:
            ValueError: the key is not a str, or something in the value is not JSON.
        """
        if type(key) is not str:
            raise ValueError(f"metadata keys are strings, got {key!r} ({type(key).__name__}): use {str(key)!r}")
        frozen = freeze(value, path=f"metadata[{key!r}]", hint=_METADATA_HINT)
        return self.model_copy(update={"metadata": _metadata({**self.metadata, key: frozen})})

    def delete_metadata(self, key: str) -> Self:
        """A State without this metadata key."""
        rest = {name: value for name, value in self.metadata.items() if name != key}
        return self.model_copy(update={"metadata": _metadata(rest)})

    def with_interrupt(self, interrupt: PendingInterrupt | None) -> Self:
        """A State that waits for this interrupt, or for nothing."""
        return self.model_copy(update={"interrupt": interrupt})

    @property
    def last_text(self) -> str:
        """Text of the last assistant message, empty if there is none."""
        return next((m.text for m in reversed(self.messages) if m.role == "assistant"), "")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form with its version. Ids of agent and conversation are in it, the scope never is."""
        return {"version": STATE_VERSION, **super().to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Self:
        """Read what `to_json` gave, as a dict or as JSON text.

        Raises:
            ValueError: it was written by a newer version of the toolkit, or is not a State.
        """
        if isinstance(data, str):
            data = _parse(data)
        version = data.get("version", STATE_VERSION)
        if not isinstance(version, int) or version > STATE_VERSION:
            raise ValueError(
                f"this State has the format version {version!r}, newer than the {STATE_VERSION} this sagents_nb "
                "knows: pip install --upgrade sagents-nb"
            )
        return super().from_json({key: value for key, value in data.items() if key != "version"})

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        from sagents_nb import _late

        return {"text/plain": repr(self), "text/html": _late.state_html(self)}


def _parse(text: str) -> dict[str, Any]:
    import json

    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"the JSON of a State is an object, this is a {type(data).__name__}")
    return data


class StateUpdate(Value):
    """What a tool changes in the State; everything not given stays as it is.

    Attributes:
        messages: added at the end, after the tool message.
        todos: the whole new list.
        metadata: keys to set, one by one.
        delete_metadata: keys to remove.
        put_todos: todos to add, or to put in place of those with the same id.
        delete_todos: ids of todos to remove.
    """

    messages: tuple[Message, ...] = ()
    todos: tuple[Todo, ...] | None = None
    metadata: Annotated[dict[str, Any], PlainValidator(_metadata)] = Field(default_factory=lambda: _metadata({}))
    delete_metadata: tuple[str, ...] = ()
    put_todos: tuple[Todo, ...] = ()
    delete_todos: tuple[int, ...] = ()

    def apply(self, state: State) -> State:
        """The State with this update merged in."""
        changes: dict[str, Any] = {}
        if self.messages:
            changes["messages"] = state.messages + self.messages
        if self.todos is not None or self.put_todos or self.delete_todos:
            todos = {todo.id: todo for todo in (state.todos if self.todos is None else self.todos)}
            todos.update({todo.id: todo for todo in self.put_todos})
            changes["todos"] = tuple(todo for key, todo in todos.items() if key not in self.delete_todos)
        if self.metadata or self.delete_metadata:
            kept = {key: value for key, value in state.metadata.items() if key not in self.delete_metadata}
            changes["metadata"] = _metadata({**kept, **self.metadata})
        return state.model_copy(update=changes) if changes else state

    @classmethod
    def between(cls, before: State, after: State) -> StateUpdate:
        """The update that leads from the State a tool was given to the one it returned.

        Args:
            before: ``context.state``.
            after: what the tool made of it.

        Raises:
            ValueError: `after` was not made from `before`, lost messages, or changed what a tool may not change.
        """
        how = "return StateUpdate(metadata={…}, messages=[…], todos=[…]) to say only what changes"
        count = len(before.messages)
        if len(after.messages) < count or any(
            new is not old for new, old in zip(after.messages, before.messages, strict=False)
        ):
            raise ValueError(
                f"the returned State was not made from context.state: it does not begin with its {count} "
                f"messages. Use context.state.put_metadata(…), or {how}"
            )
        for name in ("agent_id", "conversation_id", "interrupt"):
            if getattr(before, name) != getattr(after, name):
                raise ValueError(f"the returned State changes {name}, which a tool may not: {how}")
        old_todos = {todo.id: todo for todo in before.todos}
        new_ids = {todo.id for todo in after.todos}
        update = cls(
            messages=after.messages[count:],
            metadata={
                key: value
                for key, value in after.metadata.items()
                if key not in before.metadata or not same_json(before.metadata[key], value)
            },
            delete_metadata=tuple(key for key in before.metadata if key not in after.metadata),
            put_todos=tuple(todo for todo in after.todos if old_todos.get(todo.id) != todo),
            delete_todos=tuple(key for key in old_todos if key not in new_ids),
        )
        if update.apply(before).todos == after.todos:
            return update
        # Another order cannot be said item by item.
        return update.model_copy(update={"todos": after.todos, "put_todos": (), "delete_todos": ()})
