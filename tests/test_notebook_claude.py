"""Claude in a notebook: a real kernel, the real SDK, and a server on loopback that speaks the Messages API."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.messages_server import MessagesServer, reply, text, tool_use

ROOT = Path(__file__).parent.parent

AGENT = """
from sagents_nb import Agent, AnthropicModel, tool

@tool
def get_weather(city: str) -> str:
    "Current weather in a city."
    return f"Sunny in {{city}}"

agent = Agent(model=AnthropicModel("claude-test", base_url={url!r}, api_key="test-key"), tools=[get_weather])
result = agent.run("Weather in Oslo?")
print(result.text)
print((await agent.execute(result.state.add_message("And now?"))).text)
"""
SESSION = """
session = agent.session()
session.send("Hello")
print(session.wait(timeout=30), session.state.last_text)
session.stop()
"""


@pytest.mark.slow
def test_run_await_and_session_talk_to_claude_from_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    script = [
        reply(tool_use("get_weather", {"city": "Oslo"}), stop_reason="tool_use"),
        reply(text("It is sunny in Oslo.")),
        reply(text("Still sunny.")),
        reply(text("Hello yourself.")),
    ]
    with MessagesServer(script, api_key="test-key") as server:
        cells = [nbformat.v4.new_code_cell(AGENT.format(url=server.url)), nbformat.v4.new_code_cell(SESSION)]
        notebook = nbformat.v4.new_notebook(cells=cells)
        client = NotebookClient(
            notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
    assert notebook.cells[0].outputs[0].text == "It is sunny in Oslo.\nStill sunny.\n"
    assert notebook.cells[1].outputs[0].text == "idle Hello yourself.\n"
    assert [len(request.body["messages"]) for request in server.requests] == [1, 3, 5, 1]
    assert {request.body["model"] for request in server.requests} == {"claude-test"}
    assert [tool["name"] for tool in server.requests[0].body["tools"]] == ["get_weather"]
    answered = server.requests[1].body["messages"][-1]["content"]
    assert [(block["type"], "Sunny in Oslo" in str(block["content"])) for block in answered] == [("tool_result", True)]
    assert "Hello" in str(server.requests[3].body["messages"])
    assert "test-key" not in str([cell.outputs for cell in notebook.cells])
