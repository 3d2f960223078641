"""What the toolkit relies on in a `ChatModel`, as checks for whoever writes one.

::

    from sagents_nb.models.conformance import check_model

    def test_my_model_keeps_its_side():
        check_model(lambda: MyModel("m", api_key="sk-test-123"), secrets=["sk-test-123"],
                    make_failing=lambda: MyModel("m", base_url="http://127.0.0.1:9"))

It needs no test framework. The model is really asked, some twenty times, so give it a server of your own or a recording.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sagents_nb.deltas import Delta, MessageBuilder, StopDelta
from sagents_nb.errors import ConfigurationError, ModelError, SagentsError, in_words
from sagents_nb.messages import Message
from sagents_nb.models.base import ChatModel, ModelRequest

MakeModel = Callable[[], ChatModel]

REQUEST = ModelRequest(system="Answer in one sentence.", messages=(Message("user", "What is an agent?"),))
"""What is asked where `check_model` is given nothing else."""


class ConformanceError(SagentsError, AssertionError):
    """A model does not keep its side; the text names each check that failed, and why."""


@dataclass(frozen=True)
class Case:
    """What the checks are given.

    Attributes:
        make_model: makes the model that is checked, anew for each check.
        request: what it is asked.
        make_failing: makes one that cannot answer.
        secrets: texts that must not be seen.
        timeout: seconds one answer may take.
    """

    make_model: MakeModel
    request: ModelRequest
    make_failing: MakeModel | None
    secrets: tuple[str, ...]
    timeout: float

    def ask(self) -> ModelRequest:
        """A request of one's own, so that nobody sees what another changed in it."""
        return self.request.replace(options=copy.deepcopy(dict(self.request.options)))


def check_model(
    make_model: MakeModel,
    *,
    request: ModelRequest = REQUEST,
    make_failing: MakeModel | None = None,
    secrets: Iterable[str] = (),
    timeout: float = 30.0,
) -> tuple[str, ...]:
    """Check that a model does what the toolkit relies on.

    It blocks until all is done, also where an event loop runs: the checks have threads and loops of their own.

    Args:
        make_model: makes the model, anew for each check, which asks it up to four times.
        request: what to ask, something it answers with more than one delta.
        make_failing: makes one that cannot answer, for example with a server that is not there.
        secrets: texts that must be seen nowhere, besides what `ChatModel.secrets` says.
        timeout: seconds that one answer may take.

    Returns:
        Names of the checks made: all of `CHECKS`, without those of failures where `make_failing` is not given.

    Raises:
        ConformanceError: what is wrong, check by check.
        ConfigurationError: `make_model` does not make a ChatModel.
    """
    for make in (make_model, make_failing):
        made = make() if make is not None else None
        if make is not None and not isinstance(made, ChatModel):
            raise ConfigurationError(f"check_model needs functions that make a ChatModel; this one made {made!r}")
    case = Case(make_model, request, make_failing, tuple(secrets), timeout)
    made_checks = [check for check in CHECKS if make_failing is not None or check not in NEED_A_FAILING_MODEL]
    failures = []
    for check in made_checks:
        try:
            check(case)
        except ConformanceError as failure:
            failures.append(f"{check.__name__}: {failure}")
    if failures:
        raise ConformanceError(
            f"{in_words_of(make_model())} fails {len(failures)} of {len(made_checks)} checks\n" + "\n".join(failures)
        )
    return tuple(check.__name__ for check in made_checks)


# -- the checks -----------------------------------------------------------------------------------


def the_answer_ends_with_one_stop(case: Case) -> None:
    """A StopDelta comes last, and once."""
    deltas = _run(lambda model: _answer(model, case), case)
    stops = [place for place, delta in enumerate(deltas) if isinstance(delta, StopDelta)]
    if stops != [len(deltas) - 1]:
        kinds = ", ".join(type(delta).__name__ for delta in deltas) or "nothing"
        raise ConformanceError(f"the last delta, and no other, is a StopDelta; it streamed {kinds}")


def the_deltas_make_a_message(case: Case) -> None:
    """Deltas fit the blocks of their index, and what they make is JSON."""
    deltas = _run(lambda model: _answer(model, case), case)
    _message(deltas)


def it_works_on_several_event_loops(case: Case) -> None:
    """One model answers on two loops at once, and on a third when these are gone."""
    model = case.make_model()
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(_run(lambda same: _answer(same, case), case, model))
        except ConformanceError as failure:
            answers.append(failure)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ask()
    for answer in answers:
        if isinstance(answer, ConformanceError):
            raise ConformanceError(f"asked on several event loops: {answer}") from answer
        _message(answer)


