"""Tools for the main thread: who lets them run, what they are given, and what is told when nobody does."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sagents_nb import Agent, RunCancelled, ScriptedModel, Session, State, ToolCall, ToolContext, main_thread, tool
from sagents_nb.events import Event, ToolAbandoned, ToolEnded, ToolWaiting
from sagents_nb.execution import threads

ROOT = Path(__file__).parents[2]
TIMEOUT = 20


def is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


@tool(thread="main")
def where() -> str:
    "Says where it runs."
    print("printed there")
    return f"main: {is_main()}"


def agent_for(*tools: Any, calls: int = 1, **options: Any) -> Agent:
    turns: list[Any] = [[ToolCall(tools[0].name) for _ in range(calls)], "done"]
    return Agent(model=ScriptedModel(turns, repeat=True), tools=tools, **options)


def told(state: State) -> list[str]:
    return [result.text for message in state.messages for result in message.tool_results]


@pytest.fixture
def sessions() -> Iterator[Callable[[Agent], Session]]:
    made: list[Session] = []

    def make(agent: Agent) -> Session:
        made.append(agent.session())
        return made[-1]

    yield make
    for session in made:
        session.stop()


Sessions = Callable[[Agent], Session]


def test_a_run_that_is_waited_for_runs_them_on_the_main_thread() -> None:
    result = agent_for(where).run("go")
    assert told(result.state) == ["main: True"]
    assert [event.output for event in result.events if isinstance(event, ToolEnded)] == ["printed there\n"]


def test_a_session_that_is_waited_for_does_so_too(sessions: Sessions) -> None:
    session = sessions(agent_for(where))
    session.send("go")
    assert session.wait(TIMEOUT) == "idle"
    assert told(session.state) == ["main: True"]


def test_a_session_whose_events_are_read_does_so_too(sessions: Sessions) -> None:
    session = sessions(agent_for(where))
    with session.subscribe() as events:
        session.send("go")
        for event in events:
            if event.type == "run_ended":
                break
    assert told(session.state) == ["main: True"]


async def test_a_loop_on_the_main_thread_that_awaits_does_so_too(sessions: Sessions) -> None:
    session = sessions(agent_for(where))
    session.send("go")
    await session.idle(TIMEOUT)
    assert told(session.state) == ["main: True"]


async def test_a_run_that_is_on_the_main_thread_already_runs_them_at_once() -> None:
    result = await agent_for(where).execute("go")
    assert told(result.state) == ["main: True"]
    assert [event.output for event in result.events if isinstance(event, ToolEnded)] == ["printed there\n"]


def test_other_tools_do_not_run_there() -> None:
    @tool
    def elsewhere() -> str:
        return f"main: {is_main()}"

    assert told(agent_for(elsewhere).run("go").state) == ["main: False"]


def test_without_serving_they_would_wait_for_ever(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagents_nb.main_thread.serve", lambda: None)
    session = sessions(agent_for(where))
    session.send("go")
    with pytest.raises(TimeoutError):
        session.wait(0.5)


who = contextvars.ContextVar("who", default="nobody")


def test_context_and_context_variables_are_those_of_the_call() -> None:
    @tool(thread="main")
    def look(context: ToolContext) -> str:
        return f"{who.get()} {context.scope} {context.cancelled}"

    agent = agent_for(look, calls=2, scope=7, callbacks={"on_tool_pre_execution": lambda event: who.set(event.call.id)})
    state = agent.run("go").state
    assert told(state) == [f"{call.id} 7 False" for call in state.messages[1].tool_calls]
    assert who.get() == "nobody"


ENDS: list[tuple[Callable[[], Any], str]] = [
    (lambda: {"a": 1}, '{"a":1}'),
    (lambda: asyncio.sleep(0, "awaited"), "awaited"),
    (lambda: _raise(ValueError("no")), "ERROR: (ValueError) no"),
    (lambda: _raise(StopIteration("x")), "ERROR: (RuntimeError) StopIteration raised: x"),
    (lambda: _raise(GeneratorExit("x")), "ERROR: (RuntimeError) GeneratorExit raised: x"),
    (lambda: _raise(KeyboardInterrupt()), "Tool act was interrupted by the user."),
    (lambda: sys.exit(3), "ERROR: (SystemExit) 3"),
]


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(("body", "text"), ENDS, ids=range(len(ENDS)))
@pytest.mark.parametrize("inline", [False, True])
def test_whatever_it_does_is_a_result_that_the_model_sees(body: Callable[[], Any], text: str, inline: bool) -> None:
    act = tool(name="act", thread="main")(lambda: body())
    agent = agent_for(act)
    result = asyncio.run(agent.execute("go")) if inline else agent.run("go")
    assert told(result.state) == [text]
    assert result.text == "done"


def test_a_tool_may_run_an_agent_with_such_a_tool_itself() -> None:
    @tool(thread="main")
    def outer() -> str:
        return told(agent_for(where).run("go").state)[0]

    assert told(agent_for(outer).run("go").state) == ["main: True"]


# Waiting for it.


def events_of(session: Session) -> list[Event]:
    return list(session.snapshot().events)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_when_nobody_waits_the_model_is_told_what_to_do_and_it_never_runs(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "NOTICE", 0.02)
    monkeypatch.setattr(threads, "PATIENCE", 0.1)
    ran: list[bool] = []
    act = tool(name="act", thread="main")(lambda: ran.append(is_main()))
    session = sessions(agent_for(act))
    session.send("go")
    wait_for(lambda: session.status == "idle")  # the main thread is busy with this
    assert told(session.state) == [
        (
            "Tool act has to run on the main thread of the program, which does not wait for the agent. There, call "
            "agent.run(…) or session.wait(), or `await session`; or make the tool without thread='main'."
        )
    ]
    assert [type(event) for event in events_of(session) if isinstance(event, (ToolWaiting, ToolAbandoned))] == [
        ToolWaiting
    ]
    assert agent_for(where).run("go").text == "done"
    assert ran == []


def test_a_script_that_is_about_to_wait_is_waited_for(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "NOTICE", 0.02)
    session = sessions(agent_for(where))
    session.send("go")
    wait_for(lambda: any(isinstance(event, ToolWaiting) for event in events_of(session)))
    assert session.wait(TIMEOUT) == "idle"
    assert told(session.state) == ["main: True"]


class Busy:
    """Two tools, of which the first holds the main thread until it is let go."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.ran: list[str] = []
        self.hold = tool(name="hold", thread="main")(self._hold)
        self.next = tool(name="next", thread="main", timeout=0.1)(self._next)

    def _hold(self) -> str:
        self.began.set()
        self.go.wait(TIMEOUT)
        return "let go"

    def _next(self) -> str:
        self.ran.append("next")
        return "ran"


