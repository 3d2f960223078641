"""One model call: what is kept of a broken answer, when it is asked again, and who is blamed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb import (
    Agent,
    AgentError,
    ChatModel,
    Message,
    Middleware,
    ModelError,
    ModelRequest,
    ScriptedModel,
    State,
    Text,
    ToolCall,
    Usage,
    tool,
)
from sagents_nb.deltas import Delta, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from sagents_nb.events import ModelDelta, ModelEnded, ModelFailed, ModelStarted
from sagents_nb.execution import model_call
from sagents_nb.execution.loop import run_leg
from sagents_nb.frozen import clean_text
from tests.core.streams import BUSY, GOOD, Streams
from tests.support.cancelled import state_reached


async def fail(model: ChatModel, **options: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await Agent(model=model, **options).execute("go")
    return caught.value


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 0.0)


async def test_what_may_help_is_asked_again_and_each_try_is_seen(no_waiting: None) -> None:
    model = Streams([BUSY], [ModelError("slow down", type="rate_limit", retryable=True, retry_after=99)], GOOD)
    result = await Agent(model=model).execute("go")
    assert result.text == "fine"
    assert model.asked == 3
    failed = [(e.attempt, e.error, e.error_type, e.retry_in) for e in result.events if isinstance(e, ModelFailed)]
    assert failed == [(1, "busy", "overloaded", 0.0), (2, "slow down", "rate_limit", 0.0)]
    assert [e.attempt for e in result.events if isinstance(e, ModelStarted)] == [1, 2, 3]
    assert [m.role for m in result.state.messages] == ["user", "assistant"]


async def test_it_is_given_up_after_three_tries(no_waiting: None) -> None:
    model = Streams([BUSY])
    error = await fail(model)
    assert (error.type, error.message, model.asked) == ("overloaded", "busy", 3)
    assert [m.role for m in error.state.messages] == ["user"]


async def test_a_wait_that_the_provider_asks_for_is_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float, *_: Any) -> None:
        waited.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for asked, kept in ((7, 99_999), (7, 30.0)), ((-1, math.nan), (0.0, 30.0)):
        waited.clear()
        turns = [[ModelError("x", retryable=True, retry_after=seconds)] for seconds in asked]
        assert (await Agent(model=Streams(*turns, GOOD)).execute("go")).text == "fine"
        assert waited == [*kept]


async def test_without_a_word_of_the_provider_the_wait_is_random_up_to_a_bound_that_doubles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for chosen, waits in ((max, [0.5, 1.0]), (min, [0.0, 0.0])):
        monkeypatch.setattr(random, "uniform", lambda low, high, chosen=chosen: chosen(low, high))
        run = Agent(model=Streams([BUSY], [BUSY], GOOD)).begin("go")
        with monkeypatch.context() as patch:
            real = asyncio.sleep
            patch.setattr(asyncio, "sleep", lambda _seconds, real=real: real(0))
            await run_leg(run)
        failed = [event.retry_in for event in run.recorder.events if isinstance(event, ModelFailed)]
        assert failed == waits


async def retries_after_text() -> int:
    model = Streams([TextDelta("The answer"), BUSY], GOOD)
    error = await fail(model)
    last = error.state.messages[-1]
    assert (last.text, last.status) == ("The answer", "stream_error")
    return model.asked


async def test_once_a_part_was_seen_it_is_kept_marked_and_not_asked_for_again(no_waiting: None) -> None:
    assert await retries_after_text() == 1


async def test_without_keeping_what_was_seen_it_would_be_asked_again(
    no_waiting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Message, "is_empty", property(lambda self: True))
    with pytest.raises(pytest.fail.Exception):
        await retries_after_text()


BROKEN: list[tuple[list[Any], str, str]] = [
    ([TextDelta("a"), ValueError("bug")], "model_error", "Streams('streams') raised ValueError: bug"),
    ([SystemExit(1)], "model_error", "Streams('streams') raised SystemExit: 1"),
    ([TextDelta("a"), ToolCallDelta(0, "{}")], "model_error", "which is a text block"),
    (["no delta"], "model_error", "a model streamed 'no delta', which is not one of the deltas"),
    ([TextDelta(None), StopDelta()], "model_error", "its index is an int, all else in it is text"),  # type: ignore[arg-type]
    ([TextDelta("a"), StopDelta("odd")], "model_error", "'complete', 'length'"),  # type: ignore[arg-type]
    ([TextDelta("a"), StopDelta("complete", {"x": object()})], "model_error", "metadata['x'] is a object"),
    ([asyncio.CancelledError()], "model_error", "raised CancelledError, though nobody stopped the run"),
    ([ModelError("no", type="refused")], "refused", "no"),
]


ANY_TEXT = st.text(st.characters(exclude_categories=()))  # halves of characters too
_ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), ANY_TEXT, st.binary(), st.just([]), st.just({1: 2})
)
_INDEX = st.one_of(st.integers(0, 3), _ANY)
_TEXT = st.one_of(ANY_TEXT, _ANY)
ODD = st.one_of(
    _ANY,
    st.builds(TextDelta, _TEXT, _INDEX),
    st.builds(ThinkingDelta, _TEXT, _INDEX, _TEXT, _TEXT),
    st.builds(ToolCallDelta, _INDEX, _TEXT, _TEXT, _TEXT),
    st.builds(UsageDelta, _ANY),
    st.builds(StopDelta, st.one_of(st.just("complete"), _ANY), st.one_of(st.dictionaries(ANY_TEXT, _TEXT), _ANY)),
)


@pytest.mark.parametrize(("turn", "kind", "words"), BROKEN, ids=range(len(BROKEN)))
async def test_whatever_a_model_does_the_run_ends_in_an_error_that_says_what(
    turn: list[Any], kind: str, words: str
) -> None:
    model = Streams(turn)
    error = await fail(model)
    assert error.type == kind
    assert words in error.message
    assert model.closed == 1


@settings(deadline=None)
@given(good=st.lists(st.sampled_from(["The ", "answer", "", " is 4"])), odd=ODD)
async def test_what_was_seen_is_kept_whatever_nonsense_follows(good: list[str], odd: Any) -> None:
    seen: list[str] = []

    def note(event: ModelDelta) -> None:
        if event.cycle == 1:  # a piece that makes sense may make a call, and that another model call
            seen.append(event.text)

    model = Streams([*(TextDelta(piece) for piece in good), odd, TextDelta(" and more"), StopDelta()], GOOD)
    try:
        state, kind = (await Agent(model=model, callbacks={"on_llm_new_delta": note}).execute("go")).state, ""
    except AgentError as error:
        state, kind = error.state, error.type
    assert kind in ("", "model_error")
    assert "".join(seen).startswith("".join(good))
    kept = [part.text for message in state.messages[1:2] for part in message.content if isinstance(part, Text)]
    assert sorted("".join(kept)) == sorted(clean_text("".join(seen)))  # blocks are put in the order of their index
    assert State.from_json(state.to_json()) == state


async def test_a_stop_that_says_nothing_sensible_takes_nothing_away() -> None:
    for stop in (StopDelta("complete", {"x": object()}), StopDelta("odd")):  # type: ignore[arg-type]
        error = await fail(Streams([TextDelta("kept"), stop]))
        assert (error.state.messages[-1].text, error.state.messages[-1].status) == ("kept", "stream_error")


async def test_a_stop_alone_is_an_empty_answer_and_no_piece_at_all_is_none(no_waiting: None) -> None:
    result = await Agent(model=Streams([StopDelta()])).execute("go")
    last = result.state.messages[-1]
    assert (result.status, last.role, last.content, last.status) == ("completed", "assistant", (), "complete")
    nothing = Streams([])
    error = await fail(nothing)
    assert error.type == "empty_response"
    assert error.message == "the answer of streams was empty: the stream ended without a single piece"
    assert (nothing.asked, [m.role for m in error.state.messages]) == (3, ["user"])


async def test_a_stream_that_ends_without_saying_so_is_asked_for_again_if_nothing_was_seen(no_waiting: None) -> None:
    assert (await Agent(model=Streams([], GOOD)).execute("go")).text == "fine"
    error = await fail(Streams([TextDelta("a")]))
    assert error.type == "incomplete_stream"
    assert error.message == "the answer of streams broke off: the stream ended without saying that it was complete"
    assert (error.state.messages[-1].text, error.state.messages[-1].status) == ("a", "stream_error")


class Odd(ChatModel):
    name = "odd"

    def __init__(self, stream: Callable[[ModelRequest], Any]) -> None:
        self._made = stream

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        made: AsyncIterator[Delta] = self._made(request)
        return made


class Endless:
    """An iterator whose clean-up fails."""

    def __init__(self) -> None:
        self.items: list[Delta] = [TextDelta("fine"), StopDelta()]

    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> Delta:
        if not self.items:
            raise StopAsyncIteration
        return self.items.pop(0)

    async def aclose(self) -> None:
        raise RuntimeError("cannot close")


def _raises(request: ModelRequest) -> Any:
    raise RuntimeError("not even begun")


async def test_models_that_are_no_generators_are_models_too() -> None:
    assert (await Agent(model=Odd(lambda request: Endless())).execute("go")).text == "fine"
    error = await fail(Odd(_raises))
    assert (error.type, error.message) == ("model_error", "Odd('odd') raised RuntimeError: not even begun")
    error = await fail(Odd(lambda request: [TextDelta("x")]))
    assert "'async for' requires an object with __aiter__ method, got list" in error.message


async def stopped_in_the_middle() -> Message:
    seen = asyncio.Event()

    async def wait() -> None:
        seen.set()
        await asyncio.sleep(60)

    model = Streams([ThinkingDelta("hm", 0), TextDelta("It is su", 1), ToolCallDelta(2, '{"a', id="c", name="n"), wait])
    task = asyncio.ensure_future(Agent(model=model).execute("go"))
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert model.closed == 1
    return state_reached(caught.value).messages[-1]


async def test_a_partial_answer_is_kept_and_marked_when_the_run_is_stopped() -> None:
    last = await stopped_in_the_middle()
    assert (last.role, last.text, last.status, last.tool_calls) == ("assistant", "It is su", "cancelled", ())


class Clings(ChatModel):
    """Says something, and then will not go.

    Args:
        how: what its stream does when it is asked to leave.
    """

    name = "clings"

    def __init__(self, how: str) -> None:
        self.how = how
        self.reached = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield TextDelta("It is su")
        try:
            self.reached.set()
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            while True:
                if self.how == "waits once":
                    await asyncio.sleep(3600)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)


class Shuts(Clings):
    """An iterator whose aclose never returns."""

    def stream(self, request: ModelRequest) -> Any:
        return self

    def __aiter__(self) -> Any:
        self.items: list[Delta] = [TextDelta("It is su")] if self.how == "asked" else [TextDelta("fine"), StopDelta()]
        return self

    async def __anext__(self) -> Delta:
        if self.items:
            return self.items.pop(0)
        if self.how == "complete":
            raise StopAsyncIteration
        self.reached.set()
        await asyncio.sleep(3600)
        raise AssertionError

    async def aclose(self) -> None:
        self.reached.set()
        await asyncio.sleep(3600)


async def stop_does_not_wait_for(model: Clings) -> Message:
    task = asyncio.ensure_future(Agent(model=model).execute("go"))
    await model.reached.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=model_call.CLOSE_TIMEOUT + 10)
    assert done
    with pytest.raises(asyncio.CancelledError) as caught:
        task.result()
    return state_reached(caught.value).messages[-1]


CLINGING = [Clings("waits once"), Clings("waits always"), Shuts("asked")]


@pytest.mark.parametrize("model", CLINGING, ids=["generator", "stubborn generator", "aclose"])
async def test_stop_does_not_wait_for_a_model_that_will_not_leave(
    model: Clings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_call, "CLOSE_TIMEOUT", 0.05)
    last = await stop_does_not_wait_for(model)
    assert (last.text, last.status) == ("It is su", "cancelled")
    gc.collect()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}  # nothing is left in the loop that would hold up its end


async def test_without_the_bound_stop_would_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def plainly(job: Any, seconds: float, left_behind: Any) -> Any:
        return await job

    monkeypatch.setattr(model_call, "CLOSE_TIMEOUT", -9.9)  # the test waits ten seconds more
    monkeypatch.setattr(model_call, "leave_in_time", plainly)
    model = Clings("waits once")
    with pytest.raises(AssertionError, match="assert set()"):
        await stop_does_not_wait_for(model)


async def test_a_timeout_around_a_model_that_will_not_leave_is_a_timeout(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(model_call, "CLOSE_TIMEOUT", 0.05)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Agent(model=Clings("waits always")).execute("go")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert "did not end within 0.05 s after Stop; its stream is left behind" in caplog.text


async def test_a_timeout_of_the_models_own_is_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "CLOSE_TIMEOUT", 0.0)

    async def gives_up_and_goes_on() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(3600)
        await asyncio.sleep(0.02)

    result = await Agent(model=Streams([TextDelta("fi"), gives_up_and_goes_on, TextDelta("ne"), StopDelta()])).execute(
        "go"
    )
    assert result.text == "fine"


async def test_an_answer_that_is_complete_does_not_wait_for_a_stream_that_will_not_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_call, "CLOSE_TIMEOUT", 0.05)
    async with asyncio.timeout(10):
        assert (await Agent(model=Shuts("complete")).execute("go")).text == "fine"


async def test_without_keeping_it_it_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "keep_partial", lambda run: None)
    assert (await stopped_in_the_middle()).text == "go"


@tool
async def ping() -> str:
    "Answer pong."
    return "pong"


async def test_calls_of_an_answer_that_is_not_complete_never_run() -> None:
    ran: list[str] = []

    @tool
    def pay(amount: int) -> str:
        "Pays."
        ran.append("paid")
        return "paid"

    model = Streams([ToolCallDelta(0, '{"amount": 1}', id="c", name="pay"), StopDelta("length")], GOOD)
    agent = Agent(model=model, tools=[pay])
    result = await agent.execute("go")
    assert (ran, result.state.messages[-1].status) == ([], "length")
    again = await agent.execute(result.state.add_message("go on"))
    assert (ran, again.text) == ([], "fine")


async def test_arguments_a_thousand_brackets_deep_are_an_error_for_the_model() -> None:
    deep = '{"a": ' + "[" * 100_000
    turn = [ToolCallDelta(0, deep, id="c", name="ping"), StopDelta()]
    result = await Agent(model=Streams(turn, GOOD), tools=[ping]).execute("go")
    answer = result.state.messages[2].tool_results[0]
    assert answer.is_error
    assert answer.text.startswith('The arguments of ping were not a JSON object: \'{"a": [[[')
    assert len(answer.text) < 400


async def test_a_callback_that_fails_on_a_piece_is_no_error_of_the_model() -> None:
    def broken(event: ModelDelta) -> None:
        if event.text == "two":
            raise RuntimeError("no")

    model = Streams([TextDelta("one "), TextDelta("two"), TextDelta(" three"), StopDelta()])
    error = await fail(model, callbacks={"on_llm_new_delta": broken})
    assert error.type == "callback_error"
    assert error.message == "Callback handler for on_llm_new_delta raised an exception: RuntimeError: no"
    assert (error.state.messages[-1].text, error.state.messages[-1].status) == ("one two", "stream_error")


async def test_a_callback_that_fails_on_the_answer_keeps_the_answer() -> None:
    def broken(event: ModelEnded) -> None:
        raise RuntimeError("no")

    error = await fail(Streams(GOOD), callbacks={"on_llm_new_message": broken})
    assert error.type == "callback_error"
    assert (error.state.messages[-1].text, error.state.messages[-1].status) == ("fine", "complete")


async def test_a_wrap_hook_may_ask_again_and_only_its_answer_counts(no_waiting: None) -> None:
    class AsksTwice(Middleware):
        async def wrap_model_call(self, request: ModelRequest, call_next: Any) -> Message:
            try:
                message: Message = await call_next(request)
            except ModelError:
                message = await call_next(request.replace(system="again"))
            return message

    model = Streams([TextDelta("broken "), BUSY], GOOD)
    result = await Agent(model=model, middleware=[AsksTwice()]).execute("go")
    assert [m.text for m in result.state.messages] == ["go", "fine"]
    # The second request is a new one: its failures are tried again although the first had shown something.
    model = Streams([TextDelta("broken "), BUSY], [BUSY], GOOD)
    assert (await Agent(model=model, middleware=[AsksTwice()]).execute("go")).text == "fine"


async def hook_fails_after(turn: list[Any]) -> Message:
    class Fails(Middleware):
        async def wrap_model_call(self, request: ModelRequest, call_next: Any) -> Message:
            try:
                await call_next(request)
            finally:
                raise RuntimeError("no")

    error = await fail(Streams(turn), middleware=[Fails()])
    assert (error.type, error.message) == ("middleware_error", "Fails.wrap_model_call raised RuntimeError: no")
    return error.state.messages[-1]


async def test_what_was_seen_is_kept_when_a_wrap_hook_fails_after_it(no_waiting: None) -> None:
    for turn, text, status in (
        ([TextDelta("Half an"), BUSY], "Half an", "stream_error"),
        (GOOD, "fine", "complete"),
    ):
        last = await hook_fails_after(turn)
        assert (last.role, last.text, last.status) == ("assistant", text, status)
    assert (await hook_fails_after([BUSY])).role == "user"


async def test_what_was_seen_is_kept_when_a_wrap_hook_asks_again_in_vain(no_waiting: None) -> None:
    class AsksTwice(Middleware):
        async def wrap_model_call(self, request: ModelRequest, call_next: Any) -> Message:
            with contextlib.suppress(ModelError):
                await call_next(request)
            message: Message = await call_next(request)
            return message

    for second, text in (([BUSY], "Half an"), ([TextDelta("Another"), BUSY], "Another")):
        error = await fail(Streams([TextDelta("Half an"), BUSY], second), middleware=[AsksTwice()])
        assert error.type == "overloaded"
        assert [(m.role, m.text) for m in error.state.messages] == [("user", "go"), ("assistant", text)]


async def test_two_requests_of_a_wrap_hook_at_once_do_not_mix_up_their_retries(no_waiting: None) -> None:
    seen = asyncio.Event()

    async def wait() -> None:
        await seen.wait()

    async def tell() -> None:
        seen.set()
        await asyncio.sleep(0.01)

    class Races(Middleware):
        async def wrap_model_call(self, request: ModelRequest, call_next: Any) -> Message:
            answers = await asyncio.gather(call_next(request), call_next(request))
            message: Message = answers[1]
            return message

    # The first has shown something when the second fails, which had not: it is asked again.
    model = Streams([TextDelta("slow"), tell, StopDelta()], [wait, BUSY], GOOD)
    result = await Agent(model=model, middleware=[Races()]).execute("go")
    assert (result.text, model.asked) == ("fine", 3)


async def test_pieces_carry_their_attempt_so_that_those_of_a_void_one_can_be_dropped(no_waiting: None) -> None:
    run = Agent(model=Streams([BUSY], GOOD)).begin("go")
    pieces: list[Any] = []
    run.recorder.listeners.append(lambda e: pieces.append((e.attempt, e.text)) if isinstance(e, ModelDelta) else None)
    await run_leg(run)
    assert pieces == [(2, "fine"), (2, "")]


async def test_the_request_holds_what_the_agent_was_made_of() -> None:
    model = ScriptedModel([Message("assistant", "hi", usage=Usage(input_tokens=3, output_tokens=1))])
    result = await Agent(model=model, tools=[ping], base_system_prompt="Be brief.").execute(State.from_text("go"))
    request = model.requests[0]
    assert (request.system, [t.name for t in request.tools], request.tool_choice) == ("Be brief.", ["ping"], "auto")
    assert request.model is model
    assert [m.text for m in request.messages] == ["go"]
    assert result.state.messages[-1].usage == Usage(input_tokens=3, output_tokens=1)


@pytest.mark.parametrize("max_runs", [0, -1])
async def test_a_limit_below_one_is_refused(max_runs: int) -> None:
    agent = Agent(model=ScriptedModel([ToolCall("ping")]))
    with pytest.raises(ValueError, match=f"max_runs={max_runs}.: it is the number of model calls allowed, at least 1"):
        await agent.execute("go", max_runs=max_runs)
