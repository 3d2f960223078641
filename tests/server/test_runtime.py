"""The thread in which agents live, and what happens where there is none."""

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sagents_nb import Agent, AgentError, ModelError, RunCancelled, ScriptedModel, SessionError, State
from sagents_nb.events import StatusChanged
from sagents_nb.server import runtime as runtime_module, session as session_module
from sagents_nb.server.cell import CellRun
from sagents_nb.server.runtime import Runtime, runtime
from sagents_nb.server.session import running_sessions

from .doubles import TIMEOUT, EchoModel, WaitingModel, scripted, texts

ROOT = Path(__file__).parents[2]


def script(source: str, *, timeout: float = 60) -> tuple[str, float]:
    """Run a program of its own; what it printed, and the seconds it took."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, time.monotonic() - started


def test_there_is_one_and_it_is_a_daemon_thread() -> None:
    first = runtime()
    assert runtime() is first
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "sagents-runtime" and thread.is_alive()]
    assert thread.daemon
    assert first.alive


@pytest.fixture
def own() -> Iterator[Runtime]:
    """A runtime of the test alone."""
    mine = Runtime()
    yield mine
    mine.close()


def test_a_closed_one_is_replaced(monkeypatch: pytest.MonkeyPatch, own: Runtime) -> None:
    monkeypatch.setattr(runtime_module, "_runtime", own)
    assert runtime() is own
    session = scripted("x").session()
    own.close()
    assert not own.alive
    new = runtime()
    assert new is not own
    with pytest.raises(SessionError, match="the event loop this session lived on has ended; begin another"):
        session.send("hi")
    assert session.status == "idle"
    assert session not in running_sessions()
    session.stop()
    new.close()


def test_a_session_on_a_dead_runtime_is_not_given_back(monkeypatch: pytest.MonkeyPatch, own: Runtime) -> None:
    monkeypatch.setattr(runtime_module, "_runtime", own)
    agent = scripted("one", "two")
    dead = agent.session(conversation_id="dead-runtime")
    dead.send("a")
    dead.wait(TIMEOUT)
    own.close()
    alive = agent.session(conversation_id="dead-runtime")
    assert alive is not dead
    assert texts(alive) == ["user: a", "assistant: one"]
    alive.send("b")
    assert alive.wait(TIMEOUT) == "idle"
    alive.stop()
    runtime().close()


def nothing_that_runs_on_it_ends_it() -> None:
    """Rule: what one agent's code raises is not the end of the others."""
    mine = Runtime()
    try:
        for end in (SystemExit, KeyboardInterrupt):

            async def leave(end: type[BaseException] = end) -> None:
                raise end

            with pytest.raises(end):
                mine.submit(leave()).result(TIMEOUT)

            async def stay() -> str:
                await asyncio.sleep(0)
                return "here"

            assert mine.alive
            assert mine.submit(stay()).result(TIMEOUT) == "here"
    finally:
        mine.close()


def test_nothing_that_runs_on_it_ends_it() -> None:
    nothing_that_runs_on_it_ends_it()


def test_if_the_loop_were_not_gone_on_with_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(self: Runtime) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            pass
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def alive_soon_ends(self: Runtime) -> bool:
        self._thread.join(1)
        return self._thread.is_alive()

    monkeypatch.setattr(Runtime, "_serve", serve)
    monkeypatch.setattr(Runtime, "alive", property(alive_soon_ends))
    with pytest.raises((AssertionError, SessionError)):
        nothing_that_runs_on_it_ends_it()


# agent.run


def test_run_is_execute_for_those_who_do_not_await() -> None:
    result = scripted("Hello!").run("hi")
    assert (result.status, result.text) == ("completed", "Hello!")


async def test_run_works_inside_a_running_loop() -> None:
    assert scripted("Hello!").run("hi").text == "Hello!"


def test_run_raises_what_execute_raises() -> None:
    with pytest.raises(AgentError) as caught:
        scripted(ModelError("no", type="refused")).run("hi")
    assert caught.value.type == "refused"
    assert [message.text for message in caught.value.state.messages] == ["hi"]
    with pytest.raises(AgentError, match="nothing to answer"):
        scripted("x").run(State())


def test_run_may_be_called_from_many_threads() -> None:
    agent = Agent(model=EchoModel())
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = agent.run(str(number)).text

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert answers == {number: f"echo {number}" for number in range(8)}


