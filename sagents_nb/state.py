"""The runtime data of one conversation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, StrictInt

from sagents_nb.errors import did_you_mean
from sagents_nb.frozen import CleanText, WholeText, freeze, frozen_object, same_json
from sagents_nb.interrupts import PendingInterrupt
from sagents_nb.messages import Content, Message, ToolResult
from sagents_nb.todos import Todo, TodoStatus
from sagents_nb.value import Value

_METADATA_HINT = "state.put_metadata('key', value) gives a changed State"


def _metadata(value: Any) -> Any:
    return frozen_object(value, path="metadata", hint=_METADATA_HINT)


_NO_METADATA = _metadata({})


class State(Value):
    """Messages, todos, metadata and pending interrupt of one conversation.

    Immutable to the bottom: every update returns a new State, and the old one is still what it was.

    Attributes:
        messages: the conversation, without the agent's system prompt.
        todos: the task list.
        metadata: saved JSON that middleware and tools read and write; never put the scope into it.
        interrupt: why the run waits for a person, if it does.
        agent_id: the agent that runs it.
        conversation_id: the conversation it belongs to; an int stays one.

    The JSON form has all of this in it, ids too; the scope is no part of a State.
    """

    messages: tuple[Message, ...] = ()
    todos: tuple[Todo, ...] = ()
    metadata: Annotated[dict[str, Any], PlainValidator(_metadata)] = Field(default_factory=lambda: _NO_METADATA)
    interrupt: PendingInterrupt | None = None
    agent_id: WholeText | None = None
    conversation_id: WholeText | StrictInt | None = None

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
        if set(map(type, new)) - {Message}:  # one pass in C: isinstance for each takes longer than all the rest
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

    def replace_tool_result(self, tool_call_id: str, result: ToolResult) -> Self:
        """A State in which a tool call has another result.

        Args:
            tool_call_id: which call. Some models use an id again in a later turn; the latest result is meant.
            result: what to put there; `tool_call_id` and `name` are filled in.

        Raises:
            ValueError: no call with this id has a result, or `result` is that of another call.
        """
        if result.tool_call_id not in ("", tool_call_id):
            raise ValueError(
                f"this is the result of {result.tool_call_id!r}, it cannot replace that of {tool_call_id!r}"
            )
        for place in range(len(self.messages) - 1, -1, -1):
            results = self.messages[place].tool_results
            for number in range(len(results) - 1, -1, -1):
                if results[number].tool_call_id == tool_call_id:
                    filled = {"tool_call_id": tool_call_id, "name": result.name or results[number].name}
                    new = (*results[:number], result.model_copy(update=filled), *results[number + 1 :])
                    message = self.messages[place].model_copy(update={"tool_results": new})
                    return self.with_messages((*self.messages[:place], message, *self.messages[place + 1 :]))
        known = [result.tool_call_id for message in self.messages for result in message.tool_results]
        raise ValueError(
            f"no tool call {tool_call_id!r} has a result in this State{did_you_mean(tool_call_id, known)}; the latest "
            f"that have: {', '.join(map(repr, known[-5:])) or 'none'}"
        )

    def put_todo(self, todo: Todo) -> Self:
        """A State with this todo: in place of the one with the same id, else at the end."""
        if not isinstance(todo, Todo):
            raise TypeError(f"put_todo got a {type(todo).__name__}: give it a Todo, or Todo.from_map({todo!r})")
        if self.get_todo(todo.id) is None:
            todos = (*self.todos, todo)
        else:
            todos = tuple(todo if each.id == todo.id else each for each in self.todos)
        return self.model_copy(update={"todos": todos})

    def get_todo(self, todo_id: int) -> Todo | None:
        """The todo with this id."""
        return next((todo for todo in self.todos if todo.id == todo_id), None)

    def delete_todo(self, todo_id: int) -> Self:
        """A State without the todo of this id."""
        return self.model_copy(update={"todos": tuple(todo for todo in self.todos if todo.id != todo_id)})

    def todos_by_status(self, status: TodoStatus) -> tuple[Todo, ...]:
        """The todos of one status, in their order."""
        return tuple(todo for todo in self.todos if todo.status == status)

    def reset(self) -> Self:
        """An empty State of the same agent."""
        return type(self)(agent_id=self.agent_id)

    @property
    def pause_reason(self) -> Any:
        """Why the run is paused, as whoever paused it said; None when it is not, or for no reason."""
        if self.interrupt is None or self.interrupt.kind != "pause":
            return None
        return self.interrupt.data.get("reason")

    @property
    def last_text(self) -> str:
        """Text of the last assistant message, empty if there is none."""
        return next((m.text for m in reversed(self.messages) if m.role == "assistant"), "")

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        from sagents_nb import _late

        return {"text/plain": repr(self), "text/html": _late.state_html(self)}


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
    metadata: Annotated[dict[str, Any], PlainValidator(_metadata)] = Field(default_factory=lambda: _NO_METADATA)
    delete_metadata: tuple[CleanText, ...] = ()
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
