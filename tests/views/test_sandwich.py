"""The picture of the sandwich: its order, its numbers, its marks."""

from __future__ import annotations

from typing import Any

import pytest

from sagents_nb import Middleware, Stack, State, ToolCall, ToolResult
from sagents_nb.events import (
    HookEnded,
    HookStarted,
    ModelEnded,
    ModelFailed,
    ModelStarted,
    RunEnded,
    ToolEnded,
    ToolStarted,
)
from sagents_nb.messages import Message
from sagents_nb.views import sandwich_html
from sagents_nb.views.activity import Activity


class Layer(Middleware):
    """A layer with hooks on both sides."""

    def before_model(self, state: Any, run: Any) -> Any:
        return None

    def after_model(self, state: Any, run: Any) -> Any:
        return None


class Wrapper(Middleware):
    """Only wraps."""

    async def wrap_model_call(self, request: Any, call_next: Any) -> Any:
        return await call_next(request)

    async def wrap_tool_call(self, call: Any, context: Any, call_next: Any) -> Any:
        return await call_next(call)


def cells(page: Any, phase: str) -> Any:
    found = page.find("div", attrs={"data-phase": phase}).find_all("details", class_="sag-cell")
    return [cell["data-mw"] for cell in found]


def cell(page: Any, hook: Any, mw: Any) -> Any:
    return page.find("details", attrs={"data-hook": hook, "data-mw": mw})


def test_layers_go_down_to_the_model_and_up_again(parse: Any) -> None:
    page = parse(sandwich_html(Stack([Layer(name="A"), Layer(name="B"), Layer(name="C")])))
    assert cells(page, "before_model") == ["A", "B", "C"]
    assert cells(page, "after_model") == ["C", "B", "A"]
    phases = [phase["data-phase"] for phase in page.find_all("div", class_="sag-phase")]
    assert phases == ["before_agent", "before_model", "model", "after_model", "tools", "after_agent"]


def test_wraps_are_nested_around_the_model_first_outermost(parse: Any) -> None:
    page = parse(sandwich_html(Stack([Wrapper(name="outer"), Wrapper(name="inner")]), model="scripted"))
    model = page.find(class_="sag-model")
    around = [ul["data-wraps"] for ul in model.find_parents("ul", class_="sag-wrap")]
    assert around == ["wrap_model_call:inner", "wrap_model_call:outer"]
    assert "scripted" in model.text


def test_a_layer_without_the_hook_is_faint_and_in_its_place(parse: Any) -> None:
    page = parse(sandwich_html(Stack([Layer(name="A"), Wrapper(name="W"), Layer(name="B")])))
    rows = page.find("div", attrs={"data-phase": "before_model"}).ol.find_all("li", recursive=False)
    assert [row.find(attrs={"data-mw": True})["data-mw"] for row in rows] == ["A", "W", "B"]
    assert [("sag-absent" in row.get("class", [])) for row in rows] == [False, True, False]


@pytest.mark.parametrize("count", [0, 1, 20])
def test_any_number_of_layers(parse: Any, count: int) -> None:
    page = parse(sandwich_html(Stack([Layer(name=f"L{i}") for i in range(count)])))
    assert cells(page, "before_model") == [f"L{i}" for i in range(count)]
    assert cells(page, "after_model") == [f"L{i}" for i in reversed(range(count))]
    assert page.find(class_="sag-legend")


def test_a_cell_shows_how_often_how_long_and_what_it_changed(parse: Any) -> None:
    before = State.from_text("hi")
    after = before.put_metadata("title", "Oslo")
    events = [
        HookStarted(middleware="A", hook="before_model", cycle=1),
        HookEnded(
            middleware="A", hook="before_model", cycle=1, duration=0.0004, changed=True, before=before, after=after
        ),
        HookStarted(middleware="A", hook="before_model", cycle=2),
        HookEnded(middleware="A", hook="before_model", cycle=2, duration=1.2),
    ]
    found = cell(parse(sandwich_html(Stack([Layer(name="A")]), events)), "before_model", "A")
    numbers = found.find(class_="sag-num").text.split()
    assert numbers == ["●", "changed", "×2", "1.2", "s"]
    change = found.find("li", class_="sag-change")
    assert change.code.text == "metadata.title"
    assert change.ins.text == "Oslo"
    assert "turn 1" in found.text


