"""The owner of one conversation: takes messages, runs the agent on them one after the other, saves what comes of it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sagents_nb.errors import AgentError, ExecutionCancelled, SessionError
from sagents_nb.events import (
    DisplayChanged,
    Event,
    HookStarted,
    MessageAdded,
    ModelDelta,
    QueueChanged,
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
        self.error: str | None = None
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
        self._waiters: list[Future[SessionStatus]] = []
        self._outcome: SessionStatus = "interrupted" if state.interrupt is not None else "idle"
        self._announced: SessionStatus = self._outcome
        self._run: Run | None = None
        self._leg: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[None] | None = None
        self._cancel_asked = False
        self.stopped = False
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
            self._inbox.append(message)
        self._runtime.call(self._pump)

    def cancel(self) -> None:
        """Stop the present run; nothing happens when there is none."""
        if not self.stopped:
            self._runtime.call(self._cancel)

    def when_settled(self) -> Future[SessionStatus]:
        """A future of the status as soon as it is not running."""
        done: Future[SessionStatus] = Future()
        with self._lock:
            if self.status == "running" and not self.stopped:
                self._waiters.append(done)
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
                queue=tuple(message.text for message in self._inbox),
                events=tuple(self._recorder.events),
            )

    async def stop(self) -> None:
        """End the run, save what there is, say good-bye. On the runtime's loop."""
        with self._lock:
            if self.stopped:
                return
            self.stopped = True
            self._inbox.clear()
        self._cancel()
        if self._worker is not None:
            await asyncio.wait({self._worker})
        await self._saver.flush()
        self._recorder.record(SessionStopped(agent_id=self.agent.agent_id))
        self._settle()
        self.agent.forget_locals(self.conversation_id)

    # On the runtime's loop.

    def _pump(self) -> None:
        if self._worker is None:
            self._worker = asyncio.ensure_future(self._work())
        else:
            self._announce_queue()

    async def _work(self) -> None:
        while True:
            with self._lock:
                if not self._inbox:
                    self._worker = None
                    break
                message = self._inbox.popleft()
            if self._outcome == "running":
                self._announce_queue()
            self._outcome = "running"
            self.error = None
            self._announce_status()
            self._outcome = await self._answer(message)
        self._announce_status()
        self._settle()

    async def _answer(self, message: Message) -> SessionStatus:
        """Run the agent on one message and save what came of it."""
        self._state = self._state.add_message(message)
        with self._lock:
            rows = self._transcript.add_message(message)
        self._show(rows)
        self._saver.add(state=self._state, added=tuple(rows))
        self._saver.save()
        run: Run | None = None
        try:
            run = self._run = self.agent.begin(self._state, recorder=self._recorder)
            self._leg = asyncio.ensure_future(run_leg(run))
            if self._cancel_asked:
                self._leg.cancel()
            await asyncio.wait({self._leg})
            self._leg.result()
            return "interrupted" if run.interrupted else "idle"
        except (ExecutionCancelled, asyncio.CancelledError):
            return "cancelled"
        except AgentError as error:
            self.error = str(error)
            return "error"
        except Exception as error:
            logger.exception("the run of conversation %s failed in a way it should not", self.conversation_id)
            self.error = f"{type(error).__name__}: {error}"
            return "error"
        finally:
            self._cancel_asked = False
            self._leg = self._run = None
            if run is not None:
                self._state = run.state
            self._saver.add(state=self._state)
            await self._saver.flush()

    def _cancel(self) -> None:
        if self._leg is not None:
            self._leg.cancel()
        elif self._worker is not None:
            self._cancel_asked = True

    def _fold(self, event: Event) -> None:
        self._folded = self._transcript.apply(event)

    def _react(self, event: Event) -> None:
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
        self._recorder.record(QueueChanged(agent_id=self.agent.agent_id, texts=texts))

    def _announce_status(self) -> None:
        status = self.status
        if status != self._announced:
            self._announced = status
            self._recorder.record(StatusChanged(agent_id=self.agent.agent_id, status=status, error=self.error))

    def _settle(self) -> None:
        with self._lock:
            if self.status == "running" and not self.stopped:
                return  # another message came meanwhile
            waiters, self._waiters = self._waiters, []
            status = self.status
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(status)

    def _saved(self, revision: int) -> None:
        self._recorder.record(Saved(agent_id=self.agent.agent_id, revision=revision))

    def _save_failed(self, error: Exception) -> None:
        self.error = f"not saved: {error}"
        self._recorder.record(SaveFailed(agent_id=self.agent.agent_id, error=str(error)))

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
    return persistence.load_conversation(scope, conversation_id).result(timeout=60)
