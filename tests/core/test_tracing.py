"""A run as OpenTelemetry spans: their names, parents, attributes and ends; and none of it without a provider."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from opentelemetry import context as otel_context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from sagents_nb import (
    Agent,
    AgentError,
    ConfigurationError,
    Interrupt,
    Message,
    Middleware,
    ModelError,
    Pause,
    ScriptedModel,
    State,
    ToolCall,
    Usage,
    tool,
)
from sagents_nb.execution import tracing
from sagents_nb.execution.tracing import inherited_attributes, span_attributes
from sagents_nb.server.session import running_sessions

SECRET = "the user's secret"


@tool
def look(what: str) -> str:
    "Looks at something."
    return f"{what}: {SECRET}"


@tool
async def fails(what: str) -> str:
    "Fails."
    raise ValueError(f"{what}: {SECRET}")


class Spans(SpanProcessor):
    """The spans that ended, and those that were started."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.started = 0
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.started += 1

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    found = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: found.provider)  # the real one can be set only once
    yield found
    for session in running_sessions():
        session.stop()
    found.provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def agent(*turns: Any, **options: Any) -> Agent:
    options = {"tools": [look, fails], "name": "clerk", "agent_id": "a1"} | options
    return Agent(model=ScriptedModel(list(turns)), **options)


async def test_a_run_is_a_span_with_a_span_for_every_model_call_and_every_tool_call(spans: Spans) -> None:
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=3, cache_write_tokens=2)
    calls = (ToolCall("look", {"what": "x"}, id="c1"), ToolCall("fails", {"what": "y"}, id="c2"))
    first = Message("assistant", tool_calls=calls, usage=usage)
    last = Message("assistant", "Done.", usage=Usage(input_tokens=20, output_tokens=1))
    state = State.from_text("go").model_copy(update={"conversation_id": "conv"})
    result = await agent(first, last).execute(state)

    common = {"gen_ai.agent.id": "a1", "gen_ai.agent.name": "clerk", "gen_ai.conversation.id": "conv"}
    leg = spans.one("invoke_agent clerk")
    assert (leg.kind, leg.status.status_code, leg.parent) == (SpanKind.INTERNAL, StatusCode.UNSET, None)
    assert attributes(leg) == common | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 35,
        "gen_ai.usage.output_tokens": 6,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "sagents.run.id": result.events[0].run_id,
        "sagents.run.resumed": False,
        "sagents.run.status": "completed",
    }
    asked = spans.named("chat scripted")
    chat = common | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.stream": True,
        "sagents.model.attempt": 1,
    }
    assert [(span.kind, span.status.status_code) for span in asked] == [(SpanKind.CLIENT, StatusCode.UNSET)] * 2
    assert attributes(asked[0]) == chat | {
        "gen_ai.usage.input_tokens": 15,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.response.finish_reasons": ("tool_calls",),
    }
    assert attributes(asked[1])["gen_ai.response.finish_reasons"] == ("stop",)
    good, bad = spans.one("execute_tool look"), spans.one("execute_tool fails")
    done = common | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Looks at something.",
        "sagents.tool.interrupt": False,
    }
    assert (good.kind, good.status.status_code, attributes(good)) == (SpanKind.INTERNAL, StatusCode.UNSET, done)
    assert (bad.status.status_code, bad.status.description) == (StatusCode.ERROR, None)
    assert attributes(bad)["error.type"] == "tool_error"
    for span in (*asked, good, bad):
        assert span.parent is not None
        assert span.parent.span_id == leg.context.span_id
        assert leg.start_time <= span.start_time <= span.end_time <= leg.end_time  # type: ignore[operator]


async def test_what_was_said_is_in_no_span(spans: Spans) -> None:
    class Breaks(Middleware):
        def after_agent(self, state: State, run: Any) -> None:
            run.publish("note", {"text": SECRET})

    turns = (
        ToolCall("fails", {"what": SECRET}),
        ToolCall(SECRET, {"what": SECRET}),  # a name that the model made up is something it said
        f"It is {SECRET}",
    )
    scoped = agent(*turns, scope=SECRET, tool_context={"key": SECRET}, middleware=[Breaks()])
    await scoped.execute(f"Tell {SECRET}")
    assert len(spans.ended) == 6
    assert SECRET not in "".join(span.to_json() for span in spans.ended)
    assert spans.one("execute_tool _OTHER").status.status_code == StatusCode.ERROR


