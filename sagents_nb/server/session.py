"""The handle by which notebooks and widgets talk to an agent server."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self

from sagents_nb import _late, main_thread
from sagents_nb.errors import ConfigurationError, StoreError
from sagents_nb.events import Event, SessionStopped, StatusChanged
from sagents_nb.execution.heartbeat import heartbeat
from sagents_nb.ids import new_id
from sagents_nb.messages import Content, Message
from sagents_nb.server.agent_server import AgentServer, load
from sagents_nb.server.cell import executing_cell
from sagents_nb.server.display import DisplayMessage
from sagents_nb.server.persistence import MemoryPersistence, Persistence
from sagents_nb.server.registry import registry
from sagents_nb.server.runtime import Runtime, runtime
from sagents_nb.server.snapshot import SessionSnapshot, SessionStatus
from sagents_nb.state import State
from sagents_nb.waiting import result_of

if TYPE_CHECKING:
    from sagents_nb.agent import Agent


class Session:
    """A conversation that goes on in the background; made by ``agent.session()``.

    Every method may be called from any thread. `send` and `cancel` return at once.
    """

    def __init__(self, server: AgentServer, runtime: Runtime) -> None:
        self._server = server
        self._runtime = runtime

    @property
    def agent(self) -> Agent:
        """Who answers."""
        return self._server.agent

    @property
    def agent_id(self) -> str:
        """Id of the agent."""
        return self._server.agent.agent_id

    @property
    def conversation_id(self) -> str:
        """Which conversation."""
        return self._server.conversation_id

    @property
    def status(self) -> SessionStatus:
        """idle, running, interrupted, paused, cancelled or error; running as soon as a message was sent."""
        return self._server.status

    @property
    def error(self) -> str | None:
        """What went wrong last, in words; None when nothing did."""
        return self._server.error

    @property
    def state(self) -> State:
        """What the model sees, as far as a run has come."""
        return self._server.state

    @property
    def display_messages(self) -> tuple[DisplayMessage, ...]:
        """What people see, oldest first."""
        return self._server.display_messages

    @property
    def stopped(self) -> bool:
        """Whether it was stopped."""
        return self._server.stopped

    @property
    def alive(self) -> bool:
        """Whether it can be used: not stopped, and the runtime it lives on is there."""
        return not self._server.stopped and self._runtime.alive

    def snapshot(self) -> SessionSnapshot:
        """Everything a view needs, at one moment."""
        return self._server.snapshot()

    def send(self, content: Content) -> None:
        """Say something; returns at once, the answer comes in the background.

        While a run goes on, the message waits for its turn.

        Args:
            content: text, or content parts.

        Raises:
            ValueError: there is nothing in it.
            SessionError: the session was stopped.
        """
        message = Message("user", content)
        if not message.content or (not message.text.strip() and all(p.type == "text" for p in message.content)):
            raise ValueError("the message is empty; send some text: session.send('…')")
        self._server.accept(message)

    def cancel(self) -> None:
        """Stop the present run; what was said so far stays, marked as cancelled. Returns at once."""
        self._server.cancel()

    def wait(self, timeout: float | None = None) -> SessionStatus:
        """Wait until nothing runs.

        Ctrl-C or the kernel's stop button while waiting cancels the run.

        Args:
            timeout: seconds; None for no limit.

        Returns:
            The status then.

        Raises:
            TimeoutError: it still runs; it goes on running.
        """
        self._runtime.refuse_here("session.wait", "`await session.idle()`")
        settled = self._server.when_settled()
        try:
            return result_of(settled, timeout)
        except TimeoutError:
            settled.cancel()
            raise self._still_running(timeout) from None
        except KeyboardInterrupt:
            self.cancel()
            raise

    async def idle(self, timeout: float | None = None) -> SessionStatus:  # noqa: ASYNC109 - asyncio.timeout would cancel the run
        """`wait`, for code that awaits; an interrupted cell cancels the run.

        Args:
            timeout: seconds; None for no limit. (`asyncio.wait_for` would cancel the run at the end of its time.)

        Raises:
            TimeoutError: it still runs; it goes on running.
        """
        settled = asyncio.wrap_future(self._server.when_settled())
        with heartbeat():
            try:
                await asyncio.wait({settled}, timeout=timeout)
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                settled.cancel()
        if settled.cancelled():
            raise self._still_running(timeout)
        return settled.result()

    def _still_running(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(
            f"conversation {self.conversation_id} still runs after {timeout or 0:g} s and goes on; "
            "wait again, or session.cancel()"
        )

    def __await__(self) -> Any:
        return self.idle().__await__()

    def subscribe_callback(self, subscriber: Callable[[Event], object]) -> Callable[[], None]:
        """Have a function called with every event, on the runtime's thread; it must be quick.

        To join without loss, subscribe first, then take a `snapshot` and leave out events up to its ``seq``.

        Returns:
            A function that ends the subscription.
        """
        return self._server.publisher.subscribe(subscriber)

    @contextmanager
    def subscribe(self) -> Iterator[Iterator[Event]]:
        """Events as they come, for a ``for`` loop; ends when the session stops.

        Yields:
            An iterator of the events from now on.
        """
        self._runtime.refuse_here("session.subscribe", "`async for event in session.events()`")
        waiting: queue.SimpleQueue[Event] = queue.SimpleQueue()
        end = self.subscribe_callback(waiting.put)

        def iterate() -> Iterator[Event]:
            while not self._server.ended or not waiting.empty():
                try:
                    with main_thread.waits():
                        main_thread.serve()
                        event = waiting.get(timeout=0.2)  # short, so that a session that ended before is seen
                except queue.Empty:
                    continue
                yield event
                if isinstance(event, SessionStopped):
                    return

        try:
            yield iterate()
        finally:
            end()

    async def events(self, *, until: Literal["stopped", "idle"] = "stopped") -> AsyncGenerator[Event, None]:
        """Events as they come, for an ``async for`` loop.

        Args:
            until: ``"idle"`` ends with the run, ``"stopped"`` with the session.
        """
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[Event] = asyncio.Queue()
        end = self.subscribe_callback(lambda event: loop.call_soon_threadsafe(waiting.put_nowait, event))
        try:
            if self._server.ended or (until == "idle" and self.status != "running"):
                return
            with heartbeat():
                while True:
                    event = await waiting.get()
                    yield event
                    settled = isinstance(event, StatusChanged) and event.status != "running" != self.status
                    if isinstance(event, SessionStopped) or (until == "idle" and settled):
                        return
        finally:
            end()

    def stop(self, timeout: float = 10.0) -> None:
        """End the session: the run is cancelled, everything is saved. The conversation can be reopened.

        Raises:
            TimeoutError: it did not come to an end in time; it still tries to, and the conversation is its own until
                then.
            StoreError: it ended, but something could not be saved.
        """
        if not self._server.ended and self._runtime.alive:
            self._runtime.refuse_here("session.stop", "`await session.aclose()`")
            try:
                result_of(self._runtime.submit(self._server.stop()), timeout)
            except TimeoutError:
                raise TimeoutError(
                    f"conversation {self.conversation_id} did not come to an end within {timeout:g} s: a hook or an "
                    "async tool does not let itself be cancelled, or the store does not answer"
                ) from None
            registry.remove(self)
            self._tell_unsaved()
        registry.remove(self)

    async def aclose(self) -> None:
        """`stop`, for code that awaits."""
        if not self._server.ended and self._runtime.alive:
            await asyncio.wrap_future(self._runtime.submit(self._server.stop()))
            registry.remove(self)
            self._tell_unsaved()
        registry.remove(self)

    def _tell_unsaved(self) -> None:
        if self._server.unsaved is not None:
            raise StoreError(
                f"conversation {self.conversation_id} was stopped, but its end could not be saved: "
                f"{self._server.unsaved}. session.state and session.display_messages still have it"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return (
            f"Session({self.conversation_id!r}, {'stopped' if self.stopped else self.status}, "
            f"{len(self.display_messages)} rows)"
        )

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": _late.session_html(self.snapshot(), self.agent)}


def start_session(
    agent: Agent, *, store: Any = None, conversation_id: str | None = None, title: str | None = None
) -> Session:
    """See ``Agent.session``.

    A living session of the same conversation and agent is given back; one with another agent is stopped first, so
    that a conversation has one owner.
    """
    persistence: Persistence = _memory if store is None else store
    if not hasattr(persistence, "save_turn"):
        raise ConfigurationError(
            f"session(store=…) takes a Store, got {store!r}, a {type(store).__name__}: Store('agents.duckdb')"
        )
    if conversation_id is not None and (not isinstance(conversation_id, str) or not conversation_id.strip()):
        raise ConfigurationError(f"a conversation_id is a non-empty str, got {conversation_id!r}")
    home = runtime()
    if home.in_thread:
        home.refuse_here("agent.session", "another thread, such as a notebook cell")
    cell = executing_cell() if conversation_id is None else None
    cid = conversation_id or new_id()
    key = (id(persistence), persistence.owner_key(agent.scope), cid)
    with registry.starting:
        living = registry.get(key)
        if living is not None:
            if living.alive and living.agent is agent:
                return living
            living.stop()  # waits, also when somebody else is stopping it: what is loaded now must be all there is
        stored = load(persistence, agent.scope, cid)
        server = AgentServer(agent, persistence, home, cid, stored=stored, title=title)
        session = Session(server, home)
        predecessors = registry.add(key, session, cell)
    for predecessor in predecessors:
        if home.in_thread:
            predecessor.stop()
        else:  # nothing can be waited for here; they end when the cell lets the loop go on
            home.call(asyncio.ensure_future, predecessor.aclose())
    return session


def running_sessions() -> list[Session]:
    """All sessions of this process that were not stopped."""
    return registry.all()


class _Owners:
    """Owner keys for sessions without a store: equal scopes are one owner, whatever they are."""

    def __init__(self) -> None:
        self._seen: list[Any] = []

    def __call__(self, scope: Any) -> str:
        for number, other in enumerate(self._seen):
            if other is scope or (type(other) is type(scope) and other == scope):
                return str(number)
        self._seen.append(scope)
        return str(len(self._seen) - 1)


_memory = MemoryPersistence(owner=_Owners())
