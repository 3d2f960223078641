"""Every fault at every moment, through the real SDK against a server on loopback.

A row says what the user sees, what the State holds, and what the next request contains once the user has written on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from sagents_nb import Agent, AgentError, AnthropicModel, Message, tool
from sagents_nb.execution import model_call
from tests.support.messages_server import (
    MessagesServer,
    Turn,
    drop,
    http_error,
    refusal,
    reply,
    stream_error,
    text,
    tool_use,
)

FAULTS = (
    "error event",
    "dropped connection",
    "429",
    "529",
    "malformed tool JSON",
    "empty response",
    "refusal",
    "max_tokens",
)
MOMENTS = ("before the first delta", "in the text", "in the tool JSON", "after a tool ran")

BEFORE, IN_TEXT, IN_JSON, AFTER_TOOL = MOMENTS


@dataclass(frozen=True)
class Row:
    """One fault at one moment.

    Attributes:
        fault: which.
        moment: when.
        how: what tells it from other rows of the same cell.
        script: what the server answers until the run is over.
        seen: what callbacks told and how the run ended, in order.
        state: the messages of the State.
        sent: the messages of the next request, after the user wrote "Go on".
    """

    fault: str
    moment: str
    how: str
    script: Sequence[Turn]
    seen: Sequence[str]
    state: Sequence[str]
    sent: Sequence[str]


SUNNY = reply(text("Sunny."))
CALL = reply(tool_use("get_weather", {"city": "Oslo"}, id="c"))
HALF = tool_use("get_weather", raw_json='{"ci')
WHOLE = tool_use("get_weather", {"city": "Oslo"}, id="c")
MALFORMED = tool_use("get_weather", raw_json='{"city": Oslo}')
LOOK = text("Let me look.")
COLD = text("It is col")
RATE = http_error(429, retry_after=0)
BUSY = http_error(529)

# What stands before the fault when a tool ran, in each of the three columns.
TOOL_SEEN = ("message assistant: get_weather(city=Oslo)", "message tool: result Sunny in Oslo")
TOOL_STATE = ("user: Weather?", "assistant: get_weather(city=Oslo)", "tool: result Sunny in Oslo")
TOOL_SENT = ("user: Weather?", "assistant: get_weather(city=Oslo)", "user: result Sunny in Oslo")

# What comes when the fault was passing and the model was asked again.
WELL_SEEN = ("says Sunny.", "message assistant: Sunny.", "completed")

NO_JSON = (
    "ERROR The arguments of get_weather were not a JSON object: '{\"city\": Oslo}'. Call it again with valid JSON."
)
NOT_RUN = "ERROR Tool call get_weather was not executed: the conversation went on before it could be completed."

TABLE = [
    # -- an error event in a stream that began well -----------------------------------------------------------------
    Row(
        "error event",
        BEFORE,
        "once",
        [stream_error(), SUNNY],
        ["fails overloaded, asks again", *WELL_SEEN],
        ["user: Weather?", "assistant: Sunny."],
        ["user: Weather?", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "error event",
        BEFORE,
        "lasting",
        [stream_error()] * 3,
        [
            "fails overloaded, asks again",
            "fails overloaded, asks again",
            "fails overloaded",
            "error overloaded",
            "raised overloaded",
        ],
        ["user: Weather?"],
        ["user: Weather? | Go on"],
    ),
    Row(
        "error event",
        IN_TEXT,
        "once",
        [stream_error(after=COLD)],
        [
            "says It is col",
            "fails overloaded",
            "message assistant [stream_error]: It is col",
            "error overloaded",
            "raised overloaded",
        ],
        ["user: Weather?", "assistant [stream_error]: It is col"],
        ["user: Weather?", "assistant: It is col", "user: Go on"],
    ),
    Row(
        "error event",
        IN_JSON,
        "after a text",
        [stream_error(after=[LOOK, HALF])],
        [
            "says Let me look.",
            "fails overloaded",
            "message assistant [stream_error]: Let me look.",
            "error overloaded",
            "raised overloaded",
        ],
        ["user: Weather?", "assistant [stream_error]: Let me look."],
        ["user: Weather?", "assistant: Let me look.", "user: Go on"],
    ),
    Row(
        "error event",
        IN_JSON,
        "with nothing to keep",
        [stream_error(after=HALF), SUNNY],
        ["fails overloaded, asks again", *WELL_SEEN],
        ["user: Weather?", "assistant: Sunny."],
        ["user: Weather?", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "error event",
        AFTER_TOOL,
        "once",
        [CALL, stream_error(), SUNNY],
        [*TOOL_SEEN, "fails overloaded, asks again", *WELL_SEEN],
        [*TOOL_STATE, "assistant: Sunny."],
        [*TOOL_SENT, "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "error event",
        AFTER_TOOL,
        "lasting",
        [CALL, *[stream_error()] * 3],
        [
            *TOOL_SEEN,
            "fails overloaded, asks again",
            "fails overloaded, asks again",
            "fails overloaded",
            "error overloaded",
            "raised overloaded",
        ],
        [*TOOL_STATE],
        [*TOOL_SENT[:2], "user: result Sunny in Oslo | Go on"],
    ),
    Row(
        "error event",
        AFTER_TOOL,
        "in the text",
        [CALL, stream_error(after=COLD)],
        [
            *TOOL_SEEN,
            "says It is col",
            "fails overloaded",
            "message assistant [stream_error]: It is col",
            "error overloaded",
            "raised overloaded",
        ],
        [*TOOL_STATE, "assistant [stream_error]: It is col"],
        [*TOOL_SENT, "assistant: It is col", "user: Go on"],
    ),
    # -- a connection that goes away --------------------------------------------------------------------------------
    Row(
        "dropped connection",
        BEFORE,
        "once",
        [drop(), SUNNY],
        ["fails connection_error, asks again", *WELL_SEEN],
        ["user: Weather?", "assistant: Sunny."],
        ["user: Weather?", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "dropped connection",
        BEFORE,
        "lasting",
        [drop(), drop(how="reset"), drop()],
        [
            "fails connection_error, asks again",
            "fails connection_error, asks again",
            "fails connection_error",
            "error connection_error",
            "raised connection_error",
        ],
        ["user: Weather?"],
        ["user: Weather? | Go on"],
    ),
    Row(
        "dropped connection",
        IN_TEXT,
        "cut",
        [drop(after=COLD)],
        [
            "says It is col",
            "fails connection_error",
            "message assistant [stream_error]: It is col",
            "error connection_error",
            "raised connection_error",
        ],
        ["user: Weather?", "assistant [stream_error]: It is col"],
        ["user: Weather?", "assistant: It is col", "user: Go on"],
    ),
    Row(
        "dropped connection",
        IN_TEXT,
        "as if it were complete",
        [drop(after=COLD, how="end")],
        [
            "says It is col",
            "fails incomplete_stream",
            "message assistant [stream_error]: It is col",
            "error incomplete_stream",
            "raised incomplete_stream",
        ],
        ["user: Weather?", "assistant [stream_error]: It is col"],
        ["user: Weather?", "assistant: It is col", "user: Go on"],
    ),
    Row(
        "dropped connection",
        IN_JSON,
        "after a text",
        [drop(after=[LOOK, HALF])],
        [
            "says Let me look.",
            "fails connection_error",
            "message assistant [stream_error]: Let me look.",
            "error connection_error",
            "raised connection_error",
        ],
        ["user: Weather?", "assistant [stream_error]: Let me look."],
        ["user: Weather?", "assistant: Let me look.", "user: Go on"],
    ),
    Row(
        "dropped connection",
        IN_JSON,
        "with nothing to keep",
        [drop(after=HALF), SUNNY],
        ["fails connection_error, asks again", *WELL_SEEN],
        ["user: Weather?", "assistant: Sunny."],
        ["user: Weather?", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "dropped connection",
        IN_JSON,
        "after its last character",
        [drop(after=WHOLE)],
        [
            "fails connection_error",
            "message assistant [stream_error]: get_weather(city=Oslo)",
            "error connection_error",
            "raised connection_error",
        ],
        ["user: Weather?", "assistant [stream_error]: get_weather(city=Oslo)"],
        ["user: Weather?", "assistant: get_weather(city=Oslo)", f"user: {NOT_RUN} | Go on"],
    ),
    Row(
        "dropped connection",
        AFTER_TOOL,
        "once",
        [CALL, drop(), SUNNY],
        [*TOOL_SEEN, "fails connection_error, asks again", *WELL_SEEN],
        [*TOOL_STATE, "assistant: Sunny."],
        [*TOOL_SENT, "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "dropped connection",
        AFTER_TOOL,
        "lasting",
        [CALL, *[drop()] * 3],
        [
            *TOOL_SEEN,
            "fails connection_error, asks again",
            "fails connection_error, asks again",
            "fails connection_error",
            "error connection_error",
            "raised connection_error",
        ],
        [*TOOL_STATE],
        [*TOOL_SENT[:2], "user: result Sunny in Oslo | Go on"],
    ),
    # -- too many requests ------------------------------------------------------------------------------------------
    Row(
        "429",
        BEFORE,
        "once",
        [RATE, SUNNY],
        ["fails rate_limit_exceeded, asks again", *WELL_SEEN],
        ["user: Weather?", "assistant: Sunny."],
        ["user: Weather?", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "429",
        BEFORE,
        "lasting",
        [RATE] * 3,
        [
            "fails rate_limit_exceeded, asks again",
            "fails rate_limit_exceeded, asks again",
            "fails rate_limit_exceeded",
            "error rate_limit_exceeded",
            "raised rate_limit_exceeded",
        ],
        ["user: Weather?"],
        ["user: Weather? | Go on"],
    ),
    Row(
        "429",
        AFTER_TOOL,
        "once",
        [CALL, RATE, SUNNY],
        [*TOOL_SEEN, "fails rate_limit_exceeded, asks again", *WELL_SEEN],
        [*TOOL_STATE, "assistant: Sunny."],
        [*TOOL_SENT, "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "429",
        AFTER_TOOL,
        "lasting",
        [CALL, *[RATE] * 3],
        [
            *TOOL_SEEN,
            "fails rate_limit_exceeded, asks again",
            "fails rate_limit_exceeded, asks again",
            "fails rate_limit_exceeded",
            "error rate_limit_exceeded",
            "raised rate_limit_exceeded",
        ],
        [*TOOL_STATE],
        [*TOOL_SENT[:2], "user: result Sunny in Oslo | Go on"],
    ),
    # -- overloaded -------------------------------------------------------------------------------------------------
    Row(
        "529",
        BEFORE,
        "once",
        [BUSY, SUNNY],
        ["fails overloaded, asks again", *WELL_SEEN],
        ["user: Weather?", "assistant: Sunny."],
        ["user: Weather?", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "529",
        BEFORE,
        "lasting",
        [BUSY] * 3,
        [
            "fails overloaded, asks again",
            "fails overloaded, asks again",
            "fails overloaded",
            "error overloaded",
            "raised overloaded",
        ],
        ["user: Weather?"],
        ["user: Weather? | Go on"],
    ),
    Row(
        "529",
        AFTER_TOOL,
        "once",
        [CALL, BUSY, SUNNY],
        [*TOOL_SEEN, "fails overloaded, asks again", *WELL_SEEN],
        [*TOOL_STATE, "assistant: Sunny."],
        [*TOOL_SENT, "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "529",
        AFTER_TOOL,
        "lasting",
        [CALL, *[BUSY] * 3],
        [
            *TOOL_SEEN,
            "fails overloaded, asks again",
            "fails overloaded, asks again",
            "fails overloaded",
            "error overloaded",
            "raised overloaded",
        ],
        [*TOOL_STATE],
        [*TOOL_SENT[:2], "user: result Sunny in Oslo | Go on"],
    ),
    # -- arguments that are no JSON ---------------------------------------------------------------------------------
    Row(
        "malformed tool JSON",
        IN_JSON,
        "once",
        [reply(MALFORMED), SUNNY],
        ["message assistant: get_weather()", f"message tool: {NO_JSON}", *WELL_SEEN],
        ["user: Weather?", "assistant: get_weather()", f"tool: {NO_JSON}", "assistant: Sunny."],
        ["user: Weather?", "assistant: get_weather()", f"user: {NO_JSON}", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "malformed tool JSON",
        IN_JSON,
        "lasting",
        [reply(MALFORMED)] * 3,
        [
            *["message assistant: get_weather()", f"message tool: {NO_JSON}"] * 3,
            "error exceeded_failure_count",
            "raised exceeded_failure_count",
        ],
        ["user: Weather?", *["assistant: get_weather()", f"tool: {NO_JSON}"] * 3],
        [
            "user: Weather?",
            *["assistant: get_weather()", f"user: {NO_JSON}"] * 2,
            "assistant: get_weather()",
            f"user: {NO_JSON} | Go on",
        ],
    ),
    Row(
        "malformed tool JSON",
        AFTER_TOOL,
        "alone",
        [CALL, reply(MALFORMED), SUNNY],
        [*TOOL_SEEN, "message assistant: get_weather()", f"message tool: {NO_JSON}", *WELL_SEEN],
        [*TOOL_STATE, "assistant: get_weather()", f"tool: {NO_JSON}", "assistant: Sunny."],
        [*TOOL_SENT, "assistant: get_weather()", f"user: {NO_JSON}", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "malformed tool JSON",
        AFTER_TOOL,
        "beside a good call",
        [CALL, reply(MALFORMED, tool_use("get_weather", {"city": "Rome"})), SUNNY],
        [
            *TOOL_SEEN,
            "message assistant: get_weather() | get_weather(city=Rome)",
            f"message tool: {NO_JSON} | result Sunny in Rome",
            *WELL_SEEN,
        ],
        [
            *TOOL_STATE,
            "assistant: get_weather() | get_weather(city=Rome)",
            f"tool: {NO_JSON} | result Sunny in Rome",
            "assistant: Sunny.",
        ],
        [
            *TOOL_SENT,
            "assistant: get_weather() | get_weather(city=Rome)",
            f"user: {NO_JSON} | result Sunny in Rome",
            "assistant: Sunny.",
            "user: Go on",
        ],
    ),
    # -- nothing ----------------------------------------------------------------------------------------------------
    Row(
        "empty response",
        BEFORE,
        "complete",
        [reply()],
        ["message assistant:", "completed"],
        ["user: Weather?", "assistant:"],
        ["user: Weather? | Go on"],
    ),
    Row(
        "empty response",
        BEFORE,
        "without a single event",
        [drop(how="end"), SUNNY],
        ["fails empty_response, asks again", *WELL_SEEN],
        ["user: Weather?", "assistant: Sunny."],
        ["user: Weather?", "assistant: Sunny.", "user: Go on"],
    ),
    Row(
        "empty response",
        AFTER_TOOL,
        "complete",
        [CALL, reply()],
        [*TOOL_SEEN, "message assistant:", "completed"],
        [*TOOL_STATE, "assistant:"],
        [*TOOL_SENT[:2], "user: result Sunny in Oslo | Go on"],
    ),
    # -- a refusal --------------------------------------------------------------------------------------------------
    Row(
        "refusal",
        BEFORE,
        "",
        [refusal()],
        ["message assistant [refused]:", "completed"],
        ["user: Weather?", "assistant [refused]:"],
        ["user: Weather? | Go on"],
    ),
    Row(
        "refusal",
        IN_TEXT,
        "",
        [refusal(text("I cannot"))],
        ["says I cannot", "message assistant [refused]: I cannot", "completed"],
        ["user: Weather?", "assistant [refused]: I cannot"],
        ["user: Weather?", "assistant: I cannot", "user: Go on"],
    ),
    Row(
        "refusal",
        IN_JSON,
        "in the middle",
        [refusal(LOOK, HALF)],
        ["says Let me look.", "message assistant [refused]: Let me look.", "completed"],
        ["user: Weather?", "assistant [refused]: Let me look."],
        ["user: Weather?", "assistant: Let me look.", "user: Go on"],
    ),
    Row(
        "refusal",
        IN_JSON,
        "after its last character",
        [refusal(WHOLE)],
        ["message assistant [refused]: get_weather(city=Oslo)", "completed"],
        ["user: Weather?", "assistant [refused]: get_weather(city=Oslo)"],
        ["user: Weather?", "assistant: get_weather(city=Oslo)", f"user: {NOT_RUN} | Go on"],
    ),
    Row(
        "refusal",
        AFTER_TOOL,
        "with words",
        [CALL, refusal(text("I cannot"))],
        [*TOOL_SEEN, "says I cannot", "message assistant [refused]: I cannot", "completed"],
        [*TOOL_STATE, "assistant [refused]: I cannot"],
        [*TOOL_SENT, "assistant: I cannot", "user: Go on"],
    ),
    Row(
        "refusal",
        AFTER_TOOL,
        "without",
        [CALL, refusal()],
        [*TOOL_SEEN, "message assistant [refused]:", "completed"],
        [*TOOL_STATE, "assistant [refused]:"],
        [*TOOL_SENT[:2], "user: result Sunny in Oslo | Go on"],
    ),
    # -- the length limit -------------------------------------------------------------------------------------------
    Row(
        "max_tokens",
        BEFORE,
        "",
        [reply(stop_reason="max_tokens")],
        ["message assistant [length]:", "completed"],
        ["user: Weather?", "assistant [length]:"],
        ["user: Weather? | Go on"],
    ),
    Row(
        "max_tokens",
        IN_TEXT,
        "",
        [reply(COLD, stop_reason="max_tokens")],
        ["says It is col", "message assistant [length]: It is col", "completed"],
        ["user: Weather?", "assistant [length]: It is col"],
        ["user: Weather?", "assistant: It is col", "user: Go on"],
    ),
    Row(
        "max_tokens",
        IN_JSON,
        "in the middle",
        [reply(LOOK, HALF, stop_reason="max_tokens")],
        ["says Let me look.", "message assistant [length]: Let me look.", "completed"],
        ["user: Weather?", "assistant [length]: Let me look."],
        ["user: Weather?", "assistant: Let me look.", "user: Go on"],
    ),
    Row(
        "max_tokens",
        IN_JSON,
        "after its last character",
        [reply(WHOLE, stop_reason="max_tokens")],
        ["message assistant [length]: get_weather(city=Oslo)", "completed"],
        ["user: Weather?", "assistant [length]: get_weather(city=Oslo)"],
        ["user: Weather?", "assistant: get_weather(city=Oslo)", f"user: {NOT_RUN} | Go on"],
    ),
    Row(
        "max_tokens",
        AFTER_TOOL,
        "",
        [CALL, reply(COLD, stop_reason="max_tokens")],
        [*TOOL_SEEN, "says It is col", "message assistant [length]: It is col", "completed"],
        [*TOOL_STATE, "assistant [length]: It is col"],
        [*TOOL_SENT, "assistant: It is col", "user: Go on"],
    ),
]

IMPOSSIBLE = {
    ("429", IN_TEXT): "a status comes before the text; in the middle of it the same fault is an error event",
    ("429", IN_JSON): "a status comes before the call; in the middle of it the same fault is an error event",
    ("529", IN_TEXT): "a status comes before the text; in the middle of it the same fault is an error event",
    ("529", IN_JSON): "a status comes before the call; in the middle of it the same fault is an error event",
    ("malformed tool JSON", BEFORE): "before the first delta there is no call whose JSON could be wrong",
    ("malformed tool JSON", IN_TEXT): "a text has no JSON; the call after it is the moment of the tool JSON",
    ("empty response", IN_TEXT): "a response with a text is not empty",
    ("empty response", IN_JSON): "a response with a call is not empty",
}


def test_every_fault_at_every_moment_has_a_row_or_a_reason_why_it_cannot_be() -> None:
    cells = {(row.fault, row.moment) for row in TABLE}
    assert cells.isdisjoint(IMPOSSIBLE)
    assert cells | set(IMPOSSIBLE) == {(fault, moment) for fault in FAULTS for moment in MOMENTS}
    assert not [key for key, count in Counter(map(name_of, TABLE)).items() if count > 1]


def name_of(row: Row) -> str:
    return ", ".join(filter(None, (row.fault, row.moment, row.how)))


def shown(message: Message) -> str:
    parts = [message.text] if message.text else []
    parts += [_call(call.name, call.arguments) for call in message.tool_calls]
    parts += [_result(result.text, result.is_error) for result in message.tool_results]
    status = "" if message.status == "complete" else f" [{message.status}]"
    return f"{message.role}{status}: {' | '.join(parts)}".rstrip()


def shown_on_the_wire(message: dict[str, Any]) -> str:
    return f"{message['role']}: {' | '.join(_block(block) for block in message['content'])}"


def _block(block: dict[str, Any]) -> str:
    match block["type"]:
        case "text":
            return str(block["text"])
        case "tool_use":
            return _call(block["name"], block["input"])
        case "tool_result":
            return _result("".join(part["text"] for part in block["content"]), block.get("is_error", False))
    raise AssertionError(f"not expected in these conversations: {block}")


def _call(name: str, arguments: Any) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"


def _result(words: str, is_error: bool) -> str:
    return f"{'ERROR' if is_error else 'result'} {words}"


class Observer:
    """Writes down what the callbacks tell, as somebody at the screen would read it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def callbacks(self) -> dict[str, Any]:
        """For an agent."""
        return {
            "on_llm_new_delta": self._delta,
            "on_llm_error": self._failed,
            "on_message_processed": lambda event: self.lines.append(f"message {shown(event.message)}"),
            "on_error": lambda event: self.lines.append(f"error {event.error_type}"),
        }

    def _delta(self, event: Any) -> None:
        if event.text and self.lines and self.lines[-1].startswith("says "):
            self.lines[-1] += event.text
        elif event.text:
            self.lines.append(f"says {event.text}")

    def _failed(self, event: Any) -> None:
        self.lines.append(f"fails {event.error_type}{'' if event.retry_in is None else ', asks again'}")


