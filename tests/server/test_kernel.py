"""In a real kernel: what a person who presses Interrupt or runs a cell again finds."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("ipykernel")
from jupyter_client.manager import KernelManager

from .doubles import TIMEOUT

ROOT = Path(__file__).parents[2]
SOON = 3.0
"""Seconds within which an interrupted cell ends; it takes a quarter of one."""


class Output(NamedTuple):
    printed: str
    error: str
    text: str
    seconds: float


class Kernel:
    """A kernel and a connection of its own."""

    def __init__(self, folder: Path) -> None:
        self.manager: Any = KernelManager(transport="ipc", connection_file=str(folder / "k.json"))
        env = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
        self.manager.start_kernel(env=env, cwd=str(folder))
        self.client: Any = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.run("import asyncio, threading, time")
        self.run("from sagents_nb import Agent, RunCancelled, ScriptedModel")
        self.run("from sagents_nb.server.session import running_sessions")
        self.run("from tests.server.doubles import WaitingModel, scripted, texts")

    def begin(self, code: str, cell: str | None = None) -> str:
        """Start a cell."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        metadata = {"cellId": cell or uuid.uuid4().hex}
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(message)
        identity: str = message["header"]["msg_id"]
        return identity

    def end(self, identity: str) -> Output:
        """Wait for a cell to end."""
        started = time.monotonic()
        printed, error, text = "", "", ""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != identity:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    printed += content["text"]
                case "error":
                    error = content["ename"]
                case "execute_result":
                    text = content["data"]["text/plain"]
                case "status" if content["execution_state"] == "idle":
                    break
        while self.client.get_shell_msg(timeout=60)["parent_header"]["msg_id"] != identity:
            pass
        return Output(printed, error, text, time.monotonic() - started)

    def run(self, code: str, cell: str | None = None) -> Output:
        """A cell from beginning to end; it must not fail."""
        output = self.end(self.begin(code, cell))
        assert not output.error, output
        return output

    def interrupt(self, code: str, *, when: str) -> Output:
        """Run a cell and press Interrupt when something holds; what came of it, and how long it took from there."""
        # The cell itself presses, from a thread: nothing else could look at its model while it runs.
        press = f"""
def _press():
    deadline = time.monotonic() + {TIMEOUT}
    while not ({when}) and time.monotonic() < deadline:
        time.sleep(0.01)
    print("now", flush=True)
threading.Thread(target=_press, daemon=True).start()
"""
        identity = self.begin(press + code)
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["msg_type"] == "stream" and "now" in message["content"]["text"]:
                break
        time.sleep(0.3)  # nothing happens in the kernel's loop any more but what the toolkit sees to
        self.manager.interrupt_kernel()
        return self.end(identity)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    yield kernel
    kernel.close()


@pytest.fixture(autouse=True)
def _clean(kernel: Kernel) -> Iterator[None]:
    yield
    kernel.run("for each in running_sessions(): each.stop()")


def test_a_session_runs_on_while_a_cell_blocks(kernel: Kernel) -> None:
    kernel.run("s = Agent(model=ScriptedModel(['x' * 400], delay=0.005)).session()")
    output = kernel.run(
        "s.send('hi')\n"
        "before = len(s.snapshot().streaming_text)\n"
        "time.sleep(1.5)\n"
        "print(before, s.status, len(s.state.last_text))"
    )
    before, status, length = output.printed.split()
    assert int(before) < 400
    assert (status, length) == ("idle", "400")


def test_a_cell_may_await_a_session(kernel: Kernel) -> None:
    assert kernel.run("s = scripted('one', 'two').session(); s.send('a'); await s").text == "'idle'"
    assert kernel.run("s.send('b'); await s.idle()").text == "'idle'"
    assert kernel.run("texts(s)").text == "['user: a', 'assistant: one', 'user: b', 'assistant: two']"


INTERRUPTED = {
    "await session.idle()": ("await s.idle()", "CancelledError"),
    "await session": ("await s", "CancelledError"),
    "session.wait()": ("s.wait()", "KeyboardInterrupt"),
}


