"""deepagents, with its own default stack: LangChain's `create_agent` with files, todos, sub-agents and summaries."""

from __future__ import annotations

from deepagents import create_deep_agent

from tests.benchmarks.peers.langchain import LangChain


class DeepAgents(LangChain):
    create = staticmethod(create_deep_agent)


contender = DeepAgents()
