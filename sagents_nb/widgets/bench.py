"""The views that people make."""

from __future__ import annotations

from typing import Any

from sagents_nb.widgets.panes import ChatPane, ContextPane, SandwichPane, StatePane, TracePane
from sagents_nb.widgets.view import View


def _session_of(target: Any) -> Any:
    """An agent is given a session of its own; everything else is taken as it is."""
    if hasattr(target, "session") and callable(target.session) and hasattr(target, "stack"):
        return target.session()
    return target


class ChatView(View):
    """A conversation: what was said and done, and a field to write into.

    Args:
        target: a session, or an agent, which is given one; a result shows its transcript.
    """

    panes = (ChatPane,)

    def __init__(self, target: Any) -> None:
        super().__init__(_session_of(target))


class SandwichView(View):
    """The middleware around the model: who acts when, how long, and what it changed; lit while it runs.

    Args:
        target: a session to watch, or an agent, a stack or a result to look at.
    """

    panes = (SandwichPane,)


class StateView(View):
    """The State of a session or a result: metadata, tasks, and the messages as the model sees them."""

    panes = (StatePane,)


class TraceView(View):
    """What happened in a session or a result, event by event."""

    panes = (TracePane,)


class ContextView(View):
    """The three channels of a session or an agent: scope, tool_context, metadata.

    The values of the first two are shown live only; its static HTML has their types and sizes.
    """

    panes = (ContextPane,)


class Workbench(View):
    """All of it: the conversation beside the sandwich where there is room, else in tabs; state, trace, context.

    Args:
        target: a session, or an agent, which is given one; a result can be looked through.
    """

    panes = (ChatPane, SandwichPane, StatePane, TracePane, ContextPane)

    def __init__(self, target: Any) -> None:
        super().__init__(_session_of(target))
