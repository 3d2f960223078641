"""Language models, behind one seam: `ChatModel.stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagents_nb.deltas import (
    Delta,
    MessageBuilder,
    StopDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageDelta,
)
from sagents_nb.models.base import ChatModel, ModelRequest
from sagents_nb.models.scripted import ScriptedModel

if TYPE_CHECKING:
    from sagents_nb.models.anthropic import AnthropicModel
    from sagents_nb.models.recorded import RecordedModel

__all__ = [
    "AnthropicModel",
    "ChatModel",
    "Delta",
    "MessageBuilder",
    "ModelRequest",
    "RecordedModel",
    "ScriptedModel",
    "StopDelta",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "UsageDelta",
]


def __getattr__(name: str) -> Any:
    # The provider's SDK takes most of a second to import; only who asks for it pays.
    if name == "AnthropicModel":
        from sagents_nb.models.anthropic import AnthropicModel

        return AnthropicModel
    if name == "RecordedModel":
        from sagents_nb.models.recorded import RecordedModel

        return RecordedModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
