"""Tools for the main thread, in a real kernel: when they run, and what Interrupt and Stop do to them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("ipykernel")

from .doubles import TIMEOUT
from .test_kernel import SOON, Kernel

SETUP = """
from sagents_nb import ToolCall, tool
from sagents_nb.events import ToolEnded, ToolWaiting

ran = []

def here():
    return threading.current_thread() is threading.main_thread()

@tool(thread="main")
def draw(number: int = 1) -> str:
    "Draws."
    print("drawing", number)
    ran.append(number)
    return f"on the main thread: {here()}"

@tool(thread="main", timeout=1)
def hurry() -> str:
    "Has little time."
    ran.append("hurry")
    return "ran"

began = threading.Event()

@tool(thread="main")
def linger() -> str:
    "Takes its time."
    ran.append("linger")
    began.set()
    time.sleep(60)
    return "slept"

def agent(*calls):
    return Agent(model=ScriptedModel([*calls, "done", "again"]), tools=[draw, hurry, linger])

def told(state):
    return [r.text for m in state.messages for r in m.tool_results]

def printed(events):
    return [e.output for e in events if isinstance(e, ToolEnded)]
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    kernel.run(SETUP)
    yield kernel
    kernel.close()


@pytest.fixture(autouse=True)
def _clean(kernel: Kernel) -> Iterator[None]:
    yield
    kernel.run("for each in running_sessions(): each.stop()\nran.clear(); began.clear()")


def wait_until(kernel: Kernel, condition: str) -> None:
    """Ask in short cells, between which the kernel is idle."""
    end = time.monotonic() + TIMEOUT
    while kernel.run(f"bool({condition})").text != "True":
        assert time.monotonic() < end, condition
        time.sleep(0.05)


WAITED_FOR = {
    "agent.run": "state = agent(ToolCall('draw')).run('go').state",
    "session.wait": "s = agent(ToolCall('draw')).session(); s.send('go'); s.wait(20); state = s.state",
    "session.subscribe": """
s = agent(ToolCall('draw')).session()
with s.subscribe() as events:
    s.send('go')
    for event in events:
        if event.type == 'run_ended':
            break
state = s.state
""",
    "await session": "s = agent(ToolCall('draw')).session(); s.send('go'); await s; state = s.state",
    "await agent.execute": "state = (await agent(ToolCall('draw')).execute('go')).state",
}


@pytest.mark.parametrize("code", WAITED_FOR.values(), ids=WAITED_FOR)
def test_a_cell_that_waits_for_the_agent_lets_its_tools_run(kernel: Kernel, code: str) -> None:
    output = kernel.run(code)
    assert output.printed == ""  # it went to the call
    assert kernel.run("told(state)").text == "['on the main thread: True']"


def test_an_idle_kernel_lets_them_run(kernel: Kernel) -> None:
    kernel.run("s = agent([ToolCall('draw', {'number': n}) for n in (1, 2, 3)]).session(); s.send('go')")
    wait_until(kernel, "s.status == 'idle'")
    assert kernel.run("ran, set(told(s.state))").text == "([1, 2, 3], {'on the main thread: True'})"
    assert kernel.run("printed(s.snapshot().events)").text == "['drawing 1\\n', 'drawing 2\\n', 'drawing 3\\n']"


def test_while_a_cell_is_busy_they_wait_and_say_so(kernel: Kernel) -> None:
    output = kernel.run(
        "s = agent(ToolCall('draw')).session(); s.send('go')\n"
        "while not any(isinstance(e, ToolWaiting) for e in s.snapshot().events): time.sleep(0.05)\n"
        "print(ran, [e.call.name for e in s.snapshot().events if isinstance(e, ToolWaiting)])"
    )
    assert output.printed == "[] ['draw']\n"
    wait_until(kernel, "s.status == 'idle'")
    assert kernel.run("told(s.state)").text == "['on the main thread: True']"


def test_one_that_was_given_up_while_it_waited_does_not_run_later(kernel: Kernel) -> None:
    kernel.run("s = agent(ToolCall('hurry')).session(); s.send('go')\nwhile s.status == 'running': time.sleep(0.05)")
    assert kernel.run("told(s.state)").text == (
        "['Tool hurry waited 1 s for the main thread, where something else runs, and was given up before it began.']"
    )
    assert kernel.run("ran").text == "[]"


def test_interrupt_ends_a_tool_that_runs_in_an_idle_kernel_and_the_run_goes_on(kernel: Kernel) -> None:
    # What the button does, from inside: while the tool runs no cell could tell us that it does.
    kernel.run(
        "import os, signal\ndef press():\n    began.wait(); time.sleep(0.1); os.kill(os.getpid(), signal.SIGINT)"
    )
    kernel.run(
        "threading.Thread(target=press, daemon=True).start()\ns = agent(ToolCall('linger')).session(); s.send('go')"
    )
    wait_until(kernel, "s.status == 'idle'")
    assert kernel.run("(told(s.state), s.state.last_text)").text == (
        "(['Tool linger was interrupted by the user.'], 'done')"
    )


INTERRUPTED = {
    "agent.run": ("agent(ToolCall('linger')).run('go')", "RunCancelled"),
    "session.wait": ("s = agent(ToolCall('linger')).session(); s.send('go'); s.wait()", "KeyboardInterrupt"),
    "await session": ("s = agent(ToolCall('linger')).session(); s.send('go'); await s", "CancelledError"),
    "await agent.execute": ("await agent(ToolCall('linger')).execute('go')", "CancelledError"),
}


@pytest.mark.parametrize(("code", "error"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_interrupt_ends_the_tool_and_the_cell_that_waits(kernel: Kernel, code: str, error: str) -> None:
    output = kernel.interrupt(code, when="began.is_set()")
    assert output.error == error
    assert output.seconds < SOON
    assert kernel.run("ran, here()").text == "(['linger'], True)"


def test_stop_interrupts_the_tool_and_nothing_else(kernel: Kernel) -> None:
    kernel.run(
        "s = agent(ToolCall('linger')).session(); s.send('go')\n"
        "threading.Thread(target=lambda: (began.wait(), time.sleep(0.1), s.cancel()), daemon=True).start()"
    )
    assert kernel.run("s.wait(20); time.sleep(0.5); s.status").text == "'cancelled'"
    assert kernel.run("ran").text == "['linger']"
    kernel.run("s.send('again')")
    wait_until(kernel, "s.status == 'idle'")


def test_the_kernels_own_handling_of_interrupt_is_as_it_was(kernel: Kernel) -> None:
    kernel.run("import signal; before = signal.getsignal(signal.SIGINT)")
    kernel.run("agent(ToolCall('draw')).run('go')")
    kernel.run("s = agent(ToolCall('draw')).session(); s.send('go')")
    wait_until(kernel, "s.status == 'idle'")
    assert kernel.run("signal.getsignal(signal.SIGINT) is before").text == "True"
    assert kernel.interrupt("while True: pass", when="True").error == "KeyboardInterrupt"
