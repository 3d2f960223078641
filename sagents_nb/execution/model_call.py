"""One model call: the wrap hooks around it, the door, the stream, and another try where that may help."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from sagents_nb.deltas import Delta, MessageBuilder
from sagents_nb.errors import ModelError, in_words
from sagents_nb.events import MessageAdded, ModelDelta, ModelEnded, ModelFailed, ModelStarted
from sagents_nb.execution.callbacks import CallbackFailed
from sagents_nb.execution.cancellation import stop_requests
from sagents_nb.execution.hooks import call_wrapped
from sagents_nb.execution.repair import repair_history
from sagents_nb.execution.run import Run
from sagents_nb.messages import Message, MessageStatus
from sagents_nb.models.base import ChatModel, ModelRequest

ATTEMPTS = 3
"""Tries of one request, the first included."""

MAX_WAIT = 30.0
"""Seconds that are waited at most between two tries, whatever the provider asks for."""


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
    try:
        message = await call(request)
    except (asyncio.CancelledError, ModelError, CallbackFailed):
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
    run.partial = None  # of an earlier try of a wrap hook
    # The door: whatever hooks made of the request, what is really sent is right.
    if request.messages is not run.sound:  # nobody touched them since the loop looked
        request = request.replace(messages=repair_history(request.messages)[0])
    if request.model is None:
        request = request.replace(model=run.agent.model)

    try:
        return await _stream(run, request, attempt=1)
    except ModelError as error:
        return await _try_again(run, request, error)


async def _try_again(run: Run, request: ModelRequest, first: ModelError) -> Message:
    import tenacity  # takes 30 ms, and is not needed when all goes well

    backoff = tenacity.wait_random_exponential(multiplier=0.5, max=MAX_WAIT)

    def error_of(state: tenacity.RetryCallState) -> ModelError:
        error = state.outcome.exception() if state.outcome else None
        return error if isinstance(error, ModelError) else first

    def wait(state: tenacity.RetryCallState) -> float:
        asked = error_of(state).retry_after
        return backoff(state) if asked is None else min(asked, MAX_WAIT)

    tries = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        # Once a part of the answer was seen it is not asked for again: the person would see two beginnings.
        retry=tenacity.retry_if_exception(
            lambda error: isinstance(error, ModelError) and error.retryable and run.partial is None
        ),
        wait=wait,
        before_sleep=lambda state: _failed(run, request, error_of(state), state.attempt_number, state.upcoming_sleep),
        reraise=True,
    )
    attempt = 1
    try:
        async for each in tries:
            with each:
                attempt = each.retry_state.attempt_number
                if attempt == 1:
                    raise first  # it happened already; from here on tenacity decides
                return await _stream(run, request, attempt)
    except ModelError as error:
        _failed(run, request, error, attempt, None)
        raise
    raise first


def _failed(run: Run, request: ModelRequest, error: ModelError, attempt: int, retry_in: float | None) -> None:
    name = request.model.name if request.model else ""
    run.emit(
        ModelFailed(
            cycle=run.cycle,
            model=name,
            error=error.message,
            error_type=error.type,
            attempt=attempt,
            retry_in=retry_in,
        )
    )


async def _stream(run: Run, request: ModelRequest, attempt: int) -> Message:
    model = request.model
    if not isinstance(model, ChatModel):
        raise TypeError(f"the request's model is {model!r}; a ChatModel is needed")
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
    stream: AsyncIterator[Delta] | None = None
    status: MessageStatus | None = "stream_error"
    try:
        stream = model.stream(request)
        async for delta in stream:
            builder.add(delta)
            run.emit(ModelDelta(delta, run.cycle, attempt))
        if builder.stop is None:
            raise ModelError(
                f"the answer of {model.name} broke off: the stream ended without saying that it was complete",
                type="incomplete_stream",
                retryable=True,
            )
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
        await _close(stream)
        if status is not None:
            message = _so_far(builder, status)
        run.partial = None if message.is_empty else message
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


def _so_far(builder: MessageBuilder, status: MessageStatus) -> Message:
    try:
        return builder.build(status)
    except Exception:  # the pieces make no message, which is reported already
        return Message("assistant", status=status)


async def _close(stream: object) -> None:
    close = getattr(stream, "aclose", None)
    if close is None:
        return
    try:
        await close()
    except Exception:
        # The answer is complete, or an error that says more is on its way.
        return
