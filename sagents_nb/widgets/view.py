"""The base of every live view: what it shows, when it draws, and how it hears a person."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from markupsafe import Markup
from pydantic import BaseModel, ValidationError

from sagents_nb.errors import ConfigurationError, did_you_mean
from sagents_nb.events import Event
from sagents_nb.server.cell import CellRun, executing_cell
from sagents_nb.server.runtime import runtime
from sagents_nb.views._render import alone, call, render
from sagents_nb.views.chat import status_html
from sagents_nb.widgets.comm import Screen, Wire, box
from sagents_nb.widgets.messages import (
    INBOUND,
    CellValues,
    EarlierValues,
    Hello,
    Nothing,
    Press,
    Resync,
    SendValues,
    Visible,
)
from sagents_nb.widgets.mirror import Dirty, Mirror
from sagents_nb.widgets.panes import ChatPane, ContextPane, Op, Pane, SandwichPane, put
from sagents_nb.widgets.target import Target

logger = logging.getLogger("sagents_nb")

FAST = 1 / 30
"""Seconds between two deltas with streamed text and lights: the rate at which the eye sees no steps."""
SLOW = 1 / 5
"""Seconds between two deltas with everything else, which costs rendering."""
MOST_LIGHTS = 2_000
"""Light changes that are sent at once; nobody can follow more."""


class View:
    """A live view; show it by making it the last line of a cell.

    It keeps itself up to date while somebody can see it, in any number of cells at once. Closing it leaves the
    session running. Made again by the same cell, it closes its predecessor.

    Args:
        target: what to show: a session, an agent, a stack or a result.
    """

    panes: ClassVar[Sequence[type[Pane]]] = ()

    def __init__(self, target: Any) -> None:
        self._target = Target.of(target, view=type(self).__name__)
        self._panes = [kind(self._target) for kind in type(self).panes]
        self._runtime = runtime()
        self._lock = threading.Lock()
        self._displays: list[Any] = []
        self._numbers = itertools.count(1)
        self._closed = False
        self._frozen: str | None = None
        # The rest is touched on the runtime's thread only.
        self._mirror: Mirror | None = None
        self._dirty = Dirty()
        self._seq = 0
        self._drawings: dict[str, frozenset[str]] = {}
        self._stale: set[str] = set()
        self._settled = False
        self._last_fast = self._last_slow = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Callable[[], None] | None = None

        self._actions: dict[str, tuple[type[BaseModel], Callable[[Any], None]]] = {
            "cell": (CellValues, lambda values: self._runtime.call(self._open_cell, values.cell, values.open)),
            "earlier": (EarlierValues, lambda values: self._runtime.call(self._earlier, values.count)),
        }
        session = self._target.session
        if session is not None:
            self._actions["send"] = (SendValues, lambda values: session.send(values.text))
            self._actions["stop"] = (Nothing, lambda _values: session.cancel())

        _close_predecessors(self)
        self._screen = Screen()
        self._wire = Wire()
        self._box = box(self._screen, self._wire)
        self._screen.snapshot = {"seq": 0, "html": str(self._frame(Mirror(self._target.snapshot()))), "lit": []}
        self._wire.on_msg(self._receive)
        self._runtime.call(self._join)

    # What people and programs use, from any thread.

    @property
    def session(self) -> Any:
        """The session it shows; None when it shows something that does not change."""
        return self._target.session

    @property
    def widget(self) -> Any:
        """The ipywidgets box, to put the view into a layout of your own."""
        return self._box

    def html(self) -> str:
        """What it shows now as static HTML, which needs no kernel."""
        if self._frozen is not None:
            return self._frozen
        mirror = Mirror(self._target.snapshot())
        parts = [(pane.title, pane.html(mirror, live=False)) for pane in self._panes]
        styles = dict.fromkeys(style for pane in self._panes for style in pane.styles)
        return alone(call("_frame", "folds", parts), *styles, "agent")

    def press(self, name: str, **values: Any) -> None:
        """Do what a click in the page does, from code.

        Args:
            name: of the action: ``"send"``, ``"stop"``, ``"earlier"``, ``"cell"``.
            **values: what it is given, for example ``text`` of ``"send"``.

        Raises:
            ConfigurationError: there is no such action, or the values do not fit it.
            SessionError: the session cannot do it now.
        """
        try:
            message = Press(t="press", n=next(self._numbers), name=name, values=values)
        except ValidationError as error:
            raise ConfigurationError(f"{type(self).__name__}.press({name!r}): {_words(error)}") from None
        self._do(message)

    def close(self) -> None:
        """Stop updating and let go of the widgets; the session goes on."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._runtime.call(self._cancel_timer)
        for widget in (self._box, self._screen, self._wire):
            if widget.comm is not None and widget is self._screen:
                _quietly(widget.send, {"t": "closed"})
            layout = widget.layout
            widget.close()
            layout.close()

    def freeze(self) -> None:
        """Put static HTML in place of the live view wherever it is displayed, and close it.

        A saved notebook shows a live widget as "model not found"; a frozen view stays what it was.
        """
        if self._frozen is None:
            self._frozen = self.html()
        for handle in self._displays:
            handle.update(self._static_bundle(), raw=True)
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target.title})"

    def _static_bundle(self) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self.html()}

    def _repr_mimebundle_(self, **_options: object) -> dict[str, Any]:
        bundle = self._static_bundle()
        if not self._closed:
            bundle["application/vnd.jupyter.widget-view+json"] = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self._box.model_id,
            }
        return bundle

    def _ipython_display_(self) -> None:
        # Through a handle, since `freeze` must be able to replace what a cell shows.
        from IPython.display import display

        handle = display(self._repr_mimebundle_(), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        if handle is not None:
            self._displays.append(handle)

    # From the browser: on the main thread or a subshell's. Touch nothing, hand over, answer.

    def _receive(self, wire: Any, content: Any, _buffers: Any) -> None:
        try:
            message = INBOUND.validate_python(content)
        except ValidationError as error:
            logger.warning("%s ignored a message it does not understand: %s", type(self).__name__, _words(error))
            number = content.get("n") if isinstance(content, dict) else None
            if isinstance(number, int):
                wire.send({"t": "ack", "n": number, "error": "The kernel did not understand this."})
            return
        answer: dict[str, Any] = {"t": "ack", "n": message.n}
        try:
            self._do(message)
        except Exception as error:  # answered, so that the page shows it
            if not isinstance(error, (ConfigurationError, ValueError)):
                logger.info("%s in a view: %s", type(error).__name__, error)
            answer["error"] = str(error) or type(error).__name__
        wire.send(answer)

    def _do(self, message: Hello | Resync | Visible | Press) -> None:
        if self._closed:
            raise ConfigurationError(f"this view was closed; make a new one: {type(self).__name__}(…)")
        match message:
            case Hello():
                self._runtime.call(self._roll)
            case Resync():
                self._runtime.call(self._send_snapshot)
            case Visible():
                self._runtime.call(self._see, message.view, frozenset(message.panes))
            case Press():
                try:
                    kind, action = self._actions[message.name]
                except KeyError:
                    raise ConfigurationError(
                        f"{type(self).__name__} has no action {message.name!r}"
                        f"{did_you_mean(message.name, self._actions)}; it has {', '.join(sorted(self._actions))}"
                    ) from None
                try:
                    values = kind.model_validate(message.values)
                except ValidationError as error:
                    raise ConfigurationError(f"{message.name}: {_words(error)}") from None
                action(values)

    # On the runtime's thread.

    def _join(self) -> None:
        if self._closed:
            return
        if self._target.session is not None:
            self._unsubscribe = self._target.session.subscribe_callback(self._on_event)
        self._mirror = Mirror(self._target.snapshot())

    def _on_event(self, event: Event) -> None:
        # A subscriber that raises is dropped: a broken picture must not end the updates of a living one.
        try:
            mirror = self._mirror
            if self._closed or mirror is None:
                return
            mirror.apply(event, self._dirty)
            if not self._visible:
                self._dirty = Dirty()
                self._stale.update(pane.name for pane in self._panes)
            else:
                self._schedule()
        except Exception as error:
            self._trouble(error)

    @property
    def _visible(self) -> set[str]:
        return {name for panes in self._drawings.values() for name in panes}

    def _schedule(self) -> None:
        due = float("inf")
        if self._dirty.fast:
            due = self._last_fast + FAST
        if self._dirty.slow:
            due = min(due, self._last_slow + SLOW)
        if due == float("inf"):
            return
        loop = self._runtime.loop
        when = max(due, loop.time())
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_later(max(0.0, when - loop.time()), self._flush)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        self._timer = None
        if self._closed or self._mirror is None:
            return
        try:
            now = self._runtime.loop.time()
            ops: list[Op] = []
            self._settled |= self._dirty.status and self._mirror.status != "running"
            # A clock may fire a hair early; what is due within a millisecond is due.
            if self._dirty.slow and now >= self._last_slow + SLOW - 0.001:
                self._last_slow = now
                ops += self._slow_ops(self._mirror)
            if self._dirty.fast and now >= self._last_fast + FAST - 0.001:
                ops += self._fast_ops(self._mirror)
            if ops:
                self._last_fast = now
                self._send(ops)
            # Drawing anew makes the panes count as sent what is in them, so all of it must have been sent.
            if self._settled and not self._dirty.slow:
                self._settled = False
                self._keep_snapshot(self._mirror)
        except Exception as error:
            self._trouble(error)
        self._schedule()

    def _slow_ops(self, mirror: Mirror) -> list[Op]:
        dirty, visible = self._dirty, self._visible
        ops: list[Op] = []
        for pane in self._panes:
            if pane.name in visible and pane.name not in self._stale:
                ops += pane.ops(mirror, dirty)
            else:
                self._stale.add(pane.name)
        # What goes out at once keeps its own time, except text that waited for these rows.
        self._dirty = Dirty(text=dirty.text, lights=dirty.lights, status=dirty.status)
        return ops

    def _fast_ops(self, mirror: Mirror) -> list[Op]:
        dirty, visible = self._dirty, self._visible
        ops: list[Op] = []
        if dirty.status:
            dirty.status = False
            ops.append({"op": "status", "status": mirror.status})
            ops.append(put("status", status_html(mirror.status)))
        if dirty.lights:
            steps, dirty.lights = dirty.lights[-MOST_LIGHTS:], []
            if "sandwich" in visible:
                ops.append({"op": "lit", "steps": steps})
        if dirty.text and not dirty.stream_over:
            pieces, dirty.text = dirty.text, {}
            if "chat" in visible and "chat" not in self._stale:
                ops += [{"op": "text", "key": key, "text": "".join(text)} for key, text in pieces.items()]
        return ops

    def _send(self, ops: list[Op]) -> None:
        if self._closed or not ops:
            return
        self._seq += 1
        self._screen.send({"t": "delta", "seq": self._seq, "ops": ops})

    def _send_snapshot(self) -> None:
        """Everything, to every drawing: those that are up to date find nothing to change."""
        if self._closed or self._mirror is None:
            return
        try:
            if self._target.session is not None and not self._drawings:
                self._mirror = Mirror(self._target.snapshot())
            self._dirty = Dirty()
            self._seq += 1
            self._screen.send(
                {
                    "t": "snapshot",
                    "seq": self._seq,
                    "html": str(self._frame(self._mirror)),
                    "lit": self._mirror.activity.running,
                }
            )
        except Exception as error:
            self._trouble(error)

    def _keep_snapshot(self, mirror: Mirror) -> None:
        """Leave what a page that is loaded later draws first. Those that follow the deltas have it all, by its number."""
        self._screen.snapshot = {"seq": self._seq, "html": str(self._frame(mirror)), "lit": []}

    def _frame(self, mirror: Mirror) -> Markup:
        # Hidden panes come empty and are drawn when somebody turns to them.
        wanted = self._visible or {pane.name for pane in self._panes[:2]}
        self._stale = {pane.name for pane in self._panes if pane.name not in wanted}
        panes = [
            {
                "name": pane.name,
                "title": pane.title,
                "html": self._pane(pane, mirror if pane.name in wanted else None),
            }
            for pane in self._panes
        ]
        session = self._target.session is not None
        return render(
            "frame",
            panes=panes,
            title=self._target.title,
            status=mirror.status,
            chip=status_html(mirror.status) if session else None,
        )

    def _pane(self, pane: Pane, mirror: Mirror | None) -> Markup:
        html = pane.html(mirror, live=True) if mirror is not None else Markup("")
        return call("_frame", "pane", pane.name, pane.title, html)

    def _roll(self) -> None:
        """Ask every drawing to say what it shows; those of a page that is gone do not answer."""
        self._drawings.clear()
        if not self._closed:
            self._screen.send({"t": "roll"})

    def _see(self, drawing: str, panes: frozenset[str]) -> None:
        if self._closed or self._mirror is None:
            return
        before = self._visible
        if panes:
            self._drawings[drawing] = panes
        else:
            self._drawings.pop(drawing, None)
        try:
            self._draw_again(self._mirror, before)
        except Exception as error:
            self._trouble(error)

    def _draw_again(self, mirror: Mirror, before: set[str]) -> None:
        ops: list[Op] = []
        for pane in self._panes:
            if pane.name not in self._visible:
                continue
            if pane.name in self._stale:
                self._stale.discard(pane.name)
                ops.append(put(f"pane:{pane.name}", self._pane(pane, mirror)))
            if isinstance(pane, ContextPane) and pane.name not in before:
                ops += pane.values()
        if not before and ops:
            ops.append({"op": "status", "status": mirror.status})
            ops.append(put("status", status_html(mirror.status)))
        self._send(ops)

    def _open_cell(self, cell: str, is_open: bool) -> None:
        pane = next((pane for pane in self._panes if isinstance(pane, SandwichPane)), None)
        if self._closed or self._mirror is None or pane is None:
            return
        if not is_open:
            pane.open.discard(cell)
            return
        pane.open.add(cell)
        try:
            self._send([pane.body(self._mirror, cell)])
        except Exception as error:
            self._trouble(error)

    def _earlier(self, count: int) -> None:
        pane = next((pane for pane in self._panes if isinstance(pane, ChatPane)), None)
        if self._closed or self._mirror is None or pane is None:
            return
        try:
            self._send(pane.earlier(self._mirror, count))
        except Exception as error:
            self._trouble(error)

    def _trouble(self, error: Exception) -> None:
        """Say in the view that it cannot draw something; nothing else would show it."""
        logger.error("%s could not draw", type(self).__name__, exc_info=error)
        self._dirty = Dirty()
        words = f"{type(error).__name__}: {error}"
        try:
            self._send([put("trouble", call("_frame", "trouble", words))])
        except Exception:
            logger.exception("%s could not even say so", type(self).__name__)


def _words(error: ValidationError) -> str:
    """What a message or value got wrong, without the value itself."""
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'message'}: {item['msg']}" for item in error.errors()[:3]
    )


def _quietly(function: Callable[..., object], *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception:
        logger.debug("a widget that is being closed could not be told", exc_info=True)


_made: dict[str, tuple[str, list[View]]] = {}
"""By cell: its latest execution, and the views that this execution made."""
_made_lock = threading.Lock()


def _close_predecessors(view: View) -> None:
    run: CellRun | None = executing_cell()
    if run is None:
        return
    with _made_lock:
        execution, views = _made.get(run.cell, ("", []))
        if execution == run.execution:
            views.append(view)
            return
        _made[run.cell] = (run.execution, [view])
    for predecessor in views:
        predecessor.close()