async def holds(row: Row) -> None:
    ran: list[str] = []

    @tool
    def get_weather(city: str) -> str:
        """Current weather in a city."""
        ran.append(city)
        return f"Sunny in {city}"

    observer = Observer()
    with MessagesServer([*row.script, reply(text("Anyway."))]) as server:
        model = AnthropicModel("claude-test", base_url=server.url, api_key="sk-test-secret")
        agent = Agent(model=model, tools=[get_weather], callbacks=observer.callbacks)
        try:
            try:
                result = await agent.execute("Weather?")
                state, ending = result.state, str(result.status)
            except AgentError as error:
                state, ending = error.state, f"raised {error.type}"
            seen = [*observer.lines, ending]
            again = await agent.execute(state.add_message("Go on"))
        finally:
            await model.aclose()
        left = server.remaining

    assert seen == list(row.seen)
    assert [shown(message) for message in state.messages] == list(row.state)
    assert [shown_on_the_wire(message) for message in server.requests[-1].body["messages"]] == list(row.sent)
    assert again.text == "Anyway."
    assert left == 0  # neither more requests than the script has turns, nor fewer
    assert [request.problem for request in server.requests if request.problem] == []
    good = [r.text for m in state.messages for r in m.tool_results if not r.is_error]
    assert [f"Sunny in {city}" for city in ran] == good  # each tool that ran has its result, and ran once


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_WAIT", 0.0)  # between two attempts


@pytest.mark.parametrize("row", TABLE, ids=name_of)
async def test_what_a_fault_does_to_the_user_the_state_and_the_next_request(row: Row) -> None:
    await holds(row)


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_call, "keep_partial", lambda run: None)


def asked_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_call, "ATTEMPTS", 1)


def asked_again_whatever_was_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_call, "_worth_another_try", lambda asking, error: error.retryable)


SWITCHES = [
    (nothing_is_kept, "error event, in the text, once"),
    (nothing_is_kept, "dropped connection, in the tool JSON, after its last character"),
    (asked_once, "429, before the first delta, once"),
    (asked_once, "empty response, before the first delta, without a single event"),
    (asked_again_whatever_was_seen, "error event, after a tool ran, in the text"),
    (asked_again_whatever_was_seen, "dropped connection, in the text, cut"),
]


@pytest.mark.parametrize(("switch_off", "name"), SWITCHES)
async def test_without_the_code_that_keeps_it_the_row_fails(
    switch_off: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(row for row in TABLE if name_of(row) == name)
    switch_off(monkeypatch)
    with pytest.raises((AssertionError, AgentError)):
        await holds(row)
