"""The agent of the first tutorial, without a notebook: ``sagents-nb demo``."""

from __future__ import annotations

from pathlib import Path

from sagents_nb.agent import Agent
from sagents_nb.events import CycleStarted, Event, HookEnded, ModelEnded, RunEnded, ToolEnded
from sagents_nb.execution.result import RunResult
from sagents_nb.hooks import HookRun
from sagents_nb.messages import ToolCall
from sagents_nb.models.scripted import ScriptedModel
from sagents_nb.stack import Middleware
from sagents_nb.state import State
from sagents_nb.tools import tool
from sagents_nb.views import report_html

WEATHER = {"Oslo": "light snow, -3 °C", "Lima": "mist, 19 °C", "Pune": "sunny, 31 °C"}


@tool
def get_weather(city: str) -> str:
    """Current weather in a city.

    Args:
        city: name of the city, in English
    """
    return WEATHER.get(city, f"no station in {city}")


class CountCalls(Middleware):
    """Counts the calls of the model."""

    def before_model(self, state: State, run: HookRun) -> State:
        """Note one call more."""
        return state.put_metadata("model_calls", state.get_metadata("model_calls", 0) + 1)


class HouseStyle(Middleware):
    """Asks for short answers and measures them."""

    limit: int = 200

    def system_prompt(self) -> str:
        """Ask for short answers."""
        return f"Answer in at most {self.limit} characters."

    def before_model(self, state: State, run: HookRun) -> None:
        """Look on; it shows who runs when."""

    def after_model(self, state: State, run: HookRun) -> State:
        """Note the longest answer."""
        return state.put_metadata("longest", max(state.get_metadata("longest", 0), len(state.last_text)))


def make_agent() -> Agent:
    """The weather clerk, with a script for one question."""
    return Agent(
        name="weather clerk",
        model=ScriptedModel(
            [
                ["Let me look. ", ToolCall("get_weather", {"city": "Oslo"})],
                "The weather service says: **light snow, -3 °C**.",
            ]
        ),
        base_system_prompt="You are a weather clerk.",
        tools=[get_weather],
        middleware=[CountCalls(), HouseStyle(limit=120)],
    )


def run_demo(report: Path) -> RunResult:
    """Run the agent, print the sandwich's trace and the final State, write the report.

    Args:
        report: where the HTML goes.

    Raises:
        OSError: it cannot be written there.
    """
    agent = make_agent()
    print(f"{agent.name}: {agent.stack!r}\n")
    result = agent.run("What is the weather in Oslo?")
    for event in result.events:
        line = trace_line(event)
        if line:
            print(line)
    print("\nThe conversation")
    for message in result.state.messages:
        calls = ", ".join(f"{call.name}({dict(call.arguments)})" for call in message.tool_calls)
        answers = ", ".join(answer.text for answer in message.tool_results)
        print(f"  {message.role:<9} {' '.join(filter(None, [message.text, calls, answers]))}")
    print(f"\nThe metadata\n  {dict(result.state.metadata)}")
    report.write_text(report_html(result), encoding="utf-8")
    print(f"\nReport: {report}")
    return result


def trace_line(event: Event) -> str:
    """One event as a line of the trace, empty for those that are left out."""
    match event:
        case CycleStarted():
            return f"turn {event.cycle}"
        case HookEnded():
            arrow = "↑" if event.hook.startswith("after_") else "↓"
            changed = "".join(f"\n        {change}" for change in event.changes)
            return f"  {arrow} {event.hook:<13} {event.middleware:<12} {event.duration * 1000:8.2f} ms{changed}"
        case ModelEnded():
            return f"  ◆ model         {event.model:<12} {event.duration * 1000:8.2f} ms"
        case ToolEnded():
            sign = "✕" if event.result.is_error else "✓"
            return f"  ⚙ tool          {event.call.name:<12} {event.duration * 1000:8.2f} ms {sign}"
        case RunEnded():
            return f"{event.status} after {event.duration * 1000:.2f} ms"
    return ""