def test_an_interrupt_that_comes_with_the_answer_does_not_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the moment in which the run ends: there is nothing left to cancel, but a State to keep."""
    result = concurrent.futures.Future.result
    calls = 0

    def interrupted_once(self: Any, timeout: float | None = None) -> Any:
        nonlocal calls
        calls += 1
        value = result(self, timeout)
        if calls == 1:
            raise KeyboardInterrupt
        return value

    agent = scripted("done")
    with monkeypatch.context() as patch:
        patch.setattr(concurrent.futures.Future, "result", interrupted_once)
        with pytest.raises(RunCancelled) as caught:
            agent.run("hi")
    assert caught.value.state.last_text == "done"


CTRL_C = """
    import os, signal, threading, time
    from sagents_nb import Agent, RunCancelled
    from tests.server.doubles import WaitingModel, eventually, scripted

    def ctrl_c(model, times=1, when=lambda: True):
        def press():
            model.reached.wait(20)
            eventually(when)
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.5)
        threading.Thread(target=press, daemon=True).start()
"""


def test_ctrl_c_ends_a_run_and_keeps_what_it_reached() -> None:
    printed, _ = script(
        CTRL_C
        + """
    model = WaitingModel()
    ctrl_c(model)
    try:
        Agent(model=model).run("hi")
    except RunCancelled as cancelled:
        print([(message.text, message.status) for message in cancelled.state.messages])
        print(cancelled)
    print(scripted("still here").run("hi").text)
    """
    )
    assert printed.splitlines() == [
        "[('hi', 'complete'), ('Half an ', 'cancelled')]",
        "the run was cancelled; .state holds what it reached",
        "still here",
    ]


GIVEN_TO_ANOTHER_THREAD = (
    CTRL_C
    + """
    missed = threading.Event()

    def press():
        model.reached.wait(20)
        time.sleep(0.5)  # by then the main thread waits; before, it would see the signal in any case
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # this wakes nobody who waits
        if not ended.wait(2):
            missed.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    model, ended = WaitingModel(), threading.Event()
    threading.Thread(target=press, daemon=True).start()
    try:
        Agent(model=model).run("hi")
    except RunCancelled as cancelled:
        ended.set()
        print("missed" if missed.is_set() else "seen", cancelled.state.messages[-1].text)
    """
)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals cannot be sent to a thread here")
def test_ctrl_c_that_the_system_gives_to_another_thread_is_not_missed() -> None:
    assert script(GIVEN_TO_ANOTHER_THREAD)[0] == "seen Half an \n"


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals cannot be sent to a thread here")
def test_in_one_long_wait_it_would_be() -> None:
    long = "import sagents_nb.waiting as waiting; waiting.STEP = 60\n"
    assert script(long + textwrap.dedent(GIVEN_TO_ANOTHER_THREAD))[0] == "missed Half an \n"


def test_ctrl_c_while_waiting_for_a_session_cancels_its_run() -> None:
    printed, _ = script(
        CTRL_C
        + """
    model = WaitingModel()
    session = Agent(model=model).session()
    ctrl_c(model, when=lambda: session._server._waiters)
    session.send("hi")
    try:
        session.wait()
    except KeyboardInterrupt:
        print(session.wait(20), [(row.text, row.content.get("stop_reason")) for row in session.display_messages])
    """
    )
    assert printed == "cancelled [('hi', None), ('Half an ', 'cancelled')]\n"


def test_ctrl_c_twice_gets_the_program_back_whatever_the_run_does() -> None:
    printed, seconds = script(
        CTRL_C
        + """
    import asyncio
    from sagents_nb import Middleware, ScriptedModel

    class Deaf(Middleware):
        reached: object = None
        async def before_model(self, state, run):
            self.reached.set()
            while True:
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    pass

    deaf = Deaf(reached=threading.Event())
    ctrl_c(deaf, times=2)
    started = time.monotonic()
    try:
        Agent(model=ScriptedModel(["x"]), middleware=[deaf]).run("hi")
    except KeyboardInterrupt as error:
        print(type(error).__name__, time.monotonic() - started < 9)
    """
    )
    assert printed == "KeyboardInterrupt True\n"
    assert seconds < 30


# The end of the process, and its copies.


def test_a_program_ends_promptly_whatever_its_sessions_do() -> None:
    printed, seconds = script(
        """
        import threading, time
        from sagents_nb import Agent, ScriptedModel, ToolCall, tool
        from tests.server.doubles import WaitingModel

        began = threading.Event()

        @tool
        def sleep() -> str:
            "Sleep."
            began.set()
            time.sleep(600)
            return ""

        model = WaitingModel()
        waiting = Agent(model=model).session()
        waiting.send("hi")
        sleeping = Agent(model=ScriptedModel([ToolCall("sleep")]), tools=[sleep]).session()
        sleeping.send("hi")
        model.reached.wait(20)
        began.wait(20)
        print(waiting.status, sleeping.status)
        """
    )
    assert printed == "running running\n"
    assert seconds < 20  # it takes one, most of it imports


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_has_a_runtime_and_sessions_of_its_own() -> None:
    printed, _ = script(
        """
        import os, warnings
        from sagents_nb import SessionError
        from sagents_nb.server.runtime import runtime
        from sagents_nb.server.session import running_sessions
        from tests.server.doubles import scripted

        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads and fork
        agent = scripted("one", "two")
        session = agent.session(conversation_id="c")
        session.send("a")
        session.wait(20)
        parent, home = os.getpid(), runtime()
        child = os.fork()
        if child == 0:
            try:
                assert runtime() is not home
                assert running_sessions() == []
                try:
                    session.send("b")
                except SessionError as error:
                    print(str(error).replace(str(parent), "PID"))
                session.stop()
                mine = agent.session(conversation_id="c")
                assert mine is not session
                mine.send("b")
                print(mine.wait(20), [row.text for row in mine.display_messages], flush=True)
                os._exit(0)
            except BaseException as error:
                print("child failed:", repr(error), flush=True)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert runtime() is home
        session.send("b")
        print(status, session.wait(20), [row.text for row in session.display_messages])
        """
    )
    assert printed.splitlines() == [
        "this session lives in process PID, of which this one is a fork; begin one here with agent.session()",
        "idle ['a', 'one', 'b', 'two']",
        "0 idle ['a', 'one', 'b', 'two']",
    ]


# Where threads cannot start (Pyodide), the running loop serves.


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "sagents-runtime":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(runtime_module, "_runtime", None)


@pytest.mark.usefixtures("no_threads")
async def test_without_threads_the_running_loop_serves() -> None:
    agent = scripted("one", "two")
    session = agent.session()
    home = runtime()
    assert not home.in_thread
    assert home.loop is asyncio.get_running_loop()
    session.send("a")
    session.send("b")
    assert session.status == "running"
    assert await session == "idle"
    assert texts(session) == ["user: a", "assistant: one", "user: b", "assistant: two"]
    await session.aclose()
    assert session.stopped


@pytest.mark.usefixtures("no_threads")
async def test_without_threads_a_run_can_be_cancelled_and_watched() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    session.send("a")
    async for event in session.events():
        if event.type == "model_delta":
            session.cancel()
        if isinstance(event, StatusChanged) and event.status != "running":
            break
    assert session.status == "cancelled"
    assert texts(session) == ["user: a", "assistant: Half an "]
    await session.aclose()


@pytest.mark.usefixtures("no_threads")
async def test_without_threads_what_would_wait_names_its_twin() -> None:
    session = scripted("x").session(conversation_id="no-threads")
    for call, instead in (
        (session.wait, "await session.idle()"),
        (session.stop, "await session.aclose()"),
        (lambda: session.agent.run("hi"), "await agent.execute(…)"),
        (lambda: session.agent.replace(name="b").session(conversation_id="no-threads"), "await session.aclose()"),
    ):
        with pytest.raises(SessionError) as caught:
            call()
        assert instead in str(caught.value)
    assert session.alive
    assert session.agent.session(conversation_id="no-threads") is session
    await session.aclose()


@pytest.mark.usefixtures("no_threads")
async def test_without_threads_a_cell_that_runs_again_still_ends_what_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = scripted("x")
    monkeypatch.setattr(session_module, "executing_cell", lambda: CellRun("A", "1"))
    first = agent.session()
    monkeypatch.setattr(session_module, "executing_cell", lambda: CellRun("A", "2"))
    second = agent.session()
    async with asyncio.timeout(TIMEOUT):
        while not first.stopped:  # noqa: ASYNC110 - a session tells of its end by an event, which this is not about
            await asyncio.sleep(0)
    assert second.alive
    await second.aclose()


@pytest.mark.usefixtures("no_threads")
def test_without_threads_and_without_a_loop_there_is_nowhere_to_live() -> None:
    with pytest.raises(SessionError, match="no thread can be started here, .* call this from a notebook cell"):
        scripted("x").session()
    assert running_sessions() == []


def test_a_scripted_model_keeps_its_place_on_two_loops() -> None:
    """One agent on the runtime and on a loop of the caller's: the models are shared."""
    agent = Agent(model=ScriptedModel(["one", "two", "three"]))
    texts_of = [agent.run("a").text, asyncio.run(agent.execute("b")).text, agent.run("c").text]
    assert texts_of == ["one", "two", "three"]
