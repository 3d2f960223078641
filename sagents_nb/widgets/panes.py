"""The parts of a view: how each is drawn whole, and what of it is sent when something changed."""

from __future__ import annotations

from typing import Any, ClassVar

from markupsafe import Markup
from typing_extensions import override

from sagents_nb.views import chat as chat_view
from sagents_nb.views._render import call, render
from sagents_nb.views.format import what_is
from sagents_nb.views.pages import model_title
from sagents_nb.views.sandwich import cell_body, cell_summary, sandwich, tool_rows
from sagents_nb.views.state import pending_words, state_fragment
from sagents_nb.views.trace import SHOWN_EVENTS, line_of, lines_of, row_html, trace_fragment
from sagents_nb.widgets.mirror import Dirty, Mirror
from sagents_nb.widgets.target import Target

MOST_ITEMS = 1_000
"""Items of a transcript that a view draws anew at once, however many it has shown meanwhile."""

Op = dict[str, Any]
"""One change to the page; `sagents.js` lists the kinds."""


def put(key: str, html: str, *, into: str | None = None, first: bool = False) -> Op:
    """Make the element with this key equal to the HTML, or add it to another one."""
    op: Op = {"op": "put", "key": key, "html": str(html)}
    if into is not None:
        op["into"] = into
    if first:
        op["first"] = True
    return op


