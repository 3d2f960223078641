"""Every model of the toolkit passes the checks for models, and each check fails for a model that breaks its rule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sagents_nb import AnthropicModel, ConfigurationError, Message, ModelError, RecordedModel, ScriptedModel, ToolCall
from sagents_nb.models import ChatModel, Delta, ModelRequest, StopDelta, TextDelta, ThinkingDelta, conformance
from sagents_nb.models.conformance import CHECKS, NEED_A_FAILING_MODEL, REQUEST, ConformanceError, check_model
from tests.support.messages_server import MessagesServer, reply, stall, text, tool_use

ALL = tuple(check.__name__ for check in CHECKS)
KEY = "sk-test-secret"
NOWHERE = "http://127.0.0.1:9"


# -- models that keep their side ------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    turn = reply(text("An agent acts.", chunks=3), tool_use("look", {"at": "it"}))
    with MessagesServer(lambda _request: turn) as running:
        yield running


def claude(url: str) -> AnthropicModel:
    return AnthropicModel("claude-test", base_url=url, api_key=KEY, options={"headers": {"x-proxy": "proxy-secret"}})


def test_a_scripted_model_keeps_its_side() -> None:
    turn: list[str | ToolCall] = ["An agent acts.", ToolCall("look", {"at": "it"})]
    made = check_model(
        lambda: ScriptedModel([turn], repeat=True, chunk_size=2),
        make_failing=lambda: ScriptedModel([ModelError("busy", type="overloaded")]),
    )
    assert made == ALL


def test_claude_keeps_its_side(server: MessagesServer) -> None:
    made = check_model(lambda: claude(server.url), make_failing=lambda: claude(NOWHERE), secrets=[KEY, "proxy-secret"])
    assert made == ALL


def test_a_model_that_records_keeps_its_side_and_so_does_its_recording(server: MessagesServer, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    made = check_model(
        lambda: RecordedModel(file, claude(server.url)),
        make_failing=lambda: RecordedModel(tmp_path / "failures.jsonl", claude(NOWHERE)),
        secrets=[KEY],
    )
    assert made == ALL
    file.unlink()  # stopped answers are among them
    recording = RecordedModel(file, ScriptedModel(["An agent acts."], repeat=True))

    async def record() -> None:
        for _ in range(8):
            async for _delta in recording.stream(REQUEST):
                pass

    asyncio.run(record())
    replayed = check_model(
        lambda: RecordedModel(file), make_failing=lambda: RecordedModel(tmp_path / "failures.jsonl"), secrets=[KEY]
    )
    assert replayed == ALL


def test_stopping_closes_the_connection_to_claude() -> None:
    with MessagesServer([stall(after=text("Once")), reply(text("Fine."))]) as server:

        async def stop() -> None:
            model = claude(server.url)
            stream: Any = model.stream(REQUEST)
            await anext(stream)
            task = asyncio.ensure_future(_rest(stream))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            await asyncio.to_thread(server.wait_for_disconnects)
            assert [delta async for delta in model.stream(REQUEST) if isinstance(delta, StopDelta)]
            await model.aclose()

        asyncio.run(stop())
        assert len(server.disconnects) == 1


async def _rest(stream: Any) -> None:
    async for _ in stream:
        pass


# -- models that do not ---------------------------------------------------------------------------


class Good(ChatModel):
    """What the others are made from."""

    name = "good"
    deltas: tuple[Any, ...] = (TextDelta("An "), TextDelta("agent."), StopDelta())

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        for delta in self.deltas:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            yield delta


class NoStop(Good):
    deltas = (TextDelta("An agent."),)


class GoesOnAfterStop(Good):
    deltas = (StopDelta(), TextDelta("An agent."))


class TwoKindsInOneBlock(Good):
    deltas = (TextDelta("An "), ThinkingDelta("agent", 0), StopDelta())


class NoJson(Good):
    deltas = (TextDelta("x"), StopDelta(metadata={"response": object()}))


class NoDelta(Good):
    deltas = (TextDelta("x"), {"type": "text"}, StopDelta())


class OneLoopOnly(Good):
    """As a client is that keeps the lock of the loop it was first used on."""

    def __init__(self) -> None:
        self.loop: Any = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.loop = self.loop or asyncio.get_running_loop()
        if self.loop is not asyncio.get_running_loop():
            raise ModelError("bound to a different event loop")
        async for delta in super().stream(request):
            yield delta


class OneBufferForAll(Good):
    """Keeps what is being answered on the model instead of in the stream."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.left = list("agent")
        while self.left:
            await asyncio.sleep(0)
            yield TextDelta(self.left.pop(0))
        yield StopDelta()


