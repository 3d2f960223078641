"""Agents, runs and parsed HTML for the tests of the views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bs4 import BeautifulSoup

from sagents_nb import Agent, Middleware, RunResult, ScriptedModel, State, ToolCall, tool


@tool
def get_weather(city: str) -> str:
    """Current weather in a city.

    Args:
        city: name of the city
    """
    print("asking the station")
    return f"Sunny in {city}"


class Notes(Middleware):
    """Counts the turns."""

    def before_model(self, state: State, run: object) -> State:
        return state.put_metadata("turns", state.get_metadata("turns", 0) + 1)

    async def wrap_model_call(self, request, call_next):  # type: ignore[no-untyped-def]
        return await call_next(request)

    def after_model(self, state: State, run: object) -> None:
        return None


class Titles(Middleware):
    """Names the conversation."""

    def after_model(self, state: State, run: object) -> State:
        return state.put_metadata("title", "Weather")


@pytest.fixture
def parse() -> Callable[[str], BeautifulSoup]:
    """HTML as a browser-like tree."""
    return lambda html: BeautifulSoup(html, "html.parser")


@pytest.fixture
def agent() -> Agent:
    """An agent with two layers, a tool, and secrets in its scope and tool_context."""
    return Agent(
        name="forecaster",
        model=ScriptedModel([ToolCall("get_weather", {"city": "Oslo"}), "It is **sunny** in Oslo."]),
        tools=[get_weather],
        middleware=[Notes(), Titles()],
        base_system_prompt="Be brief.",
        scope={"user": "SCOPE-SECRET"},
        tool_context={"api_key": "CONTEXT-SECRET"},
    )


@pytest.fixture
def result(agent: Agent) -> RunResult:
    """A run of that agent."""
    return agent.run("Weather in Oslo?")
