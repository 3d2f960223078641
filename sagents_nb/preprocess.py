"""Preprocessors: what an application makes of a user's message before it is stored or shown.

One message becomes two: the one that people see, and the one that the model is sent (with a mention resolved, a file
read in, a secret taken out).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, TypedDict

from sagents_nb.errors import MessageRejected, in_words
from sagents_nb.messages import Message
from sagents_nb.state import State


class PreprocessContext(TypedDict):
    """Where the message was sent.

    Attributes:
        agent_id: of the agent that will answer.
        conversation_id: of the conversation, if it has an id.
        tool_context: the agent's static extras, read-only.
        state: the conversation so far, without the message.
    """

    agent_id: str
    conversation_id: str | None
    tool_context: Mapping[str, Any]
    state: State


class Preprocessed(NamedTuple):
    """What became of a message.

    Attributes:
        display: what people see.
        llm: what the model is sent.
    """

    display: Message
    llm: Message


Answer: TypeAlias = Message | tuple[Message, Message]
"""One message for both, or ``(display, llm)``."""


class MessagePreprocessor(Protocol):
    """What an application implements; a plain function with these parameters does as well."""

    def preprocess(self, scope: Any, message: Message, context: PreprocessContext) -> Answer | Awaitable[Answer]:
        """Look at a user's message before anybody else does.

        Args:
            scope: for whom the agent runs; the first argument, as in all that an application implements.
            message: as the user sent it.
            context: where.

        Returns:
            The message for people and model, or ``(display, llm)``.

        Raises:
            MessageRejected: it is refused; the sender gets the text. Any other exception refuses it too.
        """
        ...


PreprocessFunction: TypeAlias = Callable[[Any, Message, PreprocessContext], Answer | Awaitable[Answer]]


async def preprocess(
    preprocessor: MessagePreprocessor | PreprocessFunction | None,
    scope: Any,
    message: Message,
    context: PreprocessContext,
) -> Preprocessed:
    """Apply a preprocessor to a user's message, and check what it gave.

    Args:
        preprocessor: None leaves the message as it is.
        scope: for whom the agent runs.
        message: as the user sent it.
        context: where.

    Raises:
        MessageRejected: the preprocessor refused it, failed, or gave something that is no user's message.
    """
    if preprocessor is None:
        return Preprocessed(message, message)
    given: Any = preprocessor
    function: PreprocessFunction = getattr(given, "preprocess", given)
    name = getattr(function, "__qualname__", type(given).__name__)
    try:
        answer = function(scope, message, context)
        if inspect.isawaitable(answer):
            answer = await answer
    except MessageRejected:
        raise
    except Exception as error:
        raise MessageRejected(
            f"the message was not accepted: the preprocessor {name} raised {type(error).__name__}: {in_words(error)}"
        ) from error
    both = answer if isinstance(answer, tuple) else (answer, answer)
    if len(both) != 2:
        raise _wrong(name, f"a tuple of {len(both)}")
    for part in both:
        if not isinstance(part, Message):
            raise _wrong(name, f"a {type(part).__name__}")
        if part.role != "user":
            raise _wrong(name, f"a Message of the role {part.role!r}")
        if not part.text.strip() and all(piece.type == "text" for piece in part.content):
            raise _wrong(name, "a Message with nothing in it")
    return Preprocessed(*both)


def _wrong(name: str, what: str) -> MessageRejected:
    return MessageRejected(
        f"the message was not accepted: the preprocessor {name} gave {what}; it returns a user's Message, or "
        "(display, llm), a Message for people and one for the model. message.replace(content=…) gives a changed one"
    )