class Stops(Middleware):
    where: str

    def before_model(self, state: State, run: Any) -> Any:
        if self.where == "error":
            raise ValueError("the hook is broken")
        return Interrupt("halt", "Stop.") if self.where == "interrupt" else None


async def until_cancelled(run: Awaitable[Any]) -> None:
    task = asyncio.ensure_future(run)
    await asyncio.sleep(0.05)
    task.cancel()
    await task


def waits(where: str) -> Any:
    @tool(name="look")
    async def look_long(what: str) -> str:
        "Looks for ever."
        await asyncio.sleep(60)
        return what

    class Waits(Middleware):
        async def wrap_model_call(self, request: Any, call_next: Any) -> Any:
            if where == "hook":
                await asyncio.sleep(60)
            return await call_next(request)

    turn: Any = "x" * 5000 if where == "model" else ToolCall("look", {"what": "x"})
    model = ScriptedModel([turn, "done"], delay=0.001 if where == "model" else 0.0)
    return Agent(model=model, tools=[look_long], middleware=[Waits()], name="clerk")


ENDS: list[tuple[str, Callable[[], Any], str | None, dict[str, str | None]]] = [
    # what happened; the run; error type of the leg; error types of the other spans
    ("completed", lambda: agent("hi").execute("go"), None, {"chat scripted": None}),
    ("interrupted", lambda: agent("hi", middleware=[Stops(where="interrupt")]).execute("go"), None, {}),
    ("error", lambda: agent("hi", middleware=[Stops(where="error")]).execute("go"), "middleware_error", {}),
    (
        "error",
        lambda: agent(ModelError("no credit", type="billing")).execute("go"),
        "billing",
        {"chat scripted": "billing"},
    ),
    (
        "error",
        lambda: agent(ToolCall("look", {"what": "x"}), "hi", max_runs=1).execute("go"),
        "exceeded_max_runs",
        {"chat scripted": None, "execute_tool look": None},
    ),
    (
        "error",
        lambda: agent("hi", callbacks={"on_llm_new_delta": lambda event: 1 / 0}).execute("go"),
        "callback_error",
        {"chat scripted": "stream_error"},
    ),
    ("cancelled", lambda: until_cancelled(waits("model").execute("go")), None, {"chat scripted": None}),
    ("cancelled", lambda: until_cancelled(waits("hook").execute("go")), None, {}),
    (
        "cancelled",
        lambda: until_cancelled(waits("tool").execute("go")),
        None,
        {"chat scripted": None, "execute_tool look": "cancelled"},
    ),
]


@pytest.mark.parametrize(("status", "run", "error", "others"), ENDS, ids=range(len(ENDS)))
async def test_however_a_run_ends_every_span_ends_and_says_how(
    spans: Spans, status: str, run: Callable[[], Any], error: str | None, others: dict[str, str | None]
) -> None:
    try:
        await run()
    except (AgentError, asyncio.CancelledError):
        assert status in ("error", "cancelled")
    leg = spans.one("invoke_agent clerk")
    assert (attributes(leg)["sagents.run.status"], attributes(leg).get("error.type")) == (status, error)
    assert leg.status.status_code == (StatusCode.ERROR if error else StatusCode.UNSET)
    assert {span.name: attributes(span).get("error.type") for span in spans.ended if span is not leg} == others
    assert spans.started == len(spans.ended)


async def test_every_try_of_a_request_is_a_span_and_only_the_failed_one_is_an_error(spans: Spans) -> None:
    busy = ModelError("busy", type="overloaded", retryable=True, retry_after=0.001)
    await agent(busy, "hi").execute("go")
    first, second = spans.named("chat scripted")
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "busy")
    assert (attributes(first)["error.type"], attributes(first)["sagents.model.attempt"]) == ("overloaded", 1)
    assert (second.status.status_code, attributes(second)["sagents.model.attempt"]) == (StatusCode.UNSET, 2)
    assert spans.one("invoke_agent clerk").status.status_code == StatusCode.UNSET


async def test_calls_of_one_id_beside_each_other_and_two_models_at_once_each_have_their_span(spans: Spans) -> None:
    class Races(Middleware):
        async def wrap_model_call(self, request: Any, call_next: Any) -> Any:
            answers = await asyncio.gather(call_next(request), call_next(request))
            return answers[0]

    calls = [ToolCall("look", {"what": "x"}, id="same"), ToolCall("look", {"what": "y"}, id="same")]
    await agent(calls, calls, "hi", "hi", middleware=[Races()]).execute("go")
    assert len(spans.named("chat scripted")) == 4
    assert len(spans.named("execute_tool look")) == 2
    assert spans.started == len(spans.ended)