def two_agents_may_ask_at_once(case: Case) -> None:
    """Two answers on one loop, piece by piece in turns, do not mix: they are what each would be alone."""

    async def ask(model: ChatModel) -> list[Any]:
        alone = [_said(await _answer(model, case)) for _ in range(2)]
        streams = [_stream(model, case) for _ in range(2)]
        answers: list[list[Delta]] = [[], []]
        going = [0, 1]
        while going:
            for number in list(going):
                try:
                    answers[number].append(await anext(streams[number]))
                except StopAsyncIteration:
                    going.remove(number)
        return [*alone, *map(_said, answers)]

    first, second, *together = _run(ask, case)
    if first == second and together != [first, first]:  # else it says something else each time, as models may
        raise ConformanceError(f"alone it answers {first}, but two answers at once are {together[0]} and {together[1]}")


def stopping_ends_the_stream(case: Case) -> None:
    """A cancelled request ends at once, as cancelled, leaves no task behind, and the model answers the next one."""

    async def stop(model: ChatModel) -> None:
        before = asyncio.all_tasks()
        await _closed(_stream(model, case))  # never begun
        for received in (0, 1):
            stream = _stream(model, case)
            for _ in range(received):
                await anext(stream)
            await _stopped_while_it_waits(stream)
            await _closed(stream)
        left = asyncio.all_tasks() - before
        if left:
            _, left = await asyncio.wait(left, timeout=1.0)  # they may need a moment
        if left:
            raise ConformanceError(f"a stopped request left a task behind: {left.pop()!r}")
        _message(await _answer(model, case))

    _run(stop, case)


def only_model_errors_come_out(case: Case) -> None:
    """What goes wrong is a ModelError with a type and a message."""
    assert case.make_failing is not None
    error = _failure(case)
    if not isinstance(error, ModelError):
        raise ConformanceError(f"it raised {type(error).__name__}: {in_words(error)}; only a ModelError may come out")
    if not error.type or not in_words(error).strip():
        raise ConformanceError(f"its ModelError says nothing: type {error.type!r}, message {in_words(error)!r}")


def the_request_stays_as_it_is(case: Case) -> None:
    """Nothing in the request is changed."""
    request = case.ask()
    before = _told(request)
    _run(lambda model: _answer(model, case, request), case)
    if _told(request) != before:
        raise ConformanceError(f"it changed the request from {before} to {_told(request)}")


def it_has_a_name(case: Case) -> None:
    """`name` is what events and views call it."""
    model = case.make_model()
    if not isinstance(model.name, str) or not model.name.strip():
        raise ConformanceError(f"its name is {model.name!r}; it is a str that is not empty")


def no_secret_is_shown(case: Case) -> None:
    """Neither the model nor what it raises shows a secret."""
    model = case.make_model()
    shown = {"repr": repr(model), "str": str(model), "vars": repr(getattr(model, "__dict__", {}))}
    for secret in (*case.secrets, *(secret.get_secret_value() for secret in model.secrets())):
        for where, text in shown.items():
            if secret in text:
                raise ConformanceError(f"a secret is seen in its {where}; keep it as a pydantic.SecretStr")


