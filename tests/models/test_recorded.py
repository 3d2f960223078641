"""A recorded model answers from its file what the model answered then, and says what is different when it cannot."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

from sagents_nb import (
    Agent,
    AgentError,
    AnthropicModel,
    ConfigurationError,
    Image,
    Message,
    Middleware,
    ModelError,
    RecordedModel,
    ScriptedModel,
    State,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    tool,
)
from sagents_nb.models import (
    ChatModel,
    Delta,
    ModelRequest,
    StopDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageDelta,
    recorded,
)
from tests.support.messages_server import MessagesServer, http_error, reply, text


@tool
async def get_weather(city: str) -> str:
    "Weather in a city."
    return f"Sunny in {city}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


def asks(said: str = "Hi", **more: Any) -> ModelRequest:
    return ModelRequest(messages=(Message("user", said),), **more)


async def answer(model: ChatModel, request: ModelRequest | None = None) -> list[Delta]:
    return [delta async for delta in model.stream(request or asks())]


async def said(model: ChatModel, request: ModelRequest | None = None) -> str:
    return "".join(delta.text for delta in await answer(model, request) if isinstance(delta, TextDelta))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def content_of(file: Path) -> str:
    return file.read_text()


def change(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def make_empty(file: Path) -> None:
    file.touch()


def make_folder(file: Path) -> None:
    file.mkdir()


# -- what was recorded comes again ----------------------------------------------------------------


async def test_a_conversation_with_tools_is_replayed_without_the_model(file: Path) -> None:
    script = ScriptedModel([ToolCall("get_weather", {"city": "Oslo"}), "Sunny.", "Goodbye."])
    agent = Agent(model=RecordedModel(file, script), tools=[get_weather], base_system_prompt="Be brief.")
    first = await agent.execute("Weather?")
    last = await agent.execute(first.state.add_message("Bye"))
    again = Agent(model=RecordedModel(file), tools=[get_weather], base_system_prompt="Be brief.")
    replayed = await again.execute("Weather?")
    ended = await again.execute(replayed.state.add_message("Bye"))
    assert [m.text for m in ended.state.messages] == [m.text for m in last.state.messages]
    assert ended.text == "Goodbye."
    assert len(script.requests) == 3


EVERY_DELTA = (
    ThinkingDelta("hm", 0),
    ThinkingDelta("", 0, signature="c2VhbA"),
    ThinkingDelta("", 1, redacted="eHg"),
    TextDelta("Grüße ", 2),
    TextDelta("\u2028\n🙂", 2),
    ToolCallDelta(3, id="c1", name="get_weather"),
    ToolCallDelta(3, '{"city": "O'),
    ToolCallDelta(3, 'slo"}'),
    UsageDelta(Usage(input_tokens=3, output_tokens=4, cache_read_tokens=1)),
    StopDelta("length", {"stop_reason": "max_tokens", "deep": {"list": [1, None, True]}}),
)


class Streams(ChatModel):
    """Streams what it is given, then raises what it is given."""

    def __init__(self, *deltas: Any, error: BaseException | None = None) -> None:
        self.deltas = deltas
        self.error = error

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        for delta in self.deltas:
            await asyncio.sleep(0)
            yield delta
        if self.error is not None:
            raise self.error


async def test_every_delta_comes_again_as_it_was(file: Path) -> None:
    recorded_deltas = await answer(RecordedModel(file, Streams(*EVERY_DELTA)))
    assert tuple(recorded_deltas) == EVERY_DELTA
    assert tuple(await answer(RecordedModel(file))) == EVERY_DELTA


async def test_an_error_comes_again_with_all_it_says_after_what_came_before_it(file: Path) -> None:
    error = ModelError("busy", type="overloaded", retryable=True, retry_after=1.5, status_code=529, request_id="req_1")
    for model in (Streams(TextDelta("It is"), error=error), None):
        seen: list[Delta] = []
        with pytest.raises(ModelError) as caught:
            async for delta in RecordedModel(file, model).stream(asks()):
                seen.append(delta)
        assert seen == [TextDelta("It is")]
        assert vars(caught.value) == vars(error)


async def test_a_model_that_broke_down_is_an_error_in_the_recording_too(file: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        await answer(RecordedModel(file, Streams(error=ZeroDivisionError("by zero"))))
    with pytest.raises(ModelError, match="ZeroDivisionError: by zero"):
        await answer(RecordedModel(file))


async def test_an_answer_that_never_said_it_was_complete_is_no_more_complete_in_the_recording(file: Path) -> None:
    assert await answer(RecordedModel(file, Streams(TextDelta("It is")))) == [TextDelta("It is")]
    assert await answer(RecordedModel(file)) == [TextDelta("It is")]


async def test_a_faulty_first_try_and_the_second_are_two_records(file: Path) -> None:
    script = ScriptedModel([ModelError("busy", type="overloaded", retryable=True, retry_after=0.0), "There."])
    first = await Agent(model=RecordedModel(file, script)).execute("Hi")
    again = await Agent(model=RecordedModel(file)).execute("Hi")
    assert (first.text, again.text) == ("There.", "There.")


async def test_a_stopped_answer_is_recorded_as_that(file: Path) -> None:
    class Waits(Streams):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            yield TextDelta("Once upon")
            await asyncio.sleep(60)

    stream: Any = RecordedModel(file, Waits()).stream(asks())
    await anext(stream)
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lines(file)[0]["end"] == "cancelled"
    with pytest.raises(ModelError, match="was cancelled here") as caught:
        await answer(RecordedModel(file))
    assert caught.value.type == "recording_cancelled"


async def test_the_same_request_the_nth_time_gets_the_nth_answer(file: Path) -> None:
    recording = RecordedModel(file, ScriptedModel(["one", "two", "other", "three"]))
    for request in (asks(), asks(), asks("Else"), asks()):
        await answer(recording, request)
    replay = RecordedModel(file)
    assert [await said(replay, r) for r in (asks("Else"), asks(), asks(), asks())] == ["other", "one", "two", "three"]
    assert await said(RecordedModel(file)) == "one"


async def test_answers_that_are_ready_in_another_order_keep_that_of_the_requests(file: Path) -> None:
    def turn(number: int) -> Streams:
        class Slow(Streams):
            async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
                await asyncio.sleep(0.06 - 0.02 * number)
                yield TextDelta(str(number))
                yield StopDelta()

        return Slow()

    class Each(ChatModel):
        count = 0

        def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            self.count += 1
            return turn(self.count).stream(request)

    recording = RecordedModel(file, Each())
    await asyncio.gather(*(answer(recording) for _ in range(3)))
    assert [json_line["number"] for json_line in lines(file)] == [3, 2, 1]
    replay = RecordedModel(file)
    assert [await said(replay) for _ in range(3)] == ["1", "2", "3"]


async def test_recording_again_goes_on_at_the_end(file: Path) -> None:
    await answer(RecordedModel(file, ScriptedModel(["one"])))
    await answer(RecordedModel(file, ScriptedModel(["two"])))
    replay = RecordedModel(file)
    assert [await said(replay), await said(replay)] == ["one", "two"]


def test_many_threads_record_into_one_file_and_no_line_is_broken(file: Path) -> None:
    models = [RecordedModel(file, ScriptedModel(["x" * 5000], repeat=True)) for _ in range(2)]

    def work(number: int) -> None:
        async def ask() -> None:
            for _ in range(5):
                await asyncio.gather(*(answer(models[number % 2], asks(f"{number}")) for _ in range(3)))

        asyncio.run(ask())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(file)) == 4 * 5 * 3


# -- which requests are the same ------------------------------------------------------------------


def history(call_id: str, *, result: str = "Sunny", **more: Any) -> ModelRequest:
    return ModelRequest(
        system="Be brief.",
        messages=(
            Message("user", [Text("Weather?"), Image(data="aGk=", media_type="image/png")]),
            Message("assistant", [], tool_calls=[ToolCall("get_weather", {"city": "Oslo"}, id=call_id)]),
            Message("tool", tool_results=[ToolResult(result, tool_call_id=call_id, name="get_weather")]),
        ),
        **{"tools": (get_weather,), **more},
    )


def but(**changes: Any) -> ModelRequest:
    return history("c1").replace(**changes)


def last(**changes: Any) -> ModelRequest:
    request = history("c1")
    return request.replace(messages=(*request.messages[:-1], request.messages[-1].replace(**changes)))


@tool(name="get_weather", description="Weather in a city.")
async def by_country(city: str, country: str = "") -> str:
    return city


SAME: dict[str, ModelRequest] = {
    "other ids of calls": history("toolu_9"),
    "metadata of a message": last(metadata={"seen": True}),
    "usage of a message": last(usage=Usage(input_tokens=9)),
    "status of a message": last(status="cancelled"),
    "another model in the request": but(model=ScriptedModel([])),
    "headers": but(options={"headers": {"x-key": "k"}, "extra_headers": {}, "api_key": "k"}),
}
DIFFERENT: dict[str, tuple[ModelRequest, str]] = {
    "system": (but(system="Be kind."), "system"),
    "another word": (history("c1", result="Rainy"), "messages"),
    "another image": (
        but(
            messages=(
                Message("user", [Text("Weather?"), Image(data="R0lG", media_type="image/png")]),
                *history("c1").messages[1:],
            )
        ),
        "messages",
    ),
    "a thought": (but(messages=(*history("c1").messages, Message("assistant", [Thinking(text="hm")]))), "messages"),
    "no tools": (but(tools=()), "tools"),
    "another schema": (but(tools=(by_country,)), "tools"),
    "tool choice": (but(tool_choice="any"), "tool_choice"),
    "options": (but(options={"temperature": 0}), "options"),
    "an error instead of a result": (
        last(tool_results=[ToolResult("Sunny", tool_call_id="c1", is_error=True)]),
        "messages",
    ),
}


@pytest.mark.parametrize("case", SAME)
async def test_what_the_model_does_not_see_makes_no_difference(file: Path, case: str) -> None:
    await answer(RecordedModel(file, ScriptedModel(["Sunny."])), history("c1"))
    assert await said(RecordedModel(file), SAME[case]) == "Sunny."


@pytest.mark.parametrize("case", DIFFERENT)
async def test_what_the_model_sees_makes_a_difference_and_the_error_says_where(file: Path, case: str) -> None:
    await answer(RecordedModel(file, ScriptedModel(["Sunny."])), history("c1"))
    request, where = DIFFERENT[case]
    with pytest.raises(ModelError) as caught:
        await answer(RecordedModel(file), request)
    assert caught.value.type == "recording_mismatch"
    assert not caught.value.retryable
    assert f"something else is in: {where}.\n" in str(caught.value)


async def test_ids_count_by_their_order_so_that_results_cannot_change_places(file: Path) -> None:
    def two(first: str, second: str) -> ModelRequest:
        calls = [ToolCall("get_weather", {"city": "Oslo"}, id=i) for i in ("a", "b")]
        results = [ToolResult("r", tool_call_id=first), ToolResult("r", tool_call_id=second)]
        return ModelRequest(
            messages=(Message("assistant", [], tool_calls=calls), Message("tool", tool_results=results))
        )

    await answer(RecordedModel(file, ScriptedModel(["fine"])), two("a", "b"))
    with pytest.raises(ModelError, match="recording|no answer"):
        await answer(RecordedModel(file), two("b", "a"))


async def test_an_unknown_request_is_compared_with_the_nearest_one(file: Path) -> None:
    recording = RecordedModel(file, ScriptedModel(["1", "2", "3"]))
    long = "It was a dark and stormy night. " * 20
    for request in (asks("Something else"), asks(long + "The end."), asks("More")):
        await answer(recording, request)
    with pytest.raises(ModelError) as caught:
        await answer(RecordedModel(file), asks(long + "To be continued."))
    shown = str(caught.value)
    assert shown.startswith(f"{file} has no answer to this request. Compared with the nearest that was recorded")
    removed, added = [[line for line in shown.splitlines() if line.startswith(sign)] for sign in "-+"]
    assert any("The end." in line for line in removed)
    assert any("To be continued." in line for line in added)
    assert "Something else" not in shown
    assert "RecordedModel(path, model)" in shown


async def test_a_large_difference_is_cut(file: Path) -> None:
    await answer(RecordedModel(file, ScriptedModel(["1"])), asks("\n".join(f"old {n}" for n in range(200))))
    with pytest.raises(ModelError) as caught:
        await answer(RecordedModel(file), asks("\n".join(f"new {n}" for n in range(200))))
    assert len(str(caught.value).splitlines()) < 50
    assert "more lines" in str(caught.value)


async def test_asking_once_too_often_says_how_often_it_was_recorded(file: Path) -> None:
    await answer(RecordedModel(file, ScriptedModel(["1"])))
    replay = RecordedModel(file)
    await answer(replay)
    with pytest.raises(ModelError, match="has 1 answer to this request, and this is time 2") as caught:
        await answer(replay)
    assert caught.value.type == "recording_mismatch"


async def test_a_mismatch_ends_the_run_with_its_type(file: Path) -> None:
    await answer(RecordedModel(file, ScriptedModel(["1"])))
    with pytest.raises(AgentError) as caught:
        await Agent(model=RecordedModel(file)).execute("Something else")
    assert caught.value.type == "recording_mismatch"


async def test_a_recording_read_by_hand_may_be_changed_by_hand(file: Path) -> None:
    await answer(RecordedModel(file, ScriptedModel(["Hello."])), asks("Hi"))
    change(file, '"Hi"', '"Good day"')
    assert await said(RecordedModel(file), asks("Good day")) == "Hello."


# -- what is never written ------------------------------------------------------------------------


KEY = "sk-ant-test-secret-0123"
PROXY = 'proxy"secret\\9'


def echo(request: ModelRequest) -> str:
    return f"You said {request.messages[-1].text}"


async def nothing_secret_is_in_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Knows(Streams):
        def secrets(self) -> tuple[SecretStr, ...]:
            return (SecretStr(KEY), SecretStr(PROXY))

    pieces = [
        *(TextDelta(piece) for piece in (f"{KEY[:4]}", KEY[4:9], KEY[9:] + " is yours")),
        ToolCallDelta(1, id="c1", name="login"),
        *(ToolCallDelta(1, piece) for piece in json.dumps({"key": PROXY})),
        StopDelta(metadata={"echo": f"key {KEY}"}),
    ]
    models = [Knows(*pieces), Knows(error=ModelError(f"cannot log in with {KEY} of tenant-7654", request_id=KEY))]
    for model in models:
        request = asks(
            f"My key is {KEY}",
            system=f"Key: {KEY}",
            options={
                "headers": {"x-api-key": KEY},
                "metadata": {"user_id": KEY},
                "extra_headers": {"a": "tenant-7654"},
            },
        )
        try:
            await answer(RecordedModel(file, model, secrets=["of the user"]), request)
        except ModelError:
            pass
    await answer(RecordedModel(file, ScriptedModel([echo]), secrets=["of the user"]), asks("this is of the user"))
    written = content_of(file)
    assert written.count("[secret]") >= 9
    for secret in (KEY, KEY[4:9], PROXY, json.dumps(PROXY)[1:-1], "of the user", "x-api-key", "tenant-7654"):
        assert secret not in written
        assert json.dumps(secret)[1:-1] not in written


async def test_no_secret_gets_into_the_file_in_whatever_pieces_it_comes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nothing_secret_is_in_the_file(file, monkeypatch)


def not_masked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recorded, "_masked", lambda value, secrets: value)


def masked_piece_by_piece(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        recorded,
        "_masked_deltas",
        lambda deltas, secrets: recorded._masked([recorded._delta_to_json(delta) for delta in deltas], secrets),
    )


def headers_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recorded, "_NEVER_WRITTEN", ())


@pytest.mark.parametrize("switch_off", [not_masked, masked_piece_by_piece, headers_written])
async def test_without_the_code_that_masks_secrets_they_would_be_in_the_file(
    file: Path, switch_off: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    with pytest.raises(AssertionError):
        await nothing_secret_is_in_the_file(file, monkeypatch)


class Scope:
    def __repr__(self) -> str:
        return "Scope('ann@example.org')"


async def test_claude_is_recorded_without_key_headers_or_scope(file: Path) -> None:
    class Adds(Middleware):
        async def wrap_model_call(self, request: Any, call_next: Any) -> Message:
            message: Message = await call_next(request.replace(options={"headers": {"x-tenant": "tenant-secret"}}))
            return message

    with MessagesServer([http_error(401, f"invalid x-api-key {KEY}"), reply(text("Hello."))]) as server:
        claude = AnthropicModel("claude-test", base_url=server.url, api_key=KEY, options={"headers": {"x-p": PROXY}})
        model = RecordedModel(file, claude)
        agent = Agent(model=model, middleware=[Adds()], scope=Scope(), tool_context={"token": "context-secret"})
        with pytest.raises(AgentError) as caught:
            await agent.execute("Hi")
        result = await agent.execute("Hi")
        await model.aclose()
    assert server.requests[1].headers["x-tenant"] == "tenant-secret"
    written = content_of(file)
    shown = [
        written,
        repr(model),
        repr(vars(model)),
        str(caught.value),
        repr(result.events),
        repr(caught.value.__cause__),
    ]
    for secret in (KEY, PROXY, "tenant-secret", "context-secret", "ann@example.org"):
        assert [text for text in shown if secret in text] == []
    replay = RecordedModel(file)
    assert (replay.name, model.name) == ("claude-test", "claude-test")
    with pytest.raises(ModelError, match=r"invalid x-api-key \[secret\]"):
        await answer(replay)
    assert await said(replay) == "Hello."


# -- files that are damaged -----------------------------------------------------------------------


async def test_a_line_that_was_cut_off_is_told_and_the_rest_is_used(file: Path) -> None:
    for words in ("one", "two"):
        await answer(RecordedModel(file, ScriptedModel([words])))
    cut_off(file)
    with pytest.warns(UserWarning, match=r"line 2 of the recording .* is cut off, as if a process had been killed"):
        replay = RecordedModel(file)
    assert await said(replay) == "one"


async def test_recording_after_a_cut_begins_a_new_line(file: Path) -> None:
    await answer(RecordedModel(file, ScriptedModel(["one"])))
    await answer(RecordedModel(file, ScriptedModel(["two"])))
    cut_off(file)
    with pytest.warns(UserWarning, match="cut off"):
        recording = RecordedModel(file, ScriptedModel(["three"]))
    await answer(recording)
    with pytest.warns(UserWarning, match="line 2 of the recording .* cannot be read"):
        replay = RecordedModel(file)
    assert [await said(replay), await said(replay)] == ["one", "three"]


KILLED = """
import asyncio, sys, time
from sagents_nb import Message, RecordedModel, ScriptedModel
from sagents_nb.models import ModelRequest

