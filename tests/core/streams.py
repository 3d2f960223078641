"""A model that streams what it is given, however wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from sagents_nb import ChatModel, ModelError, ModelRequest
from sagents_nb.deltas import Delta, StopDelta, TextDelta

BUSY = ModelError("busy", type="overloaded", retryable=True)
GOOD: list[Any] = [TextDelta("fine"), StopDelta()]


class Streams(ChatModel):
    """One list per request, the last again and again: deltas are streamed, callables awaited, exceptions raised.

    Attributes:
        requests: what it was asked.
        closed: how many of its streams are over.
    """

    def __init__(self, *turns: list[Any], name: str = "streams") -> None:
        self.name = name
        self.turns = turns
        self.requests: list[ModelRequest] = []
        self.closed = 0

    @property
    def asked(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """See `ChatModel.stream`."""
        turn = self.turns[min(self.asked, len(self.turns) - 1)]
        self.requests.append(request)
        try:
            for item in turn:
                if isinstance(item, BaseException):
                    raise item
                if callable(item):
                    await item()
                else:
                    yield item
        finally:
            self.closed += 1
