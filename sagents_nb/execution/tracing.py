"""OpenTelemetry: a run as spans, made from its events.

Spans are made when a tracer provider is configured (``opentelemetry.trace.set_tracer_provider``, or
``opentelemetry-instrument``); without one nothing is imported and nothing is done. Names and attributes are those of
the semantic conventions for generative AI: ``invoke_agent`` for a leg, in it ``chat`` for every request to a model and
``execute_tool`` for every tool call. What people, models and tools said is never in them.

A span is started and ended explicitly and is never made the current one: a context that is attached and has to be
detached after somebody else's ``await`` or ``yield`` is detached in the wrong order, or in another context, as soon as
that somebody stops early. So what a tool itself traces stands beside our spans, under the span that was current when
the run began.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sagents_nb import __version__
from sagents_nb.events import (
    Event,
    ModelEnded,
    ModelFailed,
    ModelStarted,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
)
from sagents_nb.frozen import thaw
from sagents_nb.messages import Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from sagents_nb.execution.run import RunnableAgent

logger = logging.getLogger("sagents_nb")


def trace_of(
    agent: RunnableAgent, *, conversation_id: str | int | None, attributes: Mapping[str, Any]
) -> Callable[[Event], None] | None:
    """What is to be called with every event of a leg to make spans of them; None when nobody wants any.

    Args:
        agent: who runs.
        conversation_id: the conversation, if it has an id.
        attributes: the caller's, for every span.
    """
    provider = _provider()
    if provider is None:
        return None
    return _Trace(provider, agent, None if conversation_id is None else str(conversation_id), attributes)


def _provider() -> TracerProvider | None:
    # Whoever configured one has imported this; and who did not shall not pay for it (some 30 ms).
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider: TracerProvider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider


def inherited_attributes(
    parent: Mapping[str, Any], own: Mapping[str, Any], *, agent_id: str, parent_agent_id: str
) -> dict[str, Any]:
    """Attributes of the spans of an agent that another one started.

    Args:
        parent: the other one's.
        own: its own, which win over them.
        agent_id: its id. This and the next win over whatever was supplied under their names.
        parent_agent_id: the other one's id.
    """
    return {**parent, **own, "gen_ai.agent.id": agent_id, "sagents.parent_agent_id": parent_agent_id}


def span_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as a span can have them.

    Texts, numbers, booleans and lists of one kind of these stay as they are, None is left out, all else becomes JSON.
    """
    return {name: _native(value) for name, value in attributes.items() if value is not None}


def _native(value: Any) -> Any:
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        kinds = {type(item) for item in value}
        if len(kinds) <= 1 and kinds <= {str, bool, int, float}:
            return list(value)
    try:
        return json.dumps(thaw(value), default=str, ensure_ascii=False)
    except (TypeError, ValueError):  # keys that JSON does not know, or a dict that holds itself
        return repr(value)


