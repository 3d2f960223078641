"""What saving and loading a long conversation costs: python -m tests.benchmarks.bench_store [TURNS]."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sagents_nb.events import Event, HookEnded, ModelEnded, ModelStarted
from sagents_nb.messages import Message
from sagents_nb.server.display import rows_of
from sagents_nb.server.persistence import Turn
from sagents_nb.state import State
from sagents_nb.store import Store

WORDS = "Saving costs what the turn added, however long the conversation has become. " * 14


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and what came of it."""
    start = time.perf_counter()
    result = job()
    return (time.perf_counter() - start) * 1000, result


def events_of(turn: int, answer: Message, state: State) -> tuple[Event, ...]:
    """Ten events, as of a run with four middlewares."""
    first = turn * 10
    hooks = [
        HookEnded(
            run_id=f"run-{turn}", seq=first + n, middleware=f"M{n % 4}", hook="before_model", cycle=1, duration=0.001,
            changed=n == 0, before=state, after=state,
        )
        for n in range(8)
    ]  # fmt: skip
    started = ModelStarted(run_id=f"run-{turn}", seq=first + 8, cycle=1, model="m")
    ended = ModelEnded(run_id=f"run-{turn}", seq=first + 9, cycle=1, model="m", message=answer, duration=1.0)
    return (*hooks, started, ended)


def main(turns: int = 2000) -> None:
    """Save a conversation turn by turn, read it, and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.duckdb"
        opening, store = timed(lambda: Store(path))
        state, raw, times = State(conversation_id="bench"), 0, []
        for turn in range(turns):
            question, answer = Message("user", f"{turn}: why?"), Message("assistant", f"{turn}: {WORDS}")
            before, state = state, state.add_message(question).add_message(answer)
            rows = [
                row for message in (question, answer) for row in rows_of(message, conversation_id="bench", sequence=1)
            ]
            rows = [row.replace(sequence=2 * turn + n) for n, row in enumerate(rows, 1)]
            events = events_of(turn, answer, before)
            raw += len(json.dumps([question.to_json(), answer.to_json()]))
            raw += len(json.dumps([row.model_dump(mode="json") for row in rows]))
            raw += len(json.dumps([event.to_json() for event in events]))
            saved = Turn("bench", state=state, added=tuple(rows), events=events)
            took, _ = timed(store.save_turn(None, saved).result)
            times.append(took)

        def show(name: str, value: float, unit: str) -> None:
            print(f"{name:<44}{value:>10,.1f} {unit}")

        show("open a new file", opening, "ms")
        show("save, median of turns 5 to 15", statistics.median(times[5:16]), "ms")
        show(f"save, median of the last 50 of {turns:,}", statistics.median(times[-50:]), "ms")
        show("save, slowest (a keyframe)", max(times), "ms")
        show(f"load_state ({len(state.messages):,} messages)", timed(lambda: store.load_state(None, "bench"))[0], "ms")
        show("load_conversation", timed(lambda: store.load_conversation(None, "bench").result())[0], "ms")
        show("display_messages(limit=50)", timed(lambda: store.display_messages(None, "bench", limit=50))[0], "ms")
        one = "select length(cast(state as varchar)) from agent_states where current"
        show("sql: the current agent_states", timed(lambda: store.sql(one))[0], "ms")
        show("sql: events by hook", timed(lambda: store.sql("select hook, count(*) from events group by all"))[0], "ms")
        show("sql for one owner", timed(lambda: store.sql("select count(*) from events", scope=None))[0], "ms")
        show("close", timed(store.close)[0], "ms")
        show("raw JSON", raw / 1e6, "MB")
        show("file", path.stat().st_size / 1e6, "MB")
        show("open again", timed(lambda: Store(path).close())[0], "ms")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