@pytest.mark.parametrize(("waits", "error"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_an_interrupted_cell_ends_soon_and_its_run_is_cancelled(kernel: Kernel, waits: str, error: str) -> None:
    kernel.run("model = WaitingModel(); s = Agent(model=model).session()")
    output = kernel.interrupt(f"s.send('hi')\n{waits}", when="model.reached.is_set()")
    assert output.error == error
    assert output.seconds < SOON
    assert kernel.run("s.wait(20)").text == "'cancelled'"
    assert kernel.run("texts(s)").text == "['user: hi', 'assistant: Half an ']"
    assert kernel.run("s.state.messages[-1].status").text == "'cancelled'"
    kernel.run("model.go.set()")
    assert kernel.run("s.send('again'); await s").text == "'idle'"
    assert kernel.run("texts(s)[-1]").text == "'assistant: Half an answer.'"


def test_without_the_heartbeat_an_awaiting_cell_would_end_late(kernel: Kernel) -> None:
    kernel.run("from sagents_nb.execution import heartbeat; interval, heartbeat.INTERVAL = heartbeat.INTERVAL, 60")
    try:
        kernel.run("await asyncio.sleep(0.3)")  # a beat that was set before has come
        kernel.run("model = WaitingModel(); s = Agent(model=model).session()")
        output = kernel.interrupt(
            f"threading.Timer({SOON + 3}, model.go.set).start()\ns.send('hi')\nawait s", when="model.reached.is_set()"
        )
        assert output.seconds > SOON - 1  # only when the run had come to its own end
        assert kernel.run("s.state.last_text").text == "'Half an answer.'"
    finally:
        kernel.run("heartbeat.INTERVAL = interval; heartbeat._pulses.clear()")


def test_an_interrupted_run_gives_its_state_back(kernel: Kernel) -> None:
    kernel.run("model = WaitingModel()")
    output = kernel.interrupt(
        "try:\n    Agent(model=model).run('hi')\nexcept RunCancelled as error:\n    state = error.state\n    raise",
        when="model.reached.is_set()",
    )
    assert output.error == "RunCancelled"
    assert output.seconds < SOON
    assert kernel.run("[(m.text, m.status) for m in state.messages]").text == (
        "[('hi', 'complete'), ('Half an ', 'cancelled')]"
    )
    assert kernel.run("scripted('still here').run('hi').text").text == "'still here'"


def test_an_interrupted_execution_gives_its_state_back(kernel: Kernel) -> None:
    kernel.run("model = WaitingModel()")
    output = kernel.interrupt(
        "import asyncio\n"
        "try:\n    await Agent(model=model).execute('hi')\n"
        "except asyncio.CancelledError as error:\n    state = error.state\n    raise",
        when="model.reached.is_set()",
    )
    assert output.error == "CancelledError"
    assert output.seconds < SOON
    assert kernel.run("state.messages[-1].text").text == "'Half an '"


def test_interrupting_a_cell_that_only_watches_does_not_cancel_the_run(kernel: Kernel) -> None:
    kernel.run("model = WaitingModel(); s = Agent(model=model).session()")
    output = kernel.interrupt(
        "s.send('hi')\nasync for event in s.events(until='idle'):\n    pass", when="model.reached.is_set()"
    )
    assert output.error == "CancelledError"
    assert output.seconds < SOON
    assert kernel.run("s.status").text == "'running'"
    assert kernel.run("model.go.set(); s.wait(20)").text == "'idle'"


def test_a_cell_that_runs_twenty_times_leaves_one_session_and_no_thread(kernel: Kernel) -> None:
    code = "s = scripted('one', repeat=True).session(); s.send('hi'); await s"
    count = "(threading.active_count(), len(running_sessions()))"
    kernel.run(code, cell="the-cell")
    kernel.run("first = s")
    before = kernel.run(count).text
    for _ in range(20):
        assert kernel.run(code, cell="the-cell").text == "'idle'"
    assert kernel.run(count).text == before
    assert before.endswith(", 1)")
    assert kernel.run("(first.stopped, s.stopped)").text == "(True, False)"


def test_another_cell_has_sessions_of_its_own(kernel: Kernel) -> None:
    kernel.run("a = scripted('x').session()", cell="A")
    kernel.run("b = scripted('x').session()", cell="B")
    kernel.run("c, d = scripted('x').session(), scripted('x').session()", cell="A")
    assert kernel.run("[each.stopped for each in (a, b, c, d)]").text == "[True, False, False, False]"


def test_what_goes_wrong_in_the_background_is_shown_by_the_session(kernel: Kernel) -> None:
    output = kernel.run("s = scripted(RuntimeError('no answer')).session(); s.send('hi'); print(s.wait(20), s.error)")
    assert output.printed == "error ScriptedModel(1 turns, 1 used) raised RuntimeError: no answer\n"