class SwallowsStop(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        for delta in self.deltas:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass
            yield delta


class StopIsAnError(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        for delta in self.deltas:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                raise ModelError("stopped") from None
            yield delta


class LeavesATask(Good):
    """A reader in the background goes on when nobody wants the answer any more."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def read() -> None:
            for delta in self.deltas[:-1]:
                await asyncio.sleep(0)
                await queue.put(delta)
            await asyncio.sleep(3)

        self.reader = asyncio.ensure_future(read())
        for _ in self.deltas[:-1]:
            yield await queue.get()
        self.reader.cancel()
        yield StopDelta()


class CannotBeClosed(Good):
    def stream(self, request: ModelRequest) -> Any:
        class Stream:
            def __init__(self) -> None:
                self.left = [TextDelta("An "), TextDelta("agent."), StopDelta()]

            def __aiter__(self) -> Any:
                return self

            async def __anext__(self) -> Any:
                if not self.left:
                    raise StopAsyncIteration
                return self.left.pop(0)

        return Stream()


class Coroutine(Good):
    async def stream(self, request: ModelRequest) -> Any:  # type: ignore[override]
        return iter(self.deltas)


class NoIterator(Good):
    def stream(self, request: ModelRequest) -> Any:
        return list(self.deltas)


class ChangesOptions(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        request.options["stream"] = True
        async for delta in super().stream(request):
            yield delta


class NoName(Good):
    name = ""


class ShowsItsKey(Good):
    def __init__(self) -> None:
        self.key = KEY

    def __repr__(self) -> str:
        return f"ShowsItsKey({self.key!r})"


class KeepsItsKeyOpen(Good):
    def __init__(self) -> None:
        self.key = KEY


class Blocks(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        time.sleep(3)  # noqa: ASYNC251 - what it must not do
        yield StopDelta()


class TakesForEver(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        await asyncio.sleep(3)
        yield StopDelta()


class Closes(Good):
    async def aclose(self) -> None:
        raise RuntimeError("no client")


class Fails(Good):
    error: Exception = ModelError("busy", type="overloaded")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield TextDelta("An ")
        raise self.error


class FailsOtherwise(Fails):
    error = OSError("no route")


class FailsInSilence(Fails):
    error = ModelError(" ")


class FailsWithItsKey(Fails):
    error = ModelError(f"cannot log in with {KEY}")


class FailsFromItsKey(Fails):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield TextDelta("An ")
        raise ModelError("cannot log in") from ValueError(f"illegal header {KEY!r}")


BROKEN: list[tuple[str, Callable[[], ChatModel], Callable[[], ChatModel], str]] = [
    ("the_answer_ends_with_one_stop", NoStop, Fails, "it streamed TextDelta"),
    ("the_answer_ends_with_one_stop", GoesOnAfterStop, Fails, "it streamed StopDelta, TextDelta"),
    ("the_answer_ends_with_one_stop", Coroutine, Fails, "its stream is a coroutine"),
    ("the_answer_ends_with_one_stop", NoIterator, Fails, "no async iterator"),
    ("the_answer_ends_with_one_stop", Fails, Fails, "it raised ModelError: busy"),
    ("the_answer_ends_with_one_stop", Blocks, Fails, "it blocks its event loop"),
    ("the_answer_ends_with_one_stop", TakesForEver, Fails, "it takes more than"),
    ("the_answer_ends_with_one_stop", Closes, Fails, "it raised RuntimeError: no client"),
    ("the_deltas_make_a_message", TwoKindsInOneBlock, Fails, "which is a text block"),
    ("the_deltas_make_a_message", NoJson, Fails, "is a object, which is not JSON"),
    ("the_deltas_make_a_message", NoDelta, Fails, "is not one of the deltas"),
    ("it_works_on_several_event_loops", OneLoopOnly, Fails, "bound to a different event loop"),
    ("two_agents_may_ask_at_once", OneBufferForAll, Fails, "alone it answers ('agent'"),
    ("stopping_ends_the_stream", SwallowsStop, Fails, "let CancelledError pass"),
    ("stopping_ends_the_stream", StopIsAnError, Fails, "with ModelError('stopped')"),
    ("stopping_ends_the_stream", LeavesATask, Fails, "left a task behind"),
    ("stopping_ends_the_stream", CannotBeClosed, Fails, "cannot be closed"),
    ("only_model_errors_come_out", Good, FailsOtherwise, "it raised OSError: no route"),
    ("only_model_errors_come_out", Good, FailsInSilence, "says nothing"),
    ("only_model_errors_come_out", Good, Good, "the model of make_failing answered"),
    ("the_request_stays_as_it_is", ChangesOptions, Fails, "it changed the request from"),
    ("it_has_a_name", NoName, Fails, "its name is ''"),
    ("no_secret_is_shown", ShowsItsKey, Fails, "a secret is seen in its repr"),
    ("no_secret_is_shown", KeepsItsKeyOpen, Fails, "a secret is seen in its vars"),
    ("no_secret_is_in_an_error", Good, FailsWithItsKey, "a secret is seen in a ModelError"),
    ("no_secret_is_in_an_error", Good, FailsFromItsKey, "a secret is seen in a ValueError"),
]


def test_a_model_of_twenty_lines_keeps_its_side() -> None:
    assert check_model(Good, make_failing=Fails, secrets=[KEY]) == ALL


def test_every_check_has_a_model_that_breaks_its_rule() -> None:
    assert {name for name, *_ in BROKEN} == set(ALL)


@pytest.mark.parametrize(
    ("check", "broken", "failing", "words"), BROKEN, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_model_that_breaks_a_rule_is_told_so(check: str, broken: Any, failing: Any, words: str) -> None:
    patient = broken not in (Blocks, TakesForEver)
    case = conformance.Case(broken, REQUEST, failing, (KEY,), timeout=10 if patient else 0.02)
    with pytest.raises(ConformanceError) as caught:
        getattr(conformance, check)(case)
    assert words in str(caught.value)
    if check not in ("no_secret_is_shown", "no_secret_is_in_an_error"):
        return
    assert KEY not in str(caught.value)


def test_all_that_is_wrong_is_told_at_once_and_as_a_failed_test() -> None:
    class Worse(ChangesOptions):
        name = " "

    with pytest.raises(AssertionError) as caught:
        check_model(Worse)
    said = str(caught.value).splitlines()
    assert said[0] == f"Worse fails 2 of {len(ALL) - 2} checks"
    assert [line.partition(":")[0] for line in said[1:]] == ["the_request_stays_as_it_is", "it_has_a_name"]


def test_without_a_model_that_fails_the_checks_of_failures_are_left_out() -> None:
    left_out = {check.__name__ for check in NEED_A_FAILING_MODEL}
    assert check_model(Good) == tuple(name for name in ALL if name not in left_out)


@pytest.mark.parametrize("options", [{}, {"make_failing": lambda: None}])
def test_what_is_no_model_is_refused(options: dict[str, Any]) -> None:
    make: Any = Good if options else (lambda: "claude")
    with pytest.raises(ConfigurationError, match="functions that make a ChatModel"):
        check_model(make, **options)


async def test_it_may_be_called_where_an_event_loop_runs() -> None:
    request = ModelRequest(messages=(Message("user", "Hi"),))
    assert "it_has_a_name" in check_model(Good, request=request)