class _Trace:
    """The spans of one leg. Called on the loop of the run only."""

    _tracer: Tracer
    _common: dict[str, Any]

    def __init__(
        self, provider: TracerProvider, agent: RunnableAgent, conversation_id: str | None, attributes: Mapping[str, Any]
    ) -> None:
        self._provider = provider
        self._agent = agent
        self._conversation_id = conversation_id
        self._attributes = attributes
        self._leg: Span | None = None
        # Several may be open at once: tools run beside each other, and a wrap hook may ask two models.
        self._open: dict[tuple[object, ...], list[Span]] = {}
        self._failing: dict[tuple[object, ...], list[tuple[Span, ModelEnded]]] = {}
        self._usage: Usage | None = None
        self._broken = False

    def __call__(self, event: Event) -> None:
        step = _STEPS.get(type(event))
        if step is None or self._broken:
            return
        try:
            step(self, event)
        except Exception:
            # A processor or exporter of the application; the run is not to fail for it.
            self._broken = True
            logger.exception("tracing of run %s was given up", event.run_id)

    def _start(self, name: str, kind: str, event: Event, attributes: Mapping[str, Any]) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context

        return self._tracer.start_span(
            name,
            context=None if self._leg is None else set_span_in_context(self._leg),
            kind=SpanKind[kind],
            attributes={**self._common, **span_attributes(attributes)},
            start_time=_nanoseconds(event),
        )

    def _end(self, span: Span, event: Event, error_type: str | None = None, description: str | None = None) -> None:
        from opentelemetry.trace import Status, StatusCode

        if error_type is not None:
            span.set_attribute("error.type", error_type)
            span.set_status(Status(StatusCode.ERROR, description))
        span.end(_nanoseconds(event))

    def _close(self, key: tuple[object, ...]) -> Span | None:
        spans = self._open.get(key)
        return spans.pop(0) if spans else None

    def _run_started(self, event: RunStarted) -> None:
        agent, model = self._agent, self._agent.model
        self._tracer = self._provider.get_tracer("sagents_nb", __version__)
        self._common = span_attributes(
            {
                **self._attributes,
                "gen_ai.agent.id": agent.agent_id,
                "gen_ai.agent.name": agent.name,
                "gen_ai.conversation.id": self._conversation_id,
            }
        )
        self._leg = self._start(
            f"invoke_agent {agent.name}" if agent.name else "invoke_agent",
            "INTERNAL",
            event,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.provider.name": model.provider,
                "gen_ai.request.model": model.name,
                "sagents.run.id": event.run_id,
                "sagents.run.resumed": event.resumed,
            },
        )

    def _run_ended(self, event: RunEnded) -> None:
        for failing in self._failing.values():
            for span, ended in failing:
                self._end(span, ended, ended.message.status)
        for spans in self._open.values():
            for span in spans:
                self._end(span, event)
        if self._leg is not None:
            self._leg.set_attributes({**_usage(self._usage), "sagents.run.status": event.status})
            failed = event.status == "error"
            self._end(self._leg, event, (event.error_type or "_OTHER") if failed else None, event.error)

    def _model_started(self, event: ModelStarted) -> None:
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider_of(event.model),
            "gen_ai.request.model": event.model,
            "gen_ai.request.stream": True,
            "sagents.model.attempt": event.attempt,
        }
        span = self._start(f"chat {event.model}", "CLIENT", event, attributes)
        self._open.setdefault((event.model, event.attempt), []).append(span)

    def _provider_of(self, model: str) -> str | None:
        """Of the agent's model; a wrap hook may have asked another one, of which an event tells the name only."""
        return self._agent.model.provider if model == self._agent.model.name else None

    def _model_ended(self, event: ModelEnded) -> None:
        key = (event.model, event.attempt)
        span = self._close(key)
        if span is None:
            return
        message = event.message
        span.set_attributes(_usage(message.usage))
        if message.usage is not None:
            self._usage = message.usage if self._usage is None else self._usage + message.usage
        if message.status == "stream_error":
            self._failing.setdefault(key, []).append((span, event))  # why is told by the event that follows
            return
        reason = "tool_calls" if message.tool_calls and message.status == "complete" else _FINISHED[message.status]
        span.set_attribute("gen_ai.response.finish_reasons", [reason])
        self._end(span, event)

    def _model_failed(self, event: ModelFailed) -> None:
        failing = self._failing.get((event.model, event.attempt))
        if failing:
            span, ended = failing.pop(0)
            self._end(span, ended, event.error_type, event.error)

    def _tool_started(self, event: ToolStarted) -> None:
        tool = self._agent.all_tools.get(event.call.name)
        # The name of a tool that is not there is something the model made up: of any length, and another every time.
        name = tool.name if tool else "_OTHER"
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": event.call.id,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.description": tool.description if tool else None,
        }
        span = self._start(f"execute_tool {name}", "INTERNAL", event, attributes)
        self._open.setdefault((event.call.id,), []).append(span)

    def _tool_ended(self, event: ToolEnded) -> None:
        span = self._close((event.call.id,))
        if span is None:
            return
        # What the tool said of its failure is for the model; it may hold anything.
        error = "cancelled" if event.cancelled else "tool_error" if event.result.is_error else None
        span.set_attribute("sagents.tool.interrupt", event.result.is_interrupt)
        self._end(span, event, error)


_STEPS: dict[type[Event], Callable[[_Trace, Any], None]] = {
    RunStarted: _Trace._run_started,
    RunEnded: _Trace._run_ended,
    ModelStarted: _Trace._model_started,
    ModelEnded: _Trace._model_ended,
    ModelFailed: _Trace._model_failed,
    ToolStarted: _Trace._tool_started,
    ToolEnded: _Trace._tool_ended,
}

_FINISHED = {"complete": "stop", "length": "length", "refused": "content_filter", "cancelled": "cancelled"}
"""Status of a message as a reason why the model finished."""


def _nanoseconds(event: Event) -> int:
    return int(event.at * 1e9)


def _usage(usage: Usage | None) -> dict[str, int]:
    if usage is None:
        return {}
    # By the conventions input tokens are all of them; ours are those that no cache had to do with.
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
    }