def no_secret_is_in_an_error(case: Case) -> None:
    """No error, nor what caused it, shows a secret."""
    assert case.make_failing is not None
    secrets = (*case.secrets, *(secret.get_secret_value() for secret in case.make_failing().secrets()))
    error: BaseException | None = _failure(case)
    while error is not None:
        if any(secret in f"{in_words(error)} {error!r}" for secret in secrets):
            raise ConformanceError(f"a secret is seen in a {type(error).__name__}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


NEED_A_FAILING_MODEL = (only_model_errors_come_out, no_secret_is_in_an_error)
"""Checks that are made only where `check_model` is given `make_failing`."""

CHECKS: tuple[Callable[[Case], None], ...] = (
    the_answer_ends_with_one_stop,
    the_deltas_make_a_message,
    it_works_on_several_event_loops,
    two_agents_may_ask_at_once,
    stopping_ends_the_stream,
    only_model_errors_come_out,
    the_request_stays_as_it_is,
    it_has_a_name,
    no_secret_is_shown,
    no_secret_is_in_an_error,
)
"""All checks. Each takes a `Case` and raises ConformanceError."""


# -- what they are made of ------------------------------------------------------------------------


def in_words_of(model: ChatModel) -> str:
    """A name for the model that cannot show a secret."""
    return type(model).__name__


def _run(job: Callable[[ChatModel], Awaitable[Any]], case: Case, model: ChatModel | None = None) -> Any:
    """Run something on an event loop of its own, in a thread of its own, and close the model there."""
    model = model or case.make_model()
    result: list[Any] = []
    # Every request in a job has its time; a job that blocks its loop is waited for no longer than that.
    limit = case.timeout * 4

    async def whole() -> None:
        try:
            async with asyncio.timeout(limit):
                try:
                    result.append(await job(model))
                finally:
                    await model.aclose()
        except TimeoutError:
            result.insert(0, ConformanceError(f"it takes more than {limit:g} seconds"))
        except ConformanceError as failure:
            result.insert(0, failure)
        except (Exception, asyncio.CancelledError) as error:
            result.insert(0, _failed("it raised", error))

    thread = threading.Thread(target=lambda: asyncio.run(whole()), name="check_model", daemon=True)
    thread.start()
    thread.join(limit + 1)
    if not result:
        raise ConformanceError(f"it blocks its event loop for more than {limit:g} seconds")
    if isinstance(result[0], ConformanceError):
        raise result[0]
    return result[0]


def _failed(what: str, error: BaseException) -> ConformanceError:
    failure = ConformanceError(f"{what} {type(error).__name__}: {in_words(error)}")
    failure.__cause__ = error
    return failure


def _stream(model: ChatModel, case: Case, request: ModelRequest | None = None) -> AsyncIterator[Delta]:
    stream: Any = model.stream(case.ask() if request is None else request)
    if asyncio.iscoroutine(stream):
        stream.close()
        raise ConformanceError("its stream is a coroutine; write `async def stream(self, request)` with `yield` in it")
    if not hasattr(stream, "__aiter__"):
        raise ConformanceError(f"its stream gave {stream!r}, which is no async iterator")
    iterator: AsyncIterator[Delta] = stream
    return iterator


async def _answer(model: ChatModel, case: Case, request: ModelRequest | None = None) -> list[Delta]:
    return [delta async for delta in _stream(model, case, request)]


async def _closed(stream: Any) -> None:
    """Close a stream, as the loop does, which must neither fail nor hang."""
    close = getattr(stream, "aclose", None)
    if close is None:
        raise ConformanceError("its stream cannot be closed: an async generator has `aclose`")
    await close()
    async for delta in stream:
        raise ConformanceError(f"it went on after it was closed: {delta!r}")


async def _stopped_while_it_waits(stream: AsyncIterator[Delta]) -> None:
    """Cancel whoever waits for the next delta, as Stop does."""
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    if not task.cancel():
        return  # it did not wait
    await asyncio.wait({task})
    if not task.cancelled():
        ended = task.exception() or task.result()
        raise ConformanceError(f"a request was cancelled and ended otherwise, with {ended!r}; let CancelledError pass")


def _message(deltas: Iterable[Delta]) -> Message:
    builder = MessageBuilder()
    try:
        for delta in deltas:
            builder.add(delta)
        message = builder.build()
        json.dumps(message.to_json(), allow_nan=False)
    except (ValueError, TypeError, AttributeError) as error:
        raise _failed("its deltas make no message:", error) from error
    return message


def _said(deltas: Iterable[Delta]) -> tuple[str, list[tuple[str, dict[str, Any]]], str]:
    message = _message(deltas)
    return message.text, [(call.name, call.arguments) for call in message.tool_calls], message.status


def _told(request: ModelRequest) -> str:
    """All of a request, as text."""
    told = {
        "system": request.system,
        "messages": [message.to_json() for message in request.messages],
        "tools": [(tool.name, tool.description, dict(tool.input_schema)) for tool in request.tools],
        "tool_choice": request.tool_choice,
        "options": request.options,
    }
    return json.dumps(told, default=repr, ensure_ascii=False)


def _failure(case: Case) -> Exception:
    """What a model raises that cannot answer."""

    async def ask(model: ChatModel) -> Exception | None:
        try:
            await _answer(model, case)
        except ConformanceError:
            raise
        except Exception as error:
            return error
        return None

    assert case.make_failing is not None
    error = _run(ask, case, case.make_failing())
    if error is None:
        raise ConformanceError("the model of make_failing answered; it must fail")
    failure: Exception = error
    return failure


__all__ = ["CHECKS", "NEED_A_FAILING_MODEL", "REQUEST", "Case", "ConformanceError", "check_model"]
