"""The picture of the sandwich: which middleware acts where around the model, and what it did."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sagents_nb.events import Event
from sagents_nb.hooks import LOOP_HOOKS
from sagents_nb.views._render import alone, call, render
from sagents_nb.views._types import EntryLike, StackLike
from sagents_nb.views.activity import MODEL, Activity, Cell, cell_id


@dataclass(frozen=True, slots=True)
class Layer:
    """One middleware at one hook.

    Attributes:
        cell: its cell's id.
        hook: which hook.
        entry: the middleware.
        number: its place in the list, from 1.
        depth: how far inside it stands, from 0.
        runs: whether it implements the hook.
    """

    cell: str
    hook: str
    entry: EntryLike
    number: int
    depth: int
    runs: bool


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool and who brings it."""

    cell: str
    name: str
    by: str


def layers(stack: StackLike, hook: str) -> list[Layer]:
    """All middleware at one hook, in the order in which the hook passes them.

    The order of those that implement the hook is the stack's own word; the others stand between them at their
    place in the list.
    """
    entries = list(stack.entries)
    order = stack.order(hook)
    backwards = hook.startswith("after_")
    place = {name: index for index, name in enumerate(order)}
    numbered = list(enumerate(entries))
    if backwards:
        numbered.reverse()
    found = [
        Layer(cell_id(hook, entry.name), hook, entry, index + 1, index, entry.name in place)
        for index, entry in numbered
    ]
    running = sorted((layer for layer in found if layer.runs), key=lambda layer: place[layer.entry.name])
    following = iter(running)
    return [next(following) if layer.runs else layer for layer in found]


def groups(found: Sequence[Layer]) -> list[list[Layer]]:
    """Neighbours that do not implement the hook share one slim row; every other layer has its own."""
    rows: list[list[Layer]] = []
    for layer in found:
        if not layer.runs and rows and not rows[-1][0].runs:
            rows[-1].append(layer)
        else:
            rows.append([layer])
    return rows


def tool_rows(stack: StackLike, tools: Iterable[Any], activity: Activity) -> list[ToolRow]:
    """Every tool there is, of the agent itself and of its middleware, and those that were called all the same."""
    rows = {name: entry.name for entry in stack.entries for name in entry.tools}
    names = [str(getattr(tool, "name", tool)) for tool in tools]
    called = [key.partition(":")[2] for key in activity.cells if key.startswith("tool:")]
    ordered = dict.fromkeys([*names, *rows, *called])
    return [ToolRow(cell_id("tool", name), name, rows.get(name, "")) for name in ordered]


def sandwich(
    stack: StackLike,
    activity: Activity,
    *,
    live: bool,
    model: str = "",
    tools: Iterable[Any] = (),
    opened: Collection[str] | None = None,
) -> Markup:
    """The picture as a fragment: no style, not wrapped. `opened` are the cells whose insides a live one draws."""
    entries = list(stack.entries)
    gate = next((entry for entry in entries if entry.class_name == "HumanInTheLoop"), None)
    return render(
        "sandwich",
        live=live,
        opened=opened or (),
        entries=entries,
        activity=activity,
        hooks=LOOP_HOOKS,
        phases={hook: groups(layers(stack, hook)) for hook in LOOP_HOOKS if not hook.startswith("wrap_")},
        wraps={hook: [layer for layer in layers(stack, hook) if layer.runs] for hook in LOOP_HOOKS if "wrap" in hook},
        tools=tool_rows(stack, tools, activity),
        model=model,
        model_cell=MODEL,
        gate=gate,
        step=min(18.0, 110.0 / max(1, len(entries))),
    )


def cell_summary(key: str, cell: Cell) -> Markup:
    """The changing part of a cell's line: how often, how long, changed, failed."""
    return call("_cell", "numbers", key, cell)


def cell_body(key: str, cell: Cell) -> Markup:
    """What a cell shows when it is opened: the changes of its latest runs."""
    return call("_cell", "body", key, cell)


def sandwich_html(
    stack: StackLike,
    events: Iterable[Event] = (),
    *,
    live: bool = False,
    model: str = "",
    tools: Iterable[Any] = (),
) -> str:
    """The picture of a stack, and of what these events did in it.

    Args:
        stack: of an agent.
        events: of a run; may be empty.
        live: without style and with the keys by which a live view changes parts of it.
        model: how to name the model in the middle.
        tools: the agent's own tools, or their names.

    Returns:
        HTML that stands alone, or a fragment when `live`.
    """
    fragment = sandwich(stack, Activity.of(events), live=live, model=model, tools=tools)
    return str(fragment) if live else alone(fragment, "sandwich")