def let_go_soon(busy: Busy) -> None:
    threading.Timer(0.5, busy.go.set).start()


def test_the_time_of_a_tool_counts_while_it_waits_and_then_it_does_not_run() -> None:
    busy = Busy()
    model = ScriptedModel([[ToolCall("hold"), ToolCall("next")], "done"])
    let_go_soon(busy)
    result = Agent(model=model, tools=[busy.hold, busy.next]).run("go")
    assert told(result.state) == [
        "let go",
        "Tool next waited 0.1 s for the main thread, where something else runs, and was given up before it began.",
    ]
    assert busy.ran == []
    assert [event for event in result.events if isinstance(event, ToolAbandoned)] == []


def test_without_taking_it_out_of_the_queue_it_would_run_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concurrent.futures.Future.cancel", lambda self: False)
    busy = Busy()
    model = ScriptedModel([[ToolCall("hold"), ToolCall("next")], "done"])
    let_go_soon(busy)
    Agent(model=model, tools=[busy.hold, busy.next]).run("go")
    assert busy.ran == ["next"]


# Stop, time and Ctrl-C.


class Sleeper:
    """A tool that sleeps on the main thread, and what becomes of it."""

    def __init__(self, **options: Any) -> None:
        self.began = threading.Event()
        self.ended: list[str] = []
        self.tool = tool(name="rest", thread="main", **options)(self._rest)

    def _rest(self) -> str:
        self.began.set()
        try:
            time.sleep(TIMEOUT)
        except KeyboardInterrupt:
            self.ended.append("interrupted")
            raise
        self.ended.append("slept")
        return "slept"