class Pane:
    """One part of a view.

    Attributes:
        name: names it in messages and in the page.
        title: on its tab.
        styles: sections of the style sheet that its static form needs.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    styles: ClassVar[tuple[str, ...]]

    def __init__(self, target: Target) -> None:
        self.target = target

    def html(self, mirror: Mirror, *, live: bool) -> Markup:
        """The whole pane."""
        raise NotImplementedError

    def ops(self, mirror: Mirror, dirty: Dirty) -> list[Op]:
        """What to send for what changed."""
        raise NotImplementedError


class ChatPane(Pane):
    """The conversation and the composer."""

    name = "chat"
    title = "Chat"
    styles = ("chat",)

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.shown = chat_view.SHOWN_ITEMS
        self._drawn: set[str] = set()

    @override
    def html(self, mirror: Mirror, *, live: bool) -> Markup:
        items = list(mirror.items.values())
        if live:
            self.shown = min(self.shown, MOST_ITEMS)
            self._drawn = {item.key for item in items[-self.shown :]}
        return render(
            "chat",
            items=items[-self.shown :],
            hidden=max(0, len(items) - self.shown),
            status=mirror.status,
            status_word=chat_view.STATUS_WORDS.get(mirror.status, mirror.status),
            stop_words=chat_view.STOP_WORDS,
            streaming_text="".join(mirror.streaming_text),
            streaming_thinking="".join(mirror.streaming_thinking),
            queue=mirror.queue,
            error=_error(mirror),
            pending=_pending(mirror),
            live=live,
            composer=live and self.target.session is not None,
            title=self.target.title,
        )

    @override
    def ops(self, mirror: Mirror, dirty: Dirty) -> list[Op]:
        ops = []
        for key in dirty.items:
            item = mirror.items[key]
            if key not in self._drawn:
                self._drawn.add(key)
                self.shown += 1
            ops.append(put(key, chat_view.item_html(item), into="rows"))
        if dirty.stream_over:
            ops.append(put("stream", chat_view.stream_html()))
        if dirty.chat:
            ops.append(put("queue", chat_view.queue_html(mirror.queue)))
            ops.append(put("notice", chat_view.notice_html(_error(mirror), _pending(mirror))))
        return ops

    def earlier(self, mirror: Mirror, count: int) -> list[Op]:
        """Draw older items too."""
        items = list(mirror.items.values())
        older = items[max(0, len(items) - self.shown - count) : len(items) - self.shown]
        self.shown += len(older)
        self._drawn.update(item.key for item in older)
        ops = [put(item.key, chat_view.item_html(item), into="rows", first=True) for item in reversed(older)]
        return [*ops, put("earlier", chat_view.earlier_html(max(0, len(items) - self.shown), live=True))]


def _error(mirror: Mirror) -> str | None:
    # The transcript usually ends with a row of the same error; it need not be said twice.
    last = next(reversed(mirror.items.values()), None)
    if mirror.error and last is not None and last.row.content_type == "error":
        return None
    return mirror.error


def _pending(mirror: Mirror) -> str:
    if mirror.ended:
        return "This session was stopped. Make a new one, or reopen the conversation, to go on."
    return pending_words(mirror.state)


class SandwichPane(Pane):
    """The picture of the stack, and what runs in it."""

    name = "sandwich"
    title = "Sandwich"
    styles = ("sandwich",)

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.open: set[str] = set()
        self._drawn: set[str] = set()

    @override
    def html(self, mirror: Mirror, *, live: bool) -> Markup:
        agent = self.target.agent
        tools = agent.tools if agent is not None else ()
        if live:
            self._drawn = {row.cell for row in tool_rows(self.target.stack, tools, mirror.activity)}
        return sandwich(
            self.target.stack,
            mirror.activity,
            live=live,
            model=model_title(agent) if agent is not None else "",
            tools=tools,
            opened=self.open if live else None,
        )

    @override
    def ops(self, mirror: Mirror, dirty: Dirty) -> list[Op]:
        strangers = [key for key in dirty.cells if key.startswith("tool:") and key not in self._drawn]
        if strangers:  # a tool that no one announced: the picture gets a cell more
            return [put("sandwich", self.html(mirror, live=True))]
        ops = [put(f"num:{key}", cell_summary(key, mirror.activity.cell(key))) for key in dirty.cells]
        ops += [self.body(mirror, key) for key in dirty.cells if key in self.open]
        if dirty.cycle:
            ops.append(put("cycle", call("_cell", "cycle_mark", mirror.activity.cycle)))
        return ops

    def body(self, mirror: Mirror, key: str) -> Op:
        """What an opened cell shows: compared now, because somebody looks."""
        return put(f"body:{key}", cell_body(key, mirror.activity.cell(key)))


class StatePane(Pane):
    """The State as the model sees it."""

    name = "state"
    title = "State"
    styles = ("chat", "state")

    @override
    def html(self, mirror: Mirror, *, live: bool) -> Markup:
        return state_fragment(self.target.state(mirror))

    @override
    def ops(self, mirror: Mirror, dirty: Dirty) -> list[Op]:
        return [put("state", self.html(mirror, live=True))] if dirty.state else []


class TracePane(Pane):
    """What happened, line by line."""

    name = "trace"
    title = "Trace"
    styles = ("sandwich", "trace")

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._drawn = 0

    @override
    def html(self, mirror: Mirror, *, live: bool) -> Markup:
        if live:
            self._drawn = min(len(lines_of(mirror.events)), SHOWN_EVENTS)
        return trace_fragment(tuple(mirror.events))

    @override
    def ops(self, mirror: Mirror, dirty: Dirty) -> list[Op]:
        if not dirty.lines:
            return []
        if (
            self._drawn == 0
            or self._drawn + len(dirty.lines) > 2 * SHOWN_EVENTS
            or len(dirty.lines) > SHOWN_EVENTS // 4
        ):
            return [put("trace", self.html(mirror, live=True))]
        lines = [line for line in map(line_of, dirty.lines) if line is not None]
        self._drawn += len(lines)
        return [put(line.key, row_html(line, mirror.start), into="trace-rows") for line in lines]


class ContextPane(Pane):
    """The three channels: scope, tool_context, metadata.

    Values of the first two are in no HTML that is kept anywhere: they are sent to a page that shows this pane,
    when it shows it.
    """

    name = "context"
    title = "Context"
    styles = ("chat", "state", "agent")

    @override
    def html(self, mirror: Mirror, *, live: bool) -> Markup:
        agent = self.target.agent
        return render(
            "context",
            live=live,
            scope=what_is(getattr(agent, "scope", None)),
            tool_context=what_is(getattr(agent, "tool_context", None)),
            state=self.target.state(mirror),
        )

    @override
    def ops(self, mirror: Mirror, dirty: Dirty) -> list[Op]:
        if not dirty.state:
            return []
        return [put("context-metadata", call("context", "saved", self.target.state(mirror)))]

    def values(self) -> list[Op]:
        """The values, for a page that shows the pane now."""
        agent = self.target.agent
        context = getattr(agent, "tool_context", None) or {}
        return [
            put("context-scope", call("context", "value", "context-scope", repr(getattr(agent, "scope", None)))),
            put("context-extras", call("context", "extras", {str(key): repr(item) for key, item in context.items()})),
        ]
