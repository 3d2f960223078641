"""One model call: what is kept of a broken answer, when it is asked again, and who is blamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

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
    ToolCall,
    Usage,
    tool,
)
from sagents_nb.deltas import Delta, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta
from sagents_nb.events import ModelDelta, ModelEnded, ModelFailed, ModelStarted
from sagents_nb.execution import model_call
from sagents_nb.execution.loop import run_leg
from tests.support.cancelled import state_reached


class Streams(ChatModel):
    """Streams what it is given; a callable among it is called, an exception raised."""

    name = "streams"

    def __init__(self, *turns: list[Any]) -> None:
        self.turns = list(turns)
        self.asked = 0
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        turn = self.turns[min(self.asked, len(self.turns) - 1)]
        self.asked += 1
        try:
            for item in turn:
                if isinstance(item, BaseException):
                    raise item
                if callable(item):
                    await item()
                else:
                    yield item
        finally:
            self.closed += 1


async def fail(model: ChatModel, **options: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await Agent(model=model, **options).execute("go")
    return caught.value


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 0.0)


BUSY = ModelError("busy", type="overloaded", retryable=True)
GOOD: list[Any] = [TextDelta("fine"), StopDelta()]


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
    turns = [[ModelError("x", retryable=True, retry_after=seconds)] for seconds in (7, 99_999)]
    assert (await Agent(model=Streams(*turns, GOOD)).execute("go")).text == "fine"
    assert waited == [7, 30.0]


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
    ([TextDelta(None), StopDelta()], "model_error", "a model streamed TextDelta(text=None"),  # type: ignore[arg-type]
    ([TextDelta("a"), StopDelta("odd")], "model_error", "'complete', 'length'"),  # type: ignore[arg-type]
    ([TextDelta("a"), StopDelta("complete", {"x": object()})], "model_error", "metadata['x'] is a object"),
    ([asyncio.CancelledError()], "model_error", "raised CancelledError, though nobody stopped the run"),
    ([ModelError("no", type="refused")], "refused", "no"),
]


@pytest.mark.parametrize(("turn", "kind", "words"), BROKEN, ids=range(len(BROKEN)))
async def test_whatever_a_model_does_the_run_ends_in_an_error_that_says_what(
    turn: list[Any], kind: str, words: str
) -> None:
    model = Streams(turn)
    error = await fail(model)
    assert error.type == kind
    assert words in error.message
    assert model.closed == 1


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
