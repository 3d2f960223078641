"""What a browser may say. Everything from it is checked against these before anything happens."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

LONGEST_TEXT = 1_000_000
"""Characters of one value that are taken from a browser."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    n: int = Field(default=0, ge=0)


class Hello(_Message):
    """The wire was drawn. Answering it moves its comm to the thread from which a busy kernel still hears it."""

    t: Literal["hello"]


class Resync(_Message):
    """The screen was drawn, or missed a delta: it wants everything."""

    t: Literal["resync"]
    seq: int = 0


class Visible(_Message):
    """Which panes one drawing of the view shows now.

    Attributes:
        view: names the drawing; the same view may be drawn several times.
        panes: their names; none when it is scrolled away, or gone.
    """

    t: Literal["visible"]
    view: str = Field(max_length=40)
    panes: list[Annotated[str, Field(max_length=40)]] = Field(max_length=16)


class Press(_Message):
    """A person did something.

    Attributes:
        name: which action.
        values: what it was given.
    """

    t: Literal["press"]
    name: str = Field(max_length=40)
    values: dict[
        Annotated[str, Field(max_length=80)], Annotated[str, Field(max_length=LONGEST_TEXT)] | bool | int | float
    ] = Field(default_factory=dict, max_length=32)


Inbound: TypeAlias = Annotated[Hello | Resync | Visible | Press, Field(discriminator="t")]
INBOUND: TypeAdapter[Hello | Resync | Visible | Press] = TypeAdapter(Inbound)
"""Reads one message of a browser."""


class Nothing(BaseModel):
    """Values of an action that takes none."""

    model_config = ConfigDict(extra="forbid")


class SendValues(BaseModel):
    """Values of ``send``: what the person wrote."""

    model_config = ConfigDict(extra="forbid")

    text: str


class EarlierValues(BaseModel):
    """Values of ``earlier``: how many more items to draw."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(default=100, ge=1, le=1000)


class CellValues(BaseModel):
    """Values of ``cell``: a cell of the sandwich was opened or closed."""

    model_config = ConfigDict(extra="forbid")

    cell: str
    open: bool = True
