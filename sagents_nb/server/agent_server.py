"""The owner of one conversation: takes messages, runs the agent on them one after the other, saves what comes of it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sagents_nb.errors import AgentError, SessionError, state_of
from sagents_nb.events import (
    DisplayChanged,
    Event,
    HookStarted,
    MessageAdded,
    ModelDelta,
    QueueChanged,
    RunEnded,
    Saved,
    SaveFailed,
    SessionStopped,
    StatusChanged,
    ToolStarted,
)
from sagents_nb.execution.loop import run_leg
from sagents_nb.execution.recorder import Recorder
from sagents_nb.execution.run import Run
from sagents_nb.messages import Message
from sagents_nb.server.display import DisplayMessage
from sagents_nb.server.persistence import Persistence, StoredConversation
from sagents_nb.server.publisher import Publisher
from sagents_nb.server.runtime import Runtime
from sagents_nb.server.saver import Saver
from sagents_nb.server.snapshot import SessionSnapshot, SessionStatus
from sagents_nb.server.transcript import Transcript
from sagents_nb.state import State
from sagents_nb.waiting import result_of

if TYPE_CHECKING:
    from sagents_nb.agent import Agent

logger = logging.getLogger("sagents_nb")

_NOT_STORED = (ModelDelta, HookStarted, ToolStarted, DisplayChanged, QueueChanged, Saved, StatusChanged)
"""Events that repeat what another one, or a row, says."""


class AgentServer:
    """Runs one conversation on the runtime's loop. Methods without a leading underscore may be called from any thread.

    Args:
        agent: who answers.
        persistence: where the conversation is kept.
        runtime: whose loop it lives on.
        conversation_id: which conversation.
        stored: the conversation as it was saved last, if it was.
        title: of a new conversation.
    """

    def __init__(
        self,
        agent: Agent,
        persistence: Persistence,
        runtime: Runtime,
        conversation_id: str,
        *,
        stored: StoredConversation | None = None,
        title: str | None = None,
    ) -> None:
        self.agent = agent
        self.conversation_id = conversation_id
        self.publisher = Publisher()
        self._error: str | None = None
        self._unsaved: str | None = None
        self._runtime = runtime
        state = stored.state if stored is not None else State()
        self._state = state.model_copy(update={"agent_id": agent.agent_id, "conversation_id": conversation_id})
        self._transcript = Transcript(conversation_id, stored.display_messages if stored is not None else ())
        self._recorder = Recorder(stored.last_event_seq if stored is not None else 0, fold=self._fold)
        self._recorder.listeners.append(self._react)
        self._lock = self._recorder.lock
        self._folded: list[DisplayMessage] = []
        self._saver = Saver(
            persistence, agent.scope, conversation_id, on_saved=self._saved, on_failed=self._save_failed
        )
        self._inbox: deque[Message] = deque()
        self._queue: tuple[str, ...] = ()
        self._waiters: list[Future[SessionStatus]] = []
        self._outcome: SessionStatus = "interrupted" if state.interrupt is not None else "idle"
        self._announced: SessionStatus = self._outcome
        self._run: Run | None = None
        self._leg: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[None] | None = None
        self._cancel_asked = False
        self._end: asyncio.Task[None] | None = None
        self.stopped = False
        self.ended = False
        # Calls that were open when an earlier process ended will never be answered; people must see that.
        closed = self._transcript.close_open_calls()
        if closed or (stored is None and title is not None):
            self._saver.add(changed=tuple(closed), title=title)

    # From any thread.

    @property
    def status(self) -> SessionStatus:
        """What it does; ``"running"`` from the moment a message is accepted."""
        with self._lock:
            return "running" if self._inbox or self._worker is not None else self._outcome

    @property
    def error(self) -> str | None:
        """What went wrong in the last run or, when that is well, with saving it."""
        return self._error or (f"not saved: {self._unsaved}" if self._unsaved else None)

    @property
    def unsaved(self) -> str | None:
        """Why something could not be saved; None when everything was."""
        return self._unsaved

    @property
    def state(self) -> State:
        """What the model sees, as far as a run has come."""
        run = self._run
        return run.state if run is not None else self._state

    @property
    def display_messages(self) -> tuple[DisplayMessage, ...]:
        """What people see."""
        with self._lock:
            return self._transcript.rows

    def accept(self, message: Message) -> None:
        """Take a user's message; it is answered when those before it are.

        Raises:
            SessionError: the server was stopped.
        """
        with self._lock:
            self._refuse_stopped("send")
            self._runtime.call(self._pump)
            self._inbox.append(message)

    def cancel(self) -> None:
        """Stop the present run; nothing happens when there is none."""
        if not self.ended:
            self._runtime.call(self._cancel)

    def when_settled(self) -> Future[SessionStatus]:
        """A future of the status as soon as it is not running."""
        done: Future[SessionStatus] = Future()
        with self._lock:
            if self.status == "running" and not self.ended:
                # Those who gave up waiting are left out, or somebody who polls would make the list grow.
                self._waiters = [*(waiter for waiter in self._waiters if not waiter.cancelled()), done]
            else:
                done.set_result(self.status)
        return done

    def snapshot(self) -> SessionSnapshot:
        """Everything, at one moment."""
        with self._lock:
            return SessionSnapshot(
                seq=self._recorder.last_seq,
                status=self.status,
                error=self.error,
                conversation_id=self.conversation_id,
                agent_id=self.agent.agent_id,
                state=self.state,
                display_messages=self._transcript.rows,
                streaming_text=self._transcript.streaming_text,
                streaming_thinking=self._transcript.streaming_thinking,
                queue=self._queue,
                events=tuple(self._recorder.events),
            )

    async def stop(self) -> None:
        """End the run, save what there is, say good-bye. On the runtime's loop.

        Whoever calls it again waits for the same end; it comes even if those who wait give up.
        """
        if self._end is None:
            self._end = asyncio.ensure_future(self._stop())
        await asyncio.shield(self._end)

    # On the runtime's loop.

    async def _stop(self) -> None:
        with self._lock:
            self.stopped = True
            left = tuple(self._inbox)
            self._inbox.clear()
        self._cancel()
        if self._worker is not None:
            await asyncio.wait({self._worker})
        for message in left:  # nobody answers them any more, but what was said is not lost
            self._take(message)
        self._announce_queue()
        await self._saver.flush()
        self._recorder.record(SessionStopped(agent_id=self.agent.agent_id))
        with self._lock:
            self.ended = True
        self._settle()
        self.agent.forget(self.conversation_id)

    def _pump(self) -> None:
        if self._worker is None:
            if not self.stopped:
                self._worker = asyncio.ensure_future(self._work())
        elif self._leg is not None:  # else the worker is about to take a message, and says what is left then
            self._announce_queue()

    async def _work(self) -> None:
        try:
            while (message := self._next()) is not None:
                self._announce_queue()
                self._announce_status("running")
                self._outcome = "error"  # should _answer not come to its end
                self._outcome = await self._answer(message)
        finally:
            self._worker = None
            # Also when another message came meanwhile: who joined just now must hear that this run ended.
            self._announce_status(self._outcome)
            self._settle()

    def _next(self) -> Message | None:
        """The message to answer now. With None the worker has ended, in the same moment for everybody who looks."""
        with self._lock:
            if self._inbox:
                return self._inbox.popleft()
            self._worker = None
            return None

    async def _answer(self, message: Message) -> SessionStatus:
        """Run the agent on one message and save what came of it."""
        self._error = None
        run: Run | None = None
        leg: asyncio.Task[None] | None = None
        try:
            self._take(message)
            self._saver.save()
            run = self._run = self.agent.begin(self._state, recorder=self._recorder)
            leg = self._leg = asyncio.ensure_future(run_leg(run))
            if self._cancel_asked:
                leg.cancel()
            await asyncio.wait({leg})
            leg.result()
            return "idle" if run.outcome == "completed" else run.outcome
        except asyncio.CancelledError as cancelled:
            if leg is None or not leg.done():
                raise  # the runtime ends
            if state_of(cancelled) is None:  # before its first step, so it could not say so itself
                self._end_run("cancelled")
            return "cancelled"
        except AgentError as error:
            self._error = str(error)
            return "error"
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            logger.exception("the run of conversation %s failed in a way it should not", self.conversation_id)
            self._error = f"{type(error).__name__}: {error}"
            if leg is None:
                self._end_run("error")
            return "error"
        finally:
            self._leg = None
            if run is not None:
                self._state = run.state
            self._run = None
            self._saver.add(state=self._state)
            await self._saver.flush()
            # Last, so that a Stop that came while this turn was saved is not meant for the next message.
            self._cancel_asked = False

    def _take(self, message: Message) -> None:
        """Make a user's message part of the conversation."""
        self._state = self._state.add_message(message)
        with self._lock:
            rows = self._transcript.add_message(message)
        self._show(rows)
        self._saver.add(state=self._state, added=tuple(rows))

    def _end_run(self, status: SessionStatus) -> None:
        """Record the end of a run that had no beginning."""
        self._recorder.record(RunEnded(agent_id=self.agent.agent_id, status=status, error=self._error))

    def _cancel(self) -> None:
        if self._leg is not None:
            self._leg.cancel()
        elif self._worker is not None:
            self._cancel_asked = True

    def _fold(self, event: Event) -> None:
        self._folded = self._transcript.apply(event)
        if isinstance(event, QueueChanged):
            self._queue = event.texts

    def _react(self, event: Event) -> None:
        if self.ended:
            return  # a tool that still ran in its thread; nobody listens any more
        rows, self._folded = self._folded, []
        if not isinstance(event, _NOT_STORED):
            self._saver.add(events=(event,))
        self.publisher.publish(event)
        if rows:
            new = tuple(row for row in rows if row.updated_at is None)
            self._saver.add(added=new, changed=tuple(row for row in rows if row.updated_at is not None))
            self._show(rows)
        if isinstance(event, MessageAdded):
            self._saver.add(state=self.state)
            self._saver.save()

    def _show(self, rows: list[DisplayMessage]) -> None:
        self._recorder.record(DisplayChanged(agent_id=self.agent.agent_id, rows=tuple(rows)))

    def _announce_queue(self) -> None:
        with self._lock:
            texts = tuple(message.text for message in self._inbox)
        if texts != self._queue:
            self._recorder.record(QueueChanged(agent_id=self.agent.agent_id, texts=texts))

    def _announce_status(self, status: SessionStatus) -> None:
        if status != self._announced:
            self._announced = status
            self._recorder.record(StatusChanged(agent_id=self.agent.agent_id, status=status, error=self._error))

    def _settle(self) -> None:
        with self._lock:
            if self.status == "running":
                return  # another message came meanwhile
            waiters, self._waiters = self._waiters, []
            status = self.status
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(status)

    def _saved(self, revision: int) -> None:
        self._unsaved = None
        self._recorder.record(Saved(agent_id=self.agent.agent_id, revision=revision))

    def _save_failed(self, error: Exception) -> None:
        self._unsaved = str(error) or type(error).__name__
        self._recorder.record(SaveFailed(agent_id=self.agent.agent_id, error=self._unsaved))

    def _refuse_stopped(self, what: str) -> None:
        if self.stopped:
            raise SessionError(
                f"the session of conversation {self.conversation_id} was stopped, so it cannot {what}; "
                "start it again with agent.session(store=…, conversation_id=…)"
            )

    def __repr__(self) -> str:
        return f"AgentServer({self.conversation_id!r}, {self.status})"


def load(persistence: Persistence, scope: Any, conversation_id: str) -> StoredConversation | None:
    """The stored conversation, waited for."""
    return result_of(persistence.load_conversation(scope, conversation_id), 60)