async def main():
    model = RecordedModel(sys.argv[1], ScriptedModel(["x" * 1000], repeat=True))
    for n in range(100000):
        async for _ in model.stream(ModelRequest(messages=(Message("user", "Hi"),))):
            pass
        if n == 3:
            print("going", flush=True)

asyncio.run(main())
"""


def record_and_be_killed(file: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()


async def test_a_killed_process_leaves_every_answer_it_had(file: Path) -> None:
    record_and_be_killed(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its last line may be cut off
        replay = RecordedModel(file)
    for _ in range(4):
        assert await said(replay) == "x" * 1000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("no json\n", "is no recording: its line 1 is not an answer of a model"),
        ('{"version": 1}\n', "is no recording"),
        ("[1]\n", "is no recording"),
        (
            '{"version": 1, "request": {}, "number": 1, "model": "m", "deltas": [{"type": "sound"}]}\n',
            "is no recording",
        ),
        ('{"version": 2, "anything": "else"}\n', "was recorded by a newer sagents-nb (version 2 in line 1"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(file: Path, content: str, words: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        RecordedModel(file)
    assert words in str(caught.value)


async def test_an_empty_recording_says_so_when_it_is_asked(file: Path) -> None:
    make_empty(file)
    with pytest.raises(ModelError, match="is empty; record into it"):
        await answer(RecordedModel(file))


async def test_a_folder_in_the_place_of_the_file_is_an_error_at_once(file: Path) -> None:
    recording = RecordedModel(file, ScriptedModel(["Hi"]))
    make_folder(file)
    with pytest.raises(ModelError, match="cannot be recorded") as caught:
        await answer(recording)
    assert caught.value.type == "recording_failed"


async def test_a_recording_that_fails_does_not_hold_up_stop(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    recording = RecordedModel(file, ScriptedModel(["Hello there, my friend"]))
    stream: Any = recording.stream(asks())
    await anext(stream)
    make_folder(file)
    await stream.aclose()
    assert "cannot be recorded" in caplog.text


async def test_a_delta_that_no_file_can_hold_is_an_error(file: Path) -> None:
    with pytest.raises(ModelError, match="cannot be recorded"):
        await answer(RecordedModel(file, Streams(TextDelta("x"), StopDelta(metadata={"response": object()}))))


# -- making one -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: RecordedModel(path), "there is no recording"),
        (lambda path: RecordedModel(path, mode="replay"), "make one with RecordedModel("),
        (lambda path: RecordedModel(path, mode="record"), "needs the model to record"),
        (lambda path: RecordedModel(path, cast("Any", "claude")), "got 'claude', a str; model is a ChatModel"),
        (
            lambda path: RecordedModel(path, ScriptedModel([]), mode=cast("Any", "both")),
            "is 'record' or 'replay', got 'both'",
        ),
        (lambda path: RecordedModel(path / "deeper" / "x", ScriptedModel([])), "there is no folder"),
        (lambda path: RecordedModel(path, ScriptedModel([]), secrets="key"), "takes a list of texts"),
        (lambda path: RecordedModel(path, ScriptedModel([]), delay=-1), "at least 0, got -1"),
    ],
)
def test_what_cannot_work_is_refused_when_the_model_is_made(
    file: Path, make: Callable[[Path], Any], words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(file)
    assert words in str(caught.value)


async def test_with_replay_the_model_may_stay_in_the_notebook_and_is_not_asked(file: Path) -> None:
    await answer(RecordedModel(file, ScriptedModel(["Hello."], name="one")))
    script = ScriptedModel(["Other."], name="other")
    replay = RecordedModel(file, script, mode="replay")
    assert await said(replay) == "Hello."
    assert script.requests == []
    assert repr(replay) == f"RecordedModel({str(file)!r}, replay: 1 answer)"
    assert RecordedModel(file).name == "one"


async def test_whether_another_model_may_help_is_what_the_recorded_one_says(file: Path) -> None:
    class Never(ScriptedModel):
        def retry_on_fallback(self, error: ModelError) -> bool:
            return False

    busy, wrong = ModelError("busy", retryable=True), ModelError("wrong")
    recording = RecordedModel(file, Never(["Hi"]))
    await answer(recording)
    assert [recording.retry_on_fallback(error) for error in (busy, wrong)] == [False, False]
    assert [RecordedModel(file).retry_on_fallback(error) for error in (busy, wrong)] == [True, False]
    assert [ScriptedModel([]).retry_on_fallback(error) for error in (busy, wrong)] == [True, False]


async def test_the_model_is_asked_in_its_own_name(file: Path) -> None:
    script = ScriptedModel(["Hi"])
    await Agent(model=RecordedModel(file, script)).execute(State.from_text("Hello"))
    assert script.requests[0].model is script
