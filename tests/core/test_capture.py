"""What a tool prints belongs to its call; ``sys.stdout`` is the real one for everybody else, and again afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sagents_nb import Agent, ScriptedModel, ToolCall, tool
from sagents_nb.events import ToolEnded
from sagents_nb.execution import capture
from sagents_nb.execution.capture import Output, captured


class Real(io.StringIO):
    """A stream that knows its encoding and its file, as the kernel's does."""

    encoding = "utf-8"

    def fileno(self) -> int:
        return 77

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def real_stdout() -> Iterator[Real]:
    """A stdout of our own, not a fixture: pytest swaps the stream between a fixture and its test."""
    stream, before = Real(), sys.stdout
    sys.stdout = stream
    try:
        yield stream
        assert sys.stdout is stream
    finally:
        sys.stdout = before


async def output_of(function: Any) -> str:
    agent = Agent(model=ScriptedModel([ToolCall("say"), "done"]), tools=[tool(name="say")(function)])
    result = await agent.execute("go")
    assert [r.text for r in result.state.messages[2].tool_results] == ["ok"]
    return next(event.output for event in result.events if isinstance(event, ToolEnded))


async def test_libraries_find_the_real_streams_properties_while_tools_run() -> None:
    with real_stdout() as real:
        seen: list[Any] = []

        def say() -> str:
            seen.extend([sys.stdout.encoding, sys.stdout.fileno(), sys.stdout.isatty(), sys.stdout.writable()])
            sys.stdout.writelines(["a", "b"])
            sys.stdout.flush()
            print("c", end="")
            return "ok"

        assert await output_of(say) == "abc"
        assert seen == ["utf-8", 77, True, True]
        assert real.getvalue() == ""


async def test_what_is_printed_before_a_tool_fails_is_kept() -> None:
    with real_stdout():
        agent = Agent(model=ScriptedModel([ToolCall("say"), "done"]), tools=[tool(name="say")(_prints_and_fails)])
        result = await agent.execute("go")
        assert [e.output for e in result.events if isinstance(e, ToolEnded)] == ["so far\n"]


def _prints_and_fails() -> str:
    print("so far")
    raise ValueError("x")


async def test_a_tool_may_redirect_its_own_output() -> None:
    with real_stdout():
        inner = io.StringIO()

        def say() -> str:
            print("before")
            with contextlib.redirect_stdout(inner):
                print("aside")
            print("after")
            return "ok"

        assert await output_of(say) == "before\nafter\n"
        assert inner.getvalue() == "aside\n"


async def test_a_tool_that_runs_an_agent_keeps_its_own_prints_apart() -> None:
    with real_stdout():

        async def inner_say() -> str:
            print("inner")
            return "ok"

        async def say() -> str:
            print("outer")
            told = await output_of(inner_say)
            print(f"it said {told!r}")
            return "ok"

        assert await output_of(say) == "outer\nit said 'inner\\n'\n"


async def test_what_a_task_prints_after_its_tool_ended_reaches_nobody_elses_output() -> None:
    with real_stdout():
        tasks: list[asyncio.Task[None]] = []

        async def later() -> None:
            await asyncio.sleep(0.02)
            print("late")

        async def say() -> str:
            tasks.append(asyncio.ensure_future(later()))
            return "ok"

        assert await output_of(say) == ""
        await asyncio.gather(*tasks)


def test_a_flood_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output()
    for _ in range(3):
        assert output.write("x" * 400_000) == 400_000
    kept = output.getvalue()
    assert kept.startswith("x" * 1_000_000 + "\n… (more than 1,000,000 characters; the rest is left out)")
    assert output.write("more") == 4
    assert output.getvalue() == kept


def test_users_that_come_and_go_leave_the_real_stream() -> None:
    with real_stdout() as real:
        one, two = Output(), Output()
        with captured(one):
            print("1")
            with captured(two):
                print("2")
            print("1 again")
        print("mine")
        assert (one.getvalue(), two.getvalue(), real.getvalue()) == ("1\n1 again\n", "2\n", "mine\n")


def test_a_stream_that_somebody_put_in_meanwhile_stays() -> None:
    with real_stdout() as real:
        mine = io.StringIO()
        with captured(Output()):
            sys.stdout = mine
        assert sys.stdout is mine
        sys.stdout = real


async def test_without_the_last_user_putting_it_back_the_stream_would_stay_swapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capture, "_users", 1)  # as if one had never left
    with pytest.raises(AssertionError), real_stdout():
        await output_of(lambda: "ok")
