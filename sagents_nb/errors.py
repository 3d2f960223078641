"""Every error of the toolkit.

::

    Exception
    └── SagentsError                  catch this to catch them all
        ├── ConfigurationError        an agent, tool or middleware is put together wrongly   (also a TypeError)
        ├── ModelError                the language model or the way to it failed
        ├── ToolError                 a tool tells the model, in words, what went wrong
        ├── AgentError                a run failed; ``.state`` is how far it came
        ├── MessageRejected           a user's message was not accepted                             (also a ValueError)
        ├── SessionError              a session cannot do what was asked now
        └── StoreError                the database file cannot be used
            ├── StoreLocked           another process holds it; ``.pid`` where known
            ├── StoreClosed           the store was closed
            └── UnknownConversation   this owner has no such conversation or revision            (also a LookupError)
    KeyboardInterrupt
    └── RunCancelled                  ``agent.run`` was interrupted; ``.state`` is how far it came
    asyncio.CancelledError            ``await agent.execute`` was cancelled; ``.state`` is how far it came
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from sagents_nb.state import State


SIMILAR = 0.7
"""Jaro similarity above which one word is suggested for another; the reference's limit."""


class SagentsError(Exception):
    """Base class of the toolkit's errors."""


class ConfigurationError(SagentsError, TypeError):
    """Something was put together wrongly; the text says what to type instead.

    Raised when an object is built, never in the middle of a run. A TypeError, which pydantic lets through as it is;
    a ValueError would come wrapped in a report about fields.
    """


class ModelError(SagentsError):
    """A language model, or the way to it, failed.

    Raised by a `ChatModel`; the loop retries it when `retryable`, else turns it into an `AgentError` of the
    same type.

    Attributes:
        type: what happened in one word, for example ``"rate_limit_exceeded"`` or ``"overloaded"``.
        message: the same in a sentence.
        retryable: whether asking again may help.
        retry_after: seconds the provider asked to wait, if it said so.
        status_code: HTTP status, if there was a response.
        request_id: the provider's id of the request, for its support.
    """

    def __init__(
        self,
        message: str,
        *,
        type: str = "model_error",
        retryable: bool = False,
        retry_after: float | None = None,
        status_code: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.type = type
        self.retryable = retryable
        self.retry_after = retry_after
        self.status_code = status_code
        self.request_id = request_id


class ToolError(SagentsError):
    """Raise it in a tool to give the model exactly this text as an error result, without class and traceback."""


class AgentError(SagentsError):
    """A run failed.

    Attributes:
        type: what happened in one word: a `ModelError`'s type, ``"middleware_error"``, ``"exceeded_max_runs"``,
            ``"exceeded_failure_count"``, ``"callback_error"``, ``"pending_interrupt"``.
        message: the same in a sentence.
        state: the state when the run stopped. Nothing that was reached is lost: correct the cause and execute it.
    """

    def __init__(self, message: str, *, type: str, state: State) -> None:
        super().__init__(message)
        self.message = message
        self.type = type
        self.state = state


class RunCancelled(KeyboardInterrupt):
    """``agent.run`` was interrupted (Ctrl-C, the kernel's stop button).

    Attributes:
        state: how far the run came, its partial answer included.
    """

    def __init__(self, state: State) -> None:
        super().__init__("the run was cancelled; .state holds what it reached")
        self.state = state


class MessageRejected(SagentsError, ValueError):
    """A user's message was not accepted, and nobody but its sender will ever know of it; the text says why.

    A preprocessor raises it to refuse a message in its own words.
    """


class SessionError(SagentsError):
    """A session cannot do what was asked in its present state; the text says what it can do."""


class StoreError(SagentsError):
    """A database file cannot be opened, read or written."""


class StoreLocked(StoreError):
    """Another process holds the database file.

    Attributes:
        pid: process id of the holder, where DuckDB told it.
    """

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class StoreClosed(StoreError):
    """The store was closed; open it again with ``Store(path)``."""


class UnknownConversation(StoreError, LookupError):
    """This owner has no such conversation, or the conversation no such revision.

    The conversation of another owner is one that is not there, in the same words.
    """


def carry_state(cancelled: asyncio.CancelledError, state: State) -> None:
    """Give the cancellation of a run the State it came to.

    The class stays asyncio's own: `asyncio.timeout` of Python 3.11 takes no subclass for the cancellation it asked for,
    and would let it out instead of raising TimeoutError.
    """
    if state_of(cancelled) is None:
        cancelled.add_note("the run was cancelled; .state holds what it reached")
    cancelled.state = state  # type: ignore[attr-defined]


def state_of(error: BaseException) -> State | None:
    """How far the run came that this error ended; None when it ended none."""
    return getattr(error, "state", None)


def in_words(error: BaseException) -> str:
    """The text of an error, whatever its class makes of `str`."""
    try:
        return str(error)
    except Exception:
        return f"(an error whose text cannot be made: its class {type(error).__name__} has a broken __str__)"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Spelling hint for an unknown word.

    The best of: the same word in other capitals; a name that contains the other ("path" and "file_path"); a similar
    spelling.

    Args:
        word: what was typed.
        known: what would have been understood.

    Returns:
        ``" (did you mean 'pay'?)"``, or an empty string when nothing is close.
    """
    scores = ((_closeness(word, name), -abs(len(name) - len(word)), name) for name in known)
    best = max(scores, key=lambda score: score[:2], default=(0.0, 0, ""))  # of equals the one of the same length
    return f" (did you mean {best[2]!r}?)" if best[0] else ""


def _closeness(word: str, name: str) -> float:
    """How likely one was typed for the other, from 0 (not at all) to 1."""
    one, other = word.lower(), name.lower()
    if one == other:
        return 1.0
    short, long = sorted((one, other), key=len)
    if len(short) > 2 and short in long:
        return 0.7 + 0.3 * len(short) / len(long)
    # One letter is in too many words. A word of a million, which a model may send, is too long to be meant for a name,
    # whatever letters they share.
    if len(short) < 2 or len(short) <= len(long) * (3 * SIMILAR - 2):
        return 0.0
    similarity = _jaro(short, long)
    return similarity if similarity > SIMILAR else 0.0


def _jaro(short: str, long: str) -> float:
    """Jaro's similarity of two words: unlike `difflib`'s ratio it forgives letters that changed places."""
    reach = max(len(long) // 2 - 1, 1)  # Jaro has 0 for three letters, and no "pay" for "pya"
    free = [True] * len(long)
    found: list[str] = []
    for place, letter in enumerate(short):
        for other in range(max(0, place - reach), min(len(long), place + reach + 1)):
            if free[other] and long[other] == letter:
                free[other] = False
                found.append(letter)
                break
    if not found:
        return 0.0
    ordered = [letter for letter, left in zip(long, free, strict=True) if not left]
    swapped = sum(one != other for one, other in zip(found, ordered, strict=True)) / 2
    count = len(found)
    return round((count / len(short) + count / len(long) + (count - swapped) / count) / 3, 6)
