"""A runtime with a clock that tests turn, a session that says what it is told, and what views sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sagents_nb import Agent, Middleware, ScriptedModel, State
from sagents_nb.events import Event
from sagents_nb.server.display import DisplayMessage
from sagents_nb.server.snapshot import SessionSnapshot
from sagents_nb.widgets import View
from sagents_nb.widgets.comm import Screen, Wire


class Notes(Middleware):
    """A layer on both sides of the model."""

    def before_model(self, state: State, run: Any) -> None:
        return None

    def after_model(self, state: State, run: Any) -> None:
        return None


@dataclass(eq=False)
class Timer:
    """What ``call_later`` gives."""

    at: float
    function: Callable[[], object] | None

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.function = None


@dataclass
class Clock:
    """An event loop whose time stands still until it is moved."""

    now: float = 100.0
    timers: list[Timer] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, function: Callable[[], object]) -> Timer:
        timer = Timer(self.now + delay, function)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            self.timers = [timer for timer in self.timers if timer.function]
            due = [timer for timer in self.timers if timer.at <= end]
            if not due:
                break
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = max(self.now, first.at)
            assert first.function is not None
            first.function()
        self.now = end


class StillRuntime:
    """A runtime without a thread: what it is asked to call, it calls at once."""

    def __init__(self) -> None:
        self.loop = Clock()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        function(*arguments)


class FakeSession:
    """A session that says what the test tells it to say."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.agent_id = agent.agent_id
        self.conversation_id = "c"
        self.status: Any = "idle"
        self.state = State()
        self.display_messages: tuple[DisplayMessage, ...] = ()
        self.sent: list[str] = []
        self.cancelled = 0
        self.refuse: Exception | None = None
        self.subscribers: list[Callable[[Event], object]] = []
        self._seq = itertools.count(1)
        self.last_seq = 0
        self.events: list[Event] = []

    def snapshot(self) -> SessionSnapshot:
        return SessionSnapshot(
            seq=self.last_seq,
            status=self.status,
            error=None,
            conversation_id=self.conversation_id,
            agent_id=self.agent_id,
            state=self.state,
            display_messages=self.display_messages,
            events=tuple(self.events),
        )

    def subscribe_callback(self, subscriber: Callable[[Event], object]) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    def emit(self, *events: Event) -> None:
        for event in events:
            event.seq = self.last_seq = next(self._seq)
            event.agent_id = event.agent_id or self.agent_id
            for subscriber in list(self.subscribers):
                subscriber(event)

    def send(self, text: str) -> None:
        if self.refuse:
            raise self.refuse
        self.sent.append(text)

    def cancel(self) -> None:
        self.cancelled += 1


@dataclass
class Page:
    """One drawing of a view: says what a browser says, keeps what it was sent."""

    messages: list[dict[str, Any]]
    acks: list[dict[str, Any]]

    def open(self, view: View, *panes: str) -> None:
        self.say(view, t="hello", n=0)
        self.say(view, t="resync", n=1, seq=0)
        self.show(view, *panes)

    def show(self, view: View, *panes: str) -> None:
        self.say(view, t="visible", n=2, view="page", panes=list(panes))

    def say(self, view: View, /, **message: Any) -> None:
        view._receive(view._wire, message, [])

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["t"] == "delta"]

    @property
    def ops(self) -> list[dict[str, Any]]:
        return [op for delta in self.deltas for op in delta["ops"]]


@pytest.fixture
def agent() -> Agent:
    return Agent(
        name="helper",
        model=ScriptedModel(["hi"]),
        middleware=[Notes(name="A"), Notes(name="B")],
        scope={"user": "SCOPE-SECRET"},
        tool_context={"key": "CONTEXT-SECRET"},
    )


@pytest.fixture
def session(agent: Agent, clock: Clock) -> FakeSession:
    return FakeSession(agent)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    still = StillRuntime()
    monkeypatch.setattr("sagents_nb.widgets.view.runtime", lambda: still)
    return still.loop


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    made = Page([], [])
    monkeypatch.setattr(Screen, "send", lambda _screen, message: made.messages.append(message))
    monkeypatch.setattr(Wire, "send", lambda _wire, message: made.acks.append(message))
    return made