def when_begun(sleeper: Sleeper, action: Callable[[], object]) -> None:
    def act() -> None:
        if sleeper.began.wait(TIMEOUT):
            time.sleep(0.1)
            action()

    threading.Thread(target=act, daemon=True).start()


def test_stop_interrupts_what_runs_there_and_nobody_else(sessions: Sessions) -> None:
    sleeper = Sleeper()
    session = sessions(agent_for(sleeper.tool))
    before = signal.getsignal(signal.SIGINT)
    when_begun(sleeper, session.cancel)
    session.send("go")
    assert session.wait(TIMEOUT) == "cancelled"
    assert sleeper.ended == ["interrupted"]
    assert told(session.state) == ["Tool call rest was stopped by the user before it was completed."]
    assert signal.getsignal(signal.SIGINT) is before


def test_without_the_interrupt_stop_would_leave_it_running(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_thread.Job, "stop", lambda self: None)
    monkeypatch.setattr("tests.core.test_main_thread.TIMEOUT", 1)
    sleeper = Sleeper()
    session = sessions(agent_for(sleeper.tool))
    when_begun(sleeper, session.cancel)
    session.send("go")
    assert session.wait(20) == "cancelled"
    assert sleeper.ended == ["slept"]


def test_one_that_takes_too_long_is_interrupted_and_the_run_goes_on() -> None:
    sleeper = Sleeper(timeout=0.3)
    result = agent_for(sleeper.tool).run("go")
    assert told(result.state) == ["Tool rest did not answer within 0.3 s and was given up."]
    assert (result.text, sleeper.ended) == ("done", ["interrupted"])


def test_ctrl_c_ends_the_tool_and_the_run_that_waits_for_it() -> None:
    sleeper = Sleeper()
    when_begun(sleeper, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    with pytest.raises(RunCancelled) as caught:
        agent_for(sleeper.tool).run("go")
    assert sleeper.ended == ["interrupted"]
    assert [message.role for message in caught.value.state.messages][:3] == ["user", "assistant", "tool"]


def test_stop_sends_no_signal_to_what_has_not_begun_or_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(signal, "pthread_kill", lambda thread, number: sent.append(number))
    job = main_thread.Job(lambda: job.stop())
    job.stop()
    assert sent == []
    job.run()
    assert sent == [signal.SIGINT]  # the one it sent itself, while it ran
    job.stop()
    assert sent == [signal.SIGINT]


def test_stop_in_the_moment_it_begins_or_ends_hits_nobody_else() -> None:
    for _ in range(300):
        began = threading.Event()
        job = main_thread.Job(began.set)

        def stop(job: main_thread.Job = job, began: threading.Event = began) -> None:
            began.wait(TIMEOUT)
            job.stop()

        thread = threading.Thread(target=stop)
        thread.start()
        job.run()
        thread.join()  # here a late signal would be raised
        assert job.done.done()


def test_a_program_whose_main_thread_waits_has_its_tools_run_there() -> None:
    program = """
import threading
from sagents_nb import Agent, ScriptedModel, ToolCall, tool

@tool(thread="main")
def where() -> str:
    return threading.current_thread().name

agent = Agent(model=ScriptedModel([ToolCall("where"), "done"], repeat=True), tools=[where])
print(agent.run("go").state.messages[2].tool_results[0].text)
session = agent.session()
session.send("go")
session.wait()
print(session.state.messages[2].tool_results[0].text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["MainThread", "MainThread"]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork on this system")
def test_a_forked_process_does_not_run_what_its_parent_was_to_run() -> None:
    program = """
import os
from sagents_nb import main_thread
main_thread.submit(main_thread.Job(lambda: print("ran", flush=True)))
if os.fork() == 0:
    main_thread.serve()
    os._exit(0)
os.wait()
print("parent", flush=True)
main_thread.serve()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["parent", "ran"]