async def test_agents_that_run_at_once_are_traces_of_their_own(spans: Spans) -> None:
    turn = ToolCall("look", {"what": "x"})
    agents = [agent(turn, "hi", name=f"n{i}", agent_id=f"id{i}") for i in range(3)]
    await asyncio.gather(*(each.execute("go") for each in agents))
    for number in range(3):
        leg = spans.one(f"invoke_agent n{number}")
        assert leg.context is not None
        mine = [span for span in spans.ended if span.context and span.context.trace_id == leg.context.trace_id]
        assert len(mine) == 4
        assert {attributes(span)["gen_ai.agent.id"] for span in mine} == {f"id{number}"}


async def test_a_run_of_a_session_belongs_to_the_span_in_which_it_was_asked_for(spans: Spans) -> None:
    session = agent("hi").session()
    with spans.provider.get_tracer("app").start_as_current_span("request") as request:
        session.send("go")
    assert await session.idle(20) == "idle"
    leg = spans.one("invoke_agent clerk")
    assert leg.parent is not None
    assert leg.parent.span_id == request.get_span_context().span_id
    assert attributes(leg)["gen_ai.conversation.id"] == session.conversation_id


async def test_a_reader_that_stops_in_the_middle_of_a_stream_leaves_no_span_open_and_no_context_behind(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    mine = otel_context.get_current()
    async with aclosing(aiter(agent("x" * 5000).stream("go"))) as events:
        async for event in events:
            assert otel_context.get_current() == mine
            if event.type == "model_delta":
                break
    assert otel_context.get_current() == mine
    assert attributes(spans.one("invoke_agent clerk"))["sagents.run.status"] == "cancelled"
    assert spans.started == len(spans.ended) == 2
    assert caplog.records == []  # OpenTelemetry logs a context that is detached where it was not attached


async def test_every_leg_of_a_run_is_a_span_of_its_own(spans: Spans) -> None:
    class Pauses(Middleware):
        def before_model(self, state: State, run: Any) -> Pause | None:
            return None if run.resumed else Pause("later")

    paused = await agent("hi", middleware=[Pauses()]).execute("go")
    await agent("hi", middleware=[Pauses()]).resume(paused.state)
    first, second = spans.named("invoke_agent clerk")
    told = [(attributes(leg)["sagents.run.status"], attributes(leg)["sagents.run.resumed"]) for leg in (first, second)]
    assert told == [("paused", False), ("completed", True)]


async def user_code_runs_in_the_context_it_would_run_in_without_tracing() -> None:
    seen: list[Any] = []

    def look_around() -> None:
        seen.append(otel_context.get_current())

    @tool
    async def in_task() -> str:
        "Looks."
        look_around()
        return "ok"

    @tool
    def in_thread() -> str:
        "Looks."
        look_around()
        return "ok"

    class Looks(Middleware):
        def before_model(self, state: State, run: Any) -> None:
            look_around()

        async def wrap_tool_call(self, call: Any, context: Any, call_next: Any) -> Any:
            look_around()
            return await call_next(call)

    def answer(request: Any) -> Any:
        look_around()
        return [ToolCall("in_task"), ToolCall("in_thread")] if len(request.messages) == 1 else "done"

    mine = otel_context.set_value("mine", 1, otel_context.Context())
    token = otel_context.attach(mine)
    try:
        model = ScriptedModel([answer], repeat=True)
        await Agent(model=model, tools=[in_task, in_thread], middleware=[Looks()]).execute("go")
        assert len(seen) == 8
        assert all(context == mine for context in seen)
        assert otel_context.get_current() == mine
    finally:
        otel_context.detach(token)


async def test_user_code_runs_in_the_context_it_would_run_in_without_tracing(spans: Spans) -> None:
    await user_code_runs_in_the_context_it_would_run_in_without_tracing()
    assert len(spans.ended) == 5


async def test_were_the_spans_made_current_it_would_not(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    start = tracing._Trace._start

    def current(self: Any, *arguments: Any) -> Any:
        span = start(self, *arguments)
        otel_context.attach(trace.set_span_in_context(span))
        return span

    monkeypatch.setattr(tracing._Trace, "_start", current)
    with pytest.raises(AssertionError):
        await user_code_runs_in_the_context_it_would_run_in_without_tracing()


async def test_a_processor_that_fails_does_not_fail_the_run(
    spans: Spans, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_start(span: Any, parent_context: Any = None) -> None:
        raise OSError("no collector")

    monkeypatch.setattr(spans, "on_start", on_start)
    result = await agent("hi").execute("go")
    assert result.status == "completed"
    [record] = [record for record in caplog.records if record.name == "sagents_nb"]
    assert record.getMessage() == f"tracing of run {result.events[0].run_id} was given up"
    assert "no collector" in str(record.exc_info)


ATTRIBUTES: list[tuple[Any, Any]] = [
    ("text", "text"),
    (3, 3),
    (0.5, 0.5),
    (True, True),
    (["a", "b"], ["a", "b"]),
    ((1, 2), [1, 2]),
    ([], []),
    ([1, True], "[1, true]"),
    ([1, "a"], '[1, "a"]'),
    ([None], "[null]"),
    ({"a": {"b": 1}}, '{"a": {"b": 1}}'),
    (State.from_text("x").put_metadata("k", [1]).metadata, '{"k": [1]}'),
    (complex(1, 2), '"(1+2j)"'),
    ({(1, 2): 3}, "{(1, 2): 3}"),
]


@pytest.mark.parametrize(("value", "expected"), ATTRIBUTES, ids=range(len(ATTRIBUTES)))
def test_what_becomes_of_an_attribute(value: Any, expected: Any) -> None:
    assert span_attributes({"k": value, "none": None}) == {"k": expected}


async def test_attributes_of_the_caller_are_on_every_span_and_never_win_over_what_is_known(spans: Spans) -> None:
    given = {"user": "1", "stage": "init", "nothing": None, "gen_ai.agent.id": "forged", "gen_ai.tool.name": "forged"}
    traced = agent(ToolCall("look", {"what": "x"}), "hi", otel_attributes=given).put_otel_attributes({"stage": "ready"})
    await traced.execute("go")
    assert len(spans.ended) == 4
    for span in spans.ended:
        found = attributes(span)
        assert (found["user"], found["stage"], found["gen_ai.agent.id"]) == ("1", "ready", "a1")
        assert "nothing" not in found
    assert attributes(spans.one("execute_tool look"))["gen_ai.tool.name"] == "look"


def test_a_child_has_its_parents_attributes_under_its_own_and_ids_that_cannot_be_forged() -> None:
    parent = {"role": "parent", "org": 2, "gen_ai.agent.id": "the parent"}
    own = {"role": "sub", "gen_ai.agent.id": "forged", "sagents.parent_agent_id": "forged"}
    assert inherited_attributes(parent, own, agent_id="child", parent_agent_id="p1") == {
        "role": "sub",
        "org": 2,
        "gen_ai.agent.id": "child",
        "sagents.parent_agent_id": "p1",
    }


PROGRAM = """
import json, sys
{before}
from sagents_nb import Agent, ScriptedModel, ToolCall, tool

@tool
def look() -> str:
    "Looks."
    return "ok"

agent = Agent(model=ScriptedModel([ToolCall("look"), "hi"]), tools=[look], otel_attributes={{"k": [1]}})
result = agent.run("go")
print(json.dumps([result.text, sorted(name for name in sys.modules if name.startswith("opentelemetry"))]))
"""


def run_in_a_process(before: str = "") -> tuple[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=True, timeout=60
    )
    text, modules = json.loads(done.stdout.splitlines()[-1])
    return text, modules


def test_nothing_is_imported_where_nobody_configured_it() -> None:
    assert run_in_a_process() == ("hi", [])


NO_PROVIDER = "from opentelemetry import trace"
PROVIDER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)
"""


def test_spans_are_made_as_soon_as_the_application_sets_a_provider() -> None:
    program = PROGRAM.format(before=PROVIDER)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    names = [
        line.partition(": ")[2].strip(' ",') for line in done.stdout.splitlines() if line.startswith('    "name": ')
    ]
    assert names == ["chat scripted", "execute_tool look", "chat scripted", "invoke_agent"]


def test_the_api_alone_makes_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "opentelemetry.sdk" not in run_in_a_process(NO_PROVIDER)[1]
    for provider in (trace.ProxyTracerProvider(), trace.NoOpTracerProvider()):
        monkeypatch.setattr(trace, "get_tracer_provider", lambda provider=provider: provider)
        assert tracing.trace_of(agent("hi"), conversation_id=None, attributes={}) is None


def test_attributes_that_are_no_dict_are_refused_when_the_agent_is_made() -> None:
    with pytest.raises(
        ConfigurationError, match=r"Agent\(otel_attributes=…\) takes a dict with string keys, got a list"
    ):
        agent("hi", otel_attributes=["k"])
