"""Which model answers: the one that is asked, and where another may help the agent's fallback models after it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from sagents_nb.errors import ModelError, in_words
from sagents_nb.events import ModelFailed
from sagents_nb.execution.callbacks import CallbackFailed
from sagents_nb.execution.run import Run
from sagents_nb.messages import Message
from sagents_nb.models.base import ChatModel, ModelRequest

Ask: TypeAlias = Callable[[Run, "Asking", ModelRequest], Awaitable[Message]]
"""Asks one model, more than once where that may help; raises the ModelError of its last attempt."""


@dataclass(slots=True)
class Asking:
    """How far one request has come, over all its models and attempts.

    Attributes:
        attempt: number of the latest attempt; it counts on from model to model, so that the pieces of an earlier
            one can be told from those of a later.
        seen: what came of its answer, if anything did that is worth keeping.
    """

    attempt: int = 0
    seen: Message | None = None


async def first_answer(run: Run, request: ModelRequest, ask: Ask) -> Message:
    """Ask the request's model; when it fails, the agent's fallback models one after the other.

    Only the request is repeated, never the run: no tool runs twice. Another model is asked when the one that failed says
    so (`ChatModel.retry_on_fallback`) and nothing of an answer was seen: the person would read two beginnings.

    Args:
        run: the run.
        request: what is asked, and whom first.
        ask: asks one model.

    Raises:
        ModelError: the error of the model at which it ended, or ``"all_fallbacks_failed"`` with what each of several
            said, caused by the last one's.
        CallbackFailed: ``before_fallback`` raised, or returned something else than a request.
    """
    waiting = [model for model in run.agent.fallback_models if model is not request.model]
    asking = Asking()
    failures: list[str] = []
    asked = request
    while True:
        try:
            return await ask(run, asking, asked)
        except ModelError as error:
            failed = run.agent.model if asked.model is None else asked.model
            failures.append(f"{failed.name}: {error.message} ({error.type})")
            helps = bool(run.agent.fallback_models) and asking.seen is None and _may_help(failed, error)
            following = waiting.pop(0) if helps and waiting else None
            tell_failed(run, asking, failed, error, fallback=following)
            if following is None:
                if helps and len(failures) > 1:
                    raise _all_failed(failures, error) from error
                raise
            asked = await _prepared(run, request.replace(model=following), following, error)


def tell_failed(
    run: Run,
    asking: Asking,
    model: ChatModel,
    error: ModelError,
    *,
    retry_in: float | None = None,
    fallback: ChatModel | None = None,
) -> None:
    """Say that an attempt failed, and what comes now: a wait and the same model, another model, or nothing more."""
    run.emit(
        ModelFailed(
            cycle=run.cycle,
            model=model.name,
            error=error.message,
            error_type=error.type,
            attempt=asking.attempt,
            retry_in=retry_in,
            fallback=fallback.name if fallback is not None else None,
        )
    )


def _may_help(model: ChatModel, error: ModelError) -> bool:
    try:
        return bool(model.retry_on_fallback(error))
    except Exception as broken:
        raise ModelError(
            f"{model!r}.retry_on_fallback raised {type(broken).__name__}: {in_words(broken)}; it was asked about the "
            f"error {error.message!r}"
        ) from broken


async def _prepared(run: Run, request: ModelRequest, model: ChatModel, error: ModelError) -> ModelRequest:
    """The request for the next model, as ``before_fallback`` wants it."""
    prepare = run.agent.before_fallback
    if prepare is None:
        return request
    try:
        changed = prepare(request, model, error)
        if inspect.isawaitable(changed):
            changed = await changed
    except Exception as broken:
        raise CallbackFailed(
            f"before_fallback raised an exception: {type(broken).__name__}: {in_words(broken)}"
        ) from broken
    if changed is None:
        return request
    if not isinstance(changed, ModelRequest):
        raise CallbackFailed(
            f"before_fallback returned a {type(changed).__name__}; it returns the request for the next model, for "
            "example request.replace(system='…'), or None for 'unchanged'"
        )
    return changed.replace(model=model) if changed.model is None else changed


def _all_failed(failures: list[str], last: ModelError) -> ModelError:
    return ModelError(
        f"all {len(failures)} models failed; {'; '.join(failures)}",
        type="all_fallbacks_failed",
        retryable=last.retryable,
        retry_after=last.retry_after,
        status_code=last.status_code,
        request_id=last.request_id,
    )
