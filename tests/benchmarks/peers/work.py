"""The work: what is said, and what each toolkit has to be able to do with it."""

from __future__ import annotations

import abc
from typing import Any

QUESTION = "What do you have on item seven? Please look it up first, and then answer in a few sentences of your own."
LOOKED_UP = "Item seven, in the store since spring; two pieces are left on the shelf by the door. " * 5
ANSWER = "There are two pieces of item seven left. They have been here since spring, by the door. " * 5
PIECE = "some "
"""What one streamed delta says."""


class Contender(abc.ABC):
    """A toolkit that does the work.

    Its model is a bare subclass of the toolkit's own model class: no provider, no network, no state. It asks for the
    tool ``lookup(item=7)`` when the last message is the user's, and gives `ANSWER` when it is the tool's. The tool is
    an ``async def`` that returns `LOOKED_UP`.

    Attributes:
        idle: the classes whose methods are the hooks that do nothing; the runner counts that they are really called.
    """

    idle: tuple[type, ...]

    @abc.abstractmethod
    def agent(self, *, middlewares: int = 0, agent_hooks: bool = False, sleep: float = 0.0, deltas: int = 0) -> Any:
        """Build an agent with the one tool.

        Args:
            middlewares: how many that do nothing, before and after every model call.
            agent_hooks: whether these have hooks before and after the whole run too.
            sleep: seconds its model waits before it answers.
            deltas: if not 0, its model streams that many pieces and asks for no tool.
        """

    @abc.abstractmethod
    async def turn(self, agent: Any, history: Any = None) -> tuple[str, Any]:
        """Ask `QUESTION`; the toolkit's fastest way that does not stream.

        Returns:
            The answer's text, and the history to hand in with the next question.
        """

    @abc.abstractmethod
    async def stream(self, agent: Any) -> int:
        """Ask `QUESTION` and look at every delta; the toolkit's fastest way.

        Returns:
            How many pieces of text arrived.
        """

    @abc.abstractmethod
    async def alone(self) -> None:
        """What the model and the tool do in a turn, without the toolkit: two model calls and a tool call."""

    @abc.abstractmethod
    async def alone_streaming(self, deltas: int) -> None:
        """What the model does while it streams, without the toolkit."""
