"""A State as HTML: messages, tasks, metadata, interrupt."""

from __future__ import annotations

from markupsafe import Markup

from sagents_nb.state import State
from sagents_nb.views._render import alone, render
from sagents_nb.views.format import plural

SHOWN_MESSAGES = 60
"""Latest messages that are listed; the others are counted."""


def state_fragment(state: State) -> Markup:
    """The State as a fragment: no style, not wrapped."""
    return render(
        "state",
        state=state,
        messages=list(enumerate(state.messages))[-SHOWN_MESSAGES:],
        hidden=max(0, len(state.messages) - SHOWN_MESSAGES),
    )


def pending_words(state: State) -> str:
    """What a pending interrupt asks for, in a sentence; empty when there is none."""
    interrupt = state.interrupt
    if interrupt is None:
        return ""
    if interrupt.message:
        return interrupt.message
    if interrupt.members:
        return f"{plural(len(interrupt.members), 'answer')}: {', '.join(each.kind for each in interrupt.members)}"
    return interrupt.kind


def state_html(state: State) -> str:
    """A State that stands alone."""
    return alone(state_fragment(state), "chat", "state")