def test_an_error_is_marked_and_told(parse: Any) -> None:
    events = [HookEnded(middleware="A", hook="after_model", cycle=1, duration=0.01, error="ValueError: <b>no</b>")]
    found = cell(parse(sandwich_html(Stack([Layer(name="A")]), events)), "after_model", "A")
    assert "✕ failed" in found.find(class_="sag-num").text
    assert found.find("p", class_="sag-err").text == "✕ ValueError: <b>no</b>"


def test_model_and_tools_are_counted_and_a_tool_nobody_announced_appears(parse: Any) -> None:
    call = ToolCall("surprise", {}, id="c")
    events = [
        ModelStarted(cycle=1, model="m"),
        ModelFailed(cycle=1, model="m", error="busy", error_type="overloaded", retry_in=1.0),
        ModelStarted(cycle=1, model="m", attempt=2),
        ModelEnded(cycle=1, model="m", message=Message("assistant", "x"), duration=0.5),
        ToolStarted(call=call, cycle=1),
        ToolEnded(call=call, result=ToolResult("no", is_error=True), cycle=1, duration=0.085),
    ]
    page = parse(sandwich_html(Stack(), events, tools=["known"]))
    assert page.find(class_="sag-model").find(class_="sag-num").text.split() == ["✕", "failed", "×2", "500", "ms"]
    assert [row.code.text for row in page.find_all(class_="sag-toolcell")] == ["known", "surprise"]
    assert "85 ms" in page.find(attrs={"data-cell": "tool:surprise"}).text


def test_events_of_a_sub_agent_do_not_count_in_the_parents_picture() -> None:
    activity = Activity("parent")
    assert activity.add(HookStarted(agent_id="child", middleware="A", hook="before_model", cycle=1)) is None
    assert activity.add(HookStarted(agent_id="parent", middleware="A", hook="before_model", cycle=1)) == (
        "before_model:A",
        1,
    )


def test_nothing_stays_lit_when_the_run_ended() -> None:
    activity = Activity.of([ModelStarted(cycle=1, model="m")])
    assert activity.running == ["model:"]
    activity.add(RunEnded(status="cancelled"))
    assert activity.running == []


def test_the_approval_gate_is_shown_where_the_loop_has_it(parse: Any) -> None:
    class HumanInTheLoop(Middleware):
        """Asks."""

        interrupt_on: dict[str, bool]

    page = parse(sandwich_html(Stack([HumanInTheLoop(interrupt_on={"pay": True})])))
    phases = [phase["data-phase"] for phase in page.find_all("div", class_="sag-phase")]
    assert phases.index("after_model") < phases.index("gate") < phases.index("tools")
    assert "{'pay': True}" in page.find(attrs={"data-phase": "gate"}).text


def test_a_live_picture_leaves_the_insides_of_cells_to_be_asked_for(parse: Any) -> None:
    events = [HookEnded(middleware="A", hook="before_model", cycle=1, duration=0.1)]
    page = parse(sandwich_html(Stack([Layer(name="A")]), events, live=True))
    assert page.style is None
    found = cell(page, "before_model", "A")
    assert found["data-ask"] == "cell"
    assert found.find(class_="sag-cell-body").text == ""


def test_hostile_names_stay_text_and_break_out_of_nothing(parse: Any) -> None:
    name = "\"><img src=x onerror=alert(1)>'</details><script>1</script>"
    page = parse(sandwich_html(Stack([Layer(name=name)]), tools=[name], model=name))
    assert page.find(["script", "img"]) is None
    assert cells(page, "before_model") == [name]
    assert page.find(class_="sag-model-name").text == name


def test_the_same_values_give_the_same_html() -> None:
    stack = Stack([Layer(name="A")])
    assert sandwich_html(stack) == sandwich_html(stack)


def test_it_reads_in_order_without_any_style(parse: Any) -> None:
    page = parse(sandwich_html(Stack([Layer(name="A"), Layer(name="B")]), model="scripted"))
    page.style.decompose()
    page.find(class_="sag-layers").decompose()
    words = page.get_text(" ", strip=True)
    order = [words.index(word) for word in ("before_agent", "before_model", "1 A", "2 B", "scripted", "after_model")]
    assert order == sorted(order)
    assert words.rindex("2 B") < words.rindex("1 A")
