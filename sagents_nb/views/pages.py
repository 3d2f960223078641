"""What an agent, a result and a session look like in a notebook, and the report of a run as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from sagents_nb.events import Event, ToolEnded
from sagents_nb.server.display import DisplayMessage, rows_of
from sagents_nb.server.snapshot import SessionSnapshot
from sagents_nb.state import State
from sagents_nb.views._render import alone, render, stylesheet
from sagents_nb.views._types import AgentLike, ResultLike
from sagents_nb.views.activity import Activity
from sagents_nb.views.chat import STATUS_WORDS, chat, status_html
from sagents_nb.views.format import what_is
from sagents_nb.views.sandwich import sandwich
from sagents_nb.views.state import pending_words, state_fragment
from sagents_nb.views.trace import trace_fragment

REPORT_ITEMS = 2_000
"""Items of a transcript that a report draws."""


def agent_title(agent: Any) -> str:
    """What to call an agent: its name, else its class. Never its id, which is another one in every process."""
    return str(getattr(agent, "name", None) or type(agent).__name__)


def model_title(agent: Any) -> str:
    """How the model of an agent is named in pictures: what it calls itself, else its class."""
    model = getattr(agent, "model", None)
    if model is None:
        return ""
    name = getattr(model, "name", None)
    return name if isinstance(name, str) and name else type(model).__name__


def base_prompt(agent: AgentLike) -> str:
    """The agent's own system prompt as text."""
    prompt = agent.base_system_prompt
    return prompt if isinstance(prompt, str) else "" if prompt is None else str(prompt)


def agent_picture(agent: AgentLike, activity: Activity, *, live: bool = False) -> Markup:
    """The sandwich of an agent as a fragment."""
    return sandwich(agent.stack, activity, live=live, model=model_title(agent), tools=agent.tools)


def agent_html(agent: AgentLike) -> str:
    """An agent that stands alone: model, prompt, tools, its sandwich.

    Of scope and tool_context it shows type and size, never a value.
    """
    fragment = render(
        "agent",
        title=agent_title(agent),
        model=repr(agent.model),
        prompt=base_prompt(agent),
        tools=list(agent.tools),
        scope=what_is(agent.scope),
        tool_context=what_is(agent.tool_context),
        picture=agent_picture(agent, Activity()),
    )
    return alone(fragment, "sandwich", "chat", "agent")


def state_rows(state: State, events: Sequence[Event] = ()) -> list[DisplayMessage]:
    """The transcript of a State that no session kept: its messages as rows, with what the events know of its calls."""
    ended = {event.call.id: event for event in events if isinstance(event, ToolEnded)}
    answered = {result.tool_call_id: result for message in state.messages for result in message.tool_results}
    rows: list[DisplayMessage] = []
    for message in state.messages:
        for row in rows_of(message, conversation_id="", sequence=len(rows) + 1):
            # The ids of rows are random; a view of the same State should be the same text.
            changes: dict[str, Any] = {"id": f"{row.sequence}"}
            if row.content_type == "tool_call":
                result = answered.get(row.tool_call_id or "")
                end = ended.get(row.tool_call_id or "")
                if result is not None:
                    done = "interrupted" if result.is_interrupt else "failed" if result.is_error else "completed"
                    changes["status"] = done
                if end is not None:
                    changes["metadata"] = {"duration": end.duration, "output": end.output}
            rows.append(row.replace(**changes))
    return rows


def result_html(result: ResultLike) -> str:
    """A result that stands alone: status, answer, and the picture, trace and state behind it."""
    agent = result.agent
    activity = Activity.of(result.events, str(getattr(agent, "agent_id", "") or ""))
    fragment = render(
        "result",
        status=status_html(result.status),
        text=result.text,
        pending=pending_words(result.state),
        picture=agent_picture(agent, activity) if agent is not None else "",
        trace=trace_fragment(tuple(result.events)),
        state=state_fragment(result.state),
    )
    return alone(fragment, "sandwich", "chat", "trace", "state", "agent")


def session_html(snapshot: SessionSnapshot, agent: AgentLike) -> str:
    """A session at one moment that stands alone: transcript and sandwich."""
    fragment = render(
        "session",
        chat=chat(
            snapshot.display_messages,
            status=snapshot.status,
            streaming_text=snapshot.streaming_text,
            streaming_thinking=snapshot.streaming_thinking,
            queue=snapshot.queue,
            error=snapshot.error,
            pending=pending_words(snapshot.state),
            title=agent_title(agent),
        ),
        picture=agent_picture(agent, Activity.of(snapshot.events, snapshot.agent_id)),
    )
    return alone(fragment, "sandwich", "chat", "agent")


def report_html(result: ResultLike) -> str:
    """A run as one page for a browser: sandwich, trace, transcript, final state. No script, nothing from elsewhere."""
    agent = result.agent
    events = tuple(result.events)
    activity = Activity.of(events, str(getattr(agent, "agent_id", "") or ""))
    page = render(
        "report",
        title=agent_title(agent) if agent is not None else "Agent",
        css=Markup(stylesheet()),  # noqa: S704 - a file of this package
        status=status_html(result.status),
        status_word=STATUS_WORDS.get(result.status, result.status),
        pending=pending_words(result.state),
        model=repr(agent.model) if agent is not None else "",
        prompt=base_prompt(agent) if agent is not None else "",
        scope=what_is(getattr(agent, "scope", None)),
        tool_context=what_is(getattr(agent, "tool_context", None)),
        picture=agent_picture(agent, activity) if agent is not None else "",
        trace=trace_fragment(events),
        chat=chat(state_rows(result.state, events), status=result.status, limit=REPORT_ITEMS),
        state=state_fragment(result.state),
    )
    return str(page)
