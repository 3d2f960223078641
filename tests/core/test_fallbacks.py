"""Fallback models: who is asked after whom, when, with what, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sagents_nb import (
    Agent,
    AgentError,
    ChatModel,
    ConfigurationError,
    Halt,
    Interrupt,
    Message,
    Middleware,
    ModelError,
    ModelRequest,
    ScriptedModel,
    State,
    ToolCall,
    tool,
)
from sagents_nb.deltas import StopDelta, TextDelta, ThinkingDelta, ToolCallDelta
from sagents_nb.events import ModelDelta, ModelEnded, ModelFailed, ModelStarted
from sagents_nb.execution import fallback, model_call
from tests.core.streams import BUSY, GOOD, Streams


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 0.0)


WRONG = ModelError("no such model", type="not_found_error")


async def fail(**options: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await Agent(**options).execute("go")
    return caught.value


async def test_where_a_model_fails_the_next_answers_and_it_is_told_who_did_what() -> None:
    heard: list[str] = []
    first, second = Streams([BUSY], name="first"), Streams(GOOD, name="second")
    agent = Agent(
        model=first,
        fallback_models=[second],
        callbacks={
            "on_llm_error": lambda event: heard.append(f"on_llm_error {event.model}"),
            "on_error": lambda event: heard.append("on_error"),
        },
    )
    result = await agent.execute("go")
    assert [(m.role, m.text) for m in result.state.messages] == [("user", "go"), ("assistant", "fine")]
    assert (first.asked, second.asked) == (3, 1)
    assert heard == ["on_llm_error first"] * 3
    assert [(e.model, e.attempt) for e in result.events if isinstance(e, ModelStarted)] == [
        ("first", 1),
        ("first", 2),
        ("first", 3),
        ("second", 4),
    ]
    assert [(e.model, e.attempt, e.retry_in, e.fallback) for e in result.events if isinstance(e, ModelFailed)] == [
        ("first", 1, 0.0, None),
        ("first", 2, 0.0, None),
        ("first", 3, None, "second"),
    ]
    ended = [event for event in result.events if isinstance(event, ModelEnded)]
    assert [(event.model, event.message.text) for event in ended][-1] == ("second", "fine")
    assert [e for e in result.events if isinstance(e, ModelFailed)][-1].to_json()["fallback"] == "second"


async def test_each_model_has_retries_of_its_own_and_the_list_is_gone_through_in_order() -> None:
    models = [Streams([BUSY], name="a"), Streams([BUSY], name="b"), Streams([BUSY], [BUSY], GOOD, name="c")]
    result = await Agent(model=models[0], fallback_models=models[1:]).execute("go")
    assert [model.asked for model in models] == [3, 3, 3]
    assert [(e.model, e.fallback) for e in result.events if isinstance(e, ModelFailed) and e.fallback] == [
        ("a", "b"),
        ("b", "c"),
    ]


async def test_pieces_of_every_model_have_a_later_attempt_than_those_before() -> None:
    half = [ToolCallDelta(0, '{"a', id="c", name="pay"), BUSY]
    pieces: list[int] = []
    agent = Agent(
        model=Streams(half, name="first"),
        fallback_models=[Streams(GOOD, name="second")],
        callbacks={"on_llm_new_delta": lambda event: pieces.append(event.attempt)},
    )
    await agent.execute("go")
    assert pieces == [1, 2, 3, 4, 4]


class Own(Streams):
    """Decides itself after which errors another model is asked."""

    def __init__(self, answer: Callable[[ModelError], Any], *turns: list[Any]) -> None:
        super().__init__(*turns, name="own")
        self.answer = answer

    def retry_on_fallback(self, error: ModelError) -> bool:
        answer: bool = self.answer(error)
        return answer


def broken(error: ModelError) -> bool:
    raise KeyError("x")


LASTS = [
    pytest.param(Streams([WRONG]), "not_found_error", "no such model", 1, id="an error that will not pass"),
    pytest.param(Streams([ValueError("bug")]), "model_error", "raised ValueError: bug", 1, id="a bug of the model"),
    pytest.param(Own(lambda error: False, [BUSY]), "overloaded", "busy", 3, id="the model says that none would help"),
    pytest.param(
        Own(broken, [BUSY]),
        "model_error",
        "Own('own').retry_on_fallback raised KeyError: 'x'; it was asked about the error 'busy'",
        3,
        id="the model cannot say it",
    ),
]


@pytest.mark.parametrize(("model", "kind", "words", "asked"), LASTS)
async def test_after_an_error_that_another_model_would_not_help_none_is_asked(
    model: Streams, kind: str, words: str, asked: int
) -> None:
    spare = Streams(GOOD)
    error = await fail(model=model, fallback_models=[spare])
    assert error.type == kind
    assert words in error.message
    assert (model.asked, spare.asked) == (asked, 0)


async def test_a_model_may_want_another_to_be_asked_after_an_error_that_is_not_tried_again() -> None:
    model, spare = Own(lambda error: error.type == "not_found_error", [WRONG]), Streams(GOOD)
    result = await Agent(model=model, fallback_models=[spare]).execute("go")
    assert (result.text, model.asked, spare.asked) == ("fine", 1, 1)


async def test_without_fallback_models_a_model_is_not_asked_whether_they_would_help() -> None:
    error = await fail(model=Own(broken, [BUSY]), before_fallback=broken)
    assert (error.type, error.message) == ("overloaded", "busy")


SEEN = [
    pytest.param([TextDelta("The answer"), BUSY], "The answer", id="text"),
    pytest.param([ThinkingDelta("Hm"), BUSY], "", id="thoughts"),
    pytest.param([ToolCallDelta(0, '{"by": 1}', id="c", name="pay"), BUSY], "", id="a whole call"),
]


@pytest.mark.parametrize(("turn", "words"), SEEN)
async def test_once_a_part_was_seen_no_other_model_is_asked(turn: list[Any], words: str) -> None:
    model, spare = Streams(turn), Streams(GOOD)
    error = await fail(model=model, fallback_models=[spare])
    assert (error.type, error.message) == ("overloaded", "busy")
    assert (model.asked, spare.asked) == (1, 0)
    last = error.state.messages[-1]
    assert (last.role, last.text, last.status, last.is_empty) == ("assistant", words, "stream_error", False)


async def test_what_a_fallback_model_showed_before_it_broke_is_kept_too() -> None:
    second = Streams([TextDelta("Half an"), BUSY])
    error = await fail(model=Streams([BUSY]), fallback_models=[second, Streams(GOOD)])
    assert (error.type, error.state.messages[-1].text, second.asked) == ("overloaded", "Half an", 1)


@tool
async def ask() -> Interrupt:
    "Asks."
    return Interrupt("question", "Which?")


@tool
async def halt() -> Halt:
    "Stops."
    return Halt("Budget")


@tool
async def bad() -> str:
    "Fails."
    raise ModelError("of a model that a tool asked", type="overloaded", retryable=True)


class Hook(Middleware):
    """Does something in one hook."""

    where: str
    what: Any

    def before_model(self, state: State, run: Any) -> Any:
        return self.what() if self.where == "before_model" else None

    def after_model(self, state: State, run: Any) -> Any:
        return self.what() if self.where == "after_model" else None

    async def wrap_model_call(self, request: ModelRequest, call_next: Any) -> Any:
        message = await call_next(request)
        return self.what() if self.where == "wrap_model_call" else message


def boom() -> None:
    raise RuntimeError("boom")


def pause() -> Interrupt:
    return Interrupt("question", "Which?")


OTHERS = [
    pytest.param([ToolCall("ask")], [], {}, "interrupted", id="a tool asks"),
    pytest.param([ToolCall("halt")], [], {}, "interrupted", id="a tool halts"),
    pytest.param([ToolCall("bad"), "sorry"], [], {}, "completed", id="a tool fails"),
    pytest.param([ToolCall("bad")] * 9, [], {}, "exceeded_failure_count", id="tools fail again and again"),
    pytest.param([ToolCall("bad")] * 9, [], {"max_runs": 1}, "exceeded_max_runs", id="a limit"),
    pytest.param(["hi"], [Hook(where="before_model", what=pause)], {}, "interrupted", id="a hook asks first"),
    pytest.param(["hi"], [Hook(where="after_model", what=pause)], {}, "interrupted", id="a hook asks"),
    pytest.param(["hi"], [Hook(where="after_model", what=boom)], {}, "middleware_error", id="a hook fails"),
    pytest.param(["hi"], [Hook(where="wrap_model_call", what=boom)], {}, "middleware_error", id="a wrap hook fails"),
    pytest.param(
        ["hi"], [], {"callbacks": {"on_llm_new_message": lambda _: boom()}}, "callback_error", id="a callback"
    ),
]


@pytest.mark.parametrize(("turns", "stack", "options", "ending"), OTHERS)
async def test_nothing_but_a_failed_model_makes_another_be_asked(
    turns: list[Any], stack: list[Middleware], options: dict[str, Any], ending: str
) -> None:
    spare = ScriptedModel(["spare"])
    agent = Agent(
        model=ScriptedModel(turns), fallback_models=[spare], middleware=stack, tools=[ask, halt, bad], **options
    )
    try:
        ended: str = (await agent.execute("go")).status
    except AgentError as error:
        ended = error.type
    assert ended == ending
    assert spare.requests == []


@pytest.mark.parametrize("moment", ["while it answers", "between two attempts"])
async def test_stop_makes_no_other_model_be_asked(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 60.0)
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        if moment == "while it answers":
            await asyncio.sleep(60)
        raise ModelError("slow down", retryable=True, retry_after=60)

    spare = Streams(GOOD)
    task = asyncio.ensure_future(Agent(model=Streams([wait]), fallback_models=[spare]).execute("go"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert spare.asked == 0


# What is asked.


async def no_tool_runs_twice() -> None:
    ran: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        "Pays."
        ran.append(amount)
        return f"paid {amount}"

    first = ScriptedModel([ToolCall("pay", {"amount": 5}, id="c"), BUSY, BUSY, BUSY, "all done"], name="first")
    second = ScriptedModel([ToolCall("pay", {"amount": 7}, id="d")], name="second")
    result = await Agent(model=first, fallback_models=[second], tools=[pay]).execute("pay 5 and 7")
    assert ran == [5, 7]
    assert [m.role for m in result.state.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [m.text for m in second.requests[0].messages] == ["pay 5 and 7", "", ""]
    assert second.requests[0].messages[2].tool_results[0].text == "paid 5"
    # The next model call of the same run begins with the first model again.
    assert (len(first.requests), len(second.requests), result.text) == (5, 1, "all done")


def the_run_is_repeated(patch: pytest.MonkeyPatch) -> None:
    """As the reference has it: a model that failed makes another begin the run."""

    async def first_answer(run: Any, request: ModelRequest, ask: Any) -> Message:
        models = [run.agent.model, *run.agent.fallback_models]
        start = next(place for place, message in enumerate(request.messages) if message.role == "user")
        for model in models:
            for messages in (request.messages, request.messages[: start + 1]):
                try:
                    answer: Message = await ask(run, fallback.Asking(), request.replace(model=model, messages=messages))
                except ModelError:
                    continue
                return answer
        raise BUSY

    patch.setattr(model_call, "first_answer", first_answer)


async def once_a_part_was_seen_it_stays_with_that_model() -> None:
    spare = Streams(GOOD)
    error = await fail(model=Streams([TextDelta("The answer"), BUSY]), fallback_models=[spare])
    assert error.state.messages[-1].text == "The answer"
    assert spare.asked == 0


def nothing_counts_as_seen(patch: pytest.MonkeyPatch) -> None:
    class Blind(fallback.Asking):
        seen = property(lambda self: None, lambda self, value: None)

    patch.setattr(fallback, "Asking", Blind)


async def what_before_fallback_makes_of_a_request_is_repaired() -> None:
    @tool
    async def pay() -> str:
        "Pays."
        return "paid"

    def shorten(request: ModelRequest, model: Any, error: ModelError) -> ModelRequest:
        return request.replace(messages=request.messages[:2])

    first = ScriptedModel([ToolCall("pay", id="c"), BUSY, BUSY, BUSY])
    second = ScriptedModel(["done"])
    agent = Agent(model=first, fallback_models=[second], before_fallback=shorten, tools=[pay])
    assert (await agent.execute("go")).text == "done"
    assert [m.role for m in second.requests[0].messages] == ["user", "assistant", "tool"]


def no_door(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_call, "repair_history", lambda messages: (messages, ()))


async def only_errors_that_another_model_may_not_have_go_on() -> None:
    spare = Streams(GOOD)
    error = await fail(model=Streams([WRONG]), fallback_models=[spare])
    assert (error.type, spare.asked) == ("not_found_error", 0)


def all_errors_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Streams, "retry_on_fallback", lambda self, error: True)


async def the_model_of_a_wrap_hook_is_the_first_of_the_chain() -> None:
    agents, chosen, spare = Streams(GOOD), Streams([BUSY], name="chosen"), Streams(GOOD, name="spare")

    class Chooses(Middleware):
        async def wrap_model_call(self, request: ModelRequest, call_next: Any) -> Message:
            message: Message = await call_next(request.replace(model=chosen))
            return message

    result = await Agent(model=agents, fallback_models=[spare], middleware=[Chooses()]).execute("go")
    assert (result.text, agents.asked, chosen.asked, spare.asked) == ("fine", 0, 3, 1)


def the_agents_model_is_always_first(patch: pytest.MonkeyPatch) -> None:
    real = fallback.first_answer
    patch.setattr(
        model_call, "first_answer", lambda run, request, ask: real(run, request.replace(model=run.agent.model), ask)
    )


RULES: list[tuple[Callable[[], Awaitable[None]], Callable[[pytest.MonkeyPatch], None]]] = [
    (no_tool_runs_twice, the_run_is_repeated),
    (once_a_part_was_seen_it_stays_with_that_model, nothing_counts_as_seen),
    (what_before_fallback_makes_of_a_request_is_repaired, no_door),
    (only_errors_that_another_model_may_not_have_go_on, all_errors_go_on),
    (the_model_of_a_wrap_hook_is_the_first_of_the_chain, the_agents_model_is_always_first),
]


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES])
async def test_the_rule_holds(rule: Callable[[], Awaitable[None]]) -> None:
    await rule()


@pytest.mark.parametrize(("rule", "switch_off"), RULES)
async def test_without_the_code_that_keeps_it_the_rule_fails(
    rule: Callable[[], Awaitable[None]],
    switch_off: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch_off(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await rule()


async def test_a_model_that_a_wrap_hook_chose_among_the_fallbacks_is_not_asked_a_second_time() -> None:
    first, second, third = Streams(GOOD), Streams([BUSY], name="second"), Streams(GOOD, name="third")

    class Chooses(Middleware):
        async def wrap_model_call(self, request: ModelRequest, call_next: Any) -> Message:
            message: Message = await call_next(request.replace(model=second))
            return message

    agent = Agent(model=first, fallback_models=[second, third], middleware=[Chooses()])
    assert (await agent.execute("go")).text == "fine"
    assert (first.asked, second.asked, third.asked) == (0, 3, 1)
    error = await fail(model=first, fallback_models=[second], middleware=[Chooses()])
    assert (error.type, error.message) == ("overloaded", "busy")


async def test_a_wrap_hook_sees_one_call_however_many_models_it_took() -> None:
    seen: list[str] = []

    class Watches(Middleware):
        async def wrap_model_call(self, request: ModelRequest, call_next: Any) -> Message:
            try:
                message: Message = await call_next(request)
            except ModelError as error:
                seen.append(error.type)
                message = await call_next(request)
            seen.append(message.text)
            return message

    first, second = Streams([BUSY]), Streams([BUSY], [BUSY], [BUSY], GOOD)
    result = await Agent(model=first, fallback_models=[second], middleware=[Watches()]).execute("go")
    assert result.text == "fine"
    assert seen == ["all_fallbacks_failed", "fine"]
    assert (first.asked, second.asked) == (6, 4)


async def test_before_fallback_changes_the_request_for_the_next_model() -> None:
    asked: list[tuple[str, str, str]] = []

    def prepare(request: ModelRequest, model: ChatModel, error: ModelError) -> ModelRequest:
        assert request.model is model
        asked.append((request.system, model.name, error.message))
        return request.replace(system=f"{request.system} You are {model.name}.")

    async def slowly(request: ModelRequest, model: Any, error: ModelError) -> ModelRequest:
        await asyncio.sleep(0)
        return prepare(request, model, error)

    for function in (prepare, slowly):
        asked.clear()
        models = [Streams([BUSY], name="a"), Streams([BUSY], name="b"), Streams(GOOD, name="c")]
        agent = Agent(
            model=models[0], fallback_models=models[1:], before_fallback=function, base_system_prompt="Be brief."
        )
        assert (await agent.execute("go")).text == "fine"
        # Each is given what the first was asked, not what was changed for the one before.
        assert asked == [("Be brief.", "b", "busy"), ("Be brief.", "c", "busy")]
        assert [model.requests[0].system for model in models] == [
            "Be brief.",
            "Be brief. You are b.",
            "Be brief. You are c.",
        ]


async def test_before_fallback_may_leave_the_request_as_it_is() -> None:
    first, second = Streams([BUSY]), Streams(GOOD)
    agent = Agent(model=first, fallback_models=[second], before_fallback=lambda request, model, error: None)
    assert (await agent.execute("go")).text == "fine"
    assert second.requests[0].replace(model=first) == first.requests[0]
    nobody = agent.replace(before_fallback=lambda request, model, error: request.replace(model=None))
    assert (await nobody.execute("go")).text == "fine"
    assert second.asked == 2


RETURNED_TEXT = (
    "before_fallback returned a str; it returns the request for the next model, for example "
    "request.replace(system='…'), or None for 'unchanged'"
)
NO_REQUEST: list[tuple[Any, str]] = [
    (lambda *_: boom(), "before_fallback raised an exception: RuntimeError: boom"),
    (lambda *_: "hi", RETURNED_TEXT),
    (lambda request: request, "before_fallback raised an exception: TypeError: "),
]


@pytest.mark.parametrize(("function", "words"), NO_REQUEST, ids=range(len(NO_REQUEST)))
async def test_a_before_fallback_that_gives_no_request_fails_the_run_in_words(function: Any, words: str) -> None:
    spare = Streams(GOOD)
    error = await fail(model=Streams([BUSY]), fallback_models=[spare], before_fallback=function)
    assert error.type == "callback_error"
    assert error.message.startswith(words)
    assert spare.asked == 0


# When none answers.


async def test_when_all_failed_the_error_says_what_each_said_and_is_caused_by_the_last() -> None:
    last = ModelError("slow down", type="rate_limit_exceeded", retryable=True, status_code=429, request_id="req_7")
    ended: list[tuple[str | None, str | None]] = []
    error = await fail(
        model=Streams([BUSY], name="a"),
        fallback_models=[Streams([], name="b"), Streams([last], name="c")],
        callbacks={"on_error": lambda event: ended.append((event.error_type, event.error))},
    )
    assert error.type == "all_fallbacks_failed"
    assert error.message == (
        "all 3 models failed; a: busy (overloaded); "
        "b: the answer of b was empty: the stream ended without a single piece (empty_response); "
        "c: slow down (rate_limit_exceeded)"
    )
    cause = error.__cause__
    assert isinstance(cause, ModelError)
    assert (cause.type, cause.status_code, cause.request_id) == ("all_fallbacks_failed", 429, "req_7")
    assert cause.__cause__ is last
    assert ended == [("all_fallbacks_failed", error.message)]
    assert [m.role for m in error.state.messages] == ["user"]


async def test_with_one_model_only_its_error_is_the_runs() -> None:
    error = await fail(model=Streams([BUSY]))
    assert (error.type, error.message) == ("overloaded", "busy")
    assert error.__cause__ is BUSY


async def test_an_error_of_a_fallback_model_after_which_none_is_asked_is_the_runs() -> None:
    third = Streams(GOOD)
    error = await fail(model=Streams([BUSY]), fallback_models=[Streams([WRONG]), third])
    assert (error.type, error.message, third.asked) == ("not_found_error", "no such model", 0)
    error = await fail(model=Streams([BUSY]), fallback_models=[Streams([WRONG])])
    assert (error.type, error.message) == ("not_found_error", "no such model")


# How it is set, and shown.

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"fallback_models": "claude"}, r"fallback_models=….* takes a list of models, got 'claude': fallback_models=\["),
    ({"fallback_models": Streams(GOOD)}, r"takes a list of models, got Streams\('streams'\)"),
    ({"fallback_models": ["claude"]}, "takes a list of models, got 'claude'"),
    ({"fallback_models": None}, "takes a list of models, got None"),
    ({"before_fallback": "x"}, r"before_fallback=….* takes a function \(request, model, error\) -> request, got 'x'"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_model_or_no_function_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Agent(model=Streams(GOOD), **options)


def test_an_agent_shows_its_fallback_models() -> None:
    models = [Streams(GOOD, name=name) for name in ("a", "b", "c")]
    agent = Agent(model=models[0], fallback_models=models[1:], agent_id="me")
    assert repr(agent) == (
        "Agent('me', model=Streams('a'), fallback_models=[Streams('b'), Streams('c')], middleware=[], tools=[])"
    )
    assert "models: a, and when it fails b, and when it fails c" in agent.explain().splitlines()
    assert agent.replace(max_runs=3).fallback_models == tuple(models[1:])
    alone = Agent(model=models[0])
    assert "fallback" not in repr(alone)
    assert "models:" not in alone.explain()


async def test_pieces_of_the_answer_come_from_the_model_that_gave_it() -> None:
    turn = [TextDelta("fi"), TextDelta("ne"), StopDelta()]
    pieces: list[tuple[int, str]] = []

    def note(event: ModelDelta) -> None:
        pieces.append((event.attempt, event.text))

    agent = Agent(model=Streams([BUSY]), fallback_models=[Streams(turn)], callbacks={"on_llm_new_delta": note})
    await agent.execute("go")
    assert pieces == [(4, "fi"), (4, "ne"), (4, "")]
