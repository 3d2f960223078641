"""A run as a stream of its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from sagents_nb.events import Event
from sagents_nb.execution.loop import run_leg
from sagents_nb.execution.result import RunResult
from sagents_nb.execution.run import Run
from sagents_nb.state import State


class RunStream:
    """Events of one run, as they come.

    ::

        stream = agent.stream("Weather in Oslo?")
        async for event in stream:
            print(event.type)
        stream.result.text

    Leaving the loop early (``break``, ``return``, an exception) cancels the run. It begins with the iteration.

    Attributes:
        result: how the run ended; None before, and when it did not come to its end.
    """

    def __init__(self, run: Run, result: Callable[[Run], RunResult]) -> None:
        self.result: RunResult | None = None
        self._run = run
        self._result = result
        self._begun = False

    @property
    def state(self) -> State:
        """How far the run is."""
        return self._run.state

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """Run, and give the events.

        Raises:
            AgentError: the run failed; all its events were given before.
            RuntimeError: it was iterated over already.
        """
        if self._begun:
            raise RuntimeError("a stream of events can be read once; .result and .state say how it ended")
        self._begun = True
        waiting: asyncio.Queue[Event | None] = asyncio.Queue()
        self._run.recorder.listeners.append(waiting.put_nowait)
        leg = asyncio.ensure_future(run_leg(self._run))
        leg.add_done_callback(lambda _: waiting.put_nowait(None))
        try:
            while (event := await waiting.get()) is not None:
                yield event
            await leg
            self.result = self._result(self._run)
        finally:
            self._run.recorder.listeners.remove(waiting.put_nowait)
            if not leg.done():
                leg.cancel()
                await asyncio.wait({leg})
            if not leg.cancelled():
                leg.exception()  # it was told, or nobody listens any more: asyncio need not warn of it

    def __repr__(self) -> str:
        return f"RunStream({self.result or ('running' if self._begun else 'not begun')})"
