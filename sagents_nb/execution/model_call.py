"""One model call: the wrap hooks around it, the door, the stream, and another try where that may help."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from sagents_nb.deltas import MessageBuilder
from sagents_nb.errors import ModelError, in_words
from sagents_nb.events import MessageAdded, ModelDelta, ModelEnded, ModelStarted
from sagents_nb.execution.callbacks import CallbackFailed
from sagents_nb.execution.cancellation import stop_requests
from sagents_nb.execution.fallback import Asking, first_answer, tell_failed
from sagents_nb.execution.hooks import call_wrapped
from sagents_nb.execution.leaving import leave_in_time
from sagents_nb.execution.repair import repair_history
from sagents_nb.execution.run import Run
from sagents_nb.messages import Message, MessageStatus
from sagents_nb.models.base import ChatModel, ModelRequest

logger = logging.getLogger("sagents_nb")

ATTEMPTS = 3
"""Tries of one request with one model, the first included."""

MAX_WAIT = 30.0
"""Seconds that are waited at most between two tries, whatever the provider asks for."""

CLOSE_TIMEOUT = 5.0
"""Seconds a model gets to close its stream: neither Stop nor the run waits for it for ever."""


async def ask_model(run: Run) -> None:
    """Model call, wrapped by wrap_model_call (first in the list is outermost)."""
    call: Callable[[ModelRequest], Awaitable[Message]] = partial(_send, run)
    for bound in reversed(run.agent.stack.hooks("wrap_model_call")):
        inner = call
        call = lambda request, bound=bound, inner=inner: call_wrapped(  # type: ignore[misc]  # noqa: E731
            run, bound, request, inner, expect=Message
        )
    request = ModelRequest(
        system=run.agent.system_prompt,
        messages=run.state.messages,
        tools=tuple(run.agent.all_tools.values()),
        tool_choice=run.tool_choice,
        model=run.agent.model,
    )
    run.partial = None  # a request that a wrap hook left to itself may have come to its end since
    try:
        message = await call(request)
    except BaseException:  # whoever is to blame, the person has read it
        keep_partial(run)
        raise
    run.partial = None
    run.unseen = False
    add_message(run, message)


def keep_partial(run: Run) -> None:
    """Put what was seen of a broken answer into the State, marked as what it is."""
    if run.partial is not None:
        message, run.partial = run.partial, None
        add_message(run, message)


def add_message(run: Run, message: Message) -> None:
    """Put a message at the end of the State and say so."""
    run.state = run.state.add_message(message)
    if message.usage is not None:
        run.usage += message.usage
    run.emit(MessageAdded(message=message, cycle=run.cycle))


async def _send(run: Run, request: ModelRequest) -> Message:
    if request.model is None:
        request = request.replace(model=run.agent.model)
    return await first_answer(run, request, _ask)


async def _ask(run: Run, asking: Asking, request: ModelRequest) -> Message:
    # The door: whatever hooks made of the request, what is really sent is right.
    if request.messages is not run.sound:  # nobody touched them since the loop looked
        request = request.replace(messages=repair_history(request.messages)[0])
    try:
        return await _stream(run, asking, request)
    except ModelError as error:
        if not _worth_another_try(asking, error):
            raise
        return await _try_again(run, asking, request, error)


def _worth_another_try(asking: Asking, error: BaseException) -> bool:
    # Once a part of the answer was seen it is not asked for again: the person would see two beginnings.
    return isinstance(error, ModelError) and error.retryable and asking.seen is None


async def _try_again(run: Run, asking: Asking, request: ModelRequest, first: ModelError) -> Message:
    import tenacity  # takes 30 ms, and is not needed when all goes well

    backoff = tenacity.wait_random_exponential(multiplier=0.5, max=MAX_WAIT)

    def error_of(state: tenacity.RetryCallState) -> ModelError:
        error = state.outcome.exception() if state.outcome else None
        return error if isinstance(error, ModelError) else first

    def wait(state: tenacity.RetryCallState) -> float:
        asked = error_of(state).retry_after
        return backoff(state) if asked is None else max(0.0, min(MAX_WAIT, asked))  # in this order: it may be NaN

    def tell(state: tenacity.RetryCallState) -> None:
        tell_failed(run, asking, _model_of(request), error_of(state), retry_in=state.upcoming_sleep)

    tries = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        retry=tenacity.retry_if_exception(lambda error: _worth_another_try(asking, error)),
        wait=wait,
        before_sleep=tell,
        reraise=True,
    )
    async for each in tries:
        with each:
            if each.retry_state.attempt_number == 1:
                raise first  # it happened already; from here on tenacity decides
            return await _stream(run, asking, request)
    raise first


def _model_of(request: ModelRequest) -> ChatModel:
    if not isinstance(request.model, ChatModel):
        raise TypeError(f"the request's model is {request.model!r}; a ChatModel is needed")
    return request.model


async def _stream(run: Run, asking: Asking, request: ModelRequest) -> Message:
    model = _model_of(request)
    asking.attempt += 1
    attempt = asking.attempt
    run.emit(
        ModelStarted(
            cycle=run.cycle,
            model=model.name,
            attempt=attempt,
            messages=len(request.messages),
            tools=tuple(tool.name for tool in request.tools),
        )
    )
    started = time.perf_counter()
    builder = MessageBuilder()

    def left_behind() -> None:
        logger.warning("%r did not end within %g s after Stop; its stream is left behind", model, CLOSE_TIMEOUT)

    status: MessageStatus | None = "stream_error"
    try:
        pieces = await leave_in_time(_read(run, model, request, builder, attempt), CLOSE_TIMEOUT, left_behind)
        if builder.stop is None:
            raise _incomplete(model, pieces)
        message = builder.build()
        status = None
    except (ModelError, CallbackFailed):
        raise
    except asyncio.CancelledError as error:
        if not stop_requests():  # the model, or its client, cancelled something of its own
            raise ModelError(f"{model!r} raised CancelledError, though nobody stopped the run") from error
        status = "cancelled"
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"{model!r} raised {type(error).__name__}: {in_words(error)}") from error
    finally:
        if status is not None:
            message = builder.build(status)
        asking.seen = None if message.is_empty else message
        run.partial = asking.seen or run.partial  # what an earlier request of a wrap hook showed was seen, too
        run.emit(
            ModelEnded(
                cycle=run.cycle,
                model=model.name,
                message=message,
                duration=time.perf_counter() - started,
                attempt=attempt,
            )
        )
    return message


async def _read(run: Run, model: ChatModel, request: ModelRequest, builder: MessageBuilder, attempt: int) -> int:
    """Take in all pieces of an answer, and close the stream whatever the way out.

    Returns:
        How many there were.
    """
    pieces = 0
    stream = model.stream(request)
    ended = False
    try:
        async for delta in stream:
            builder.add(delta)
            run.emit(ModelDelta(delta, run.cycle, attempt))
            pieces += 1
        ended = True
    finally:
        if not ended or not inspect.isasyncgen(stream):  # a generator that came to its end has closed itself
            await _close(stream)
    return pieces


def _incomplete(model: ChatModel, pieces: int) -> ModelError:
    if pieces:
        how, kind = "broke off: the stream ended without saying that it was complete", "incomplete_stream"
    else:
        how, kind = "was empty: the stream ended without a single piece", "empty_response"
    return ModelError(f"the answer of {model.name} {how}", type=kind, retryable=True)


async def _close(stream: object) -> None:
    close = getattr(stream, "aclose", None)
    if close is None:
        return
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await close()
    except TimeoutError:
        logger.warning("a model's stream, %r, did not close within %g s and is left behind", stream, CLOSE_TIMEOUT)
    except Exception:
        # The answer is complete, or an error that says more is on its way.
        return
