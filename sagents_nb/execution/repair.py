"""Histories that every provider takes: each tool call has exactly one result, right after it."""

from __future__ import annotations

from sagents_nb.messages import Message, ToolCall, ToolResult

NOT_EXECUTED = "Tool call {name} was not executed: the conversation went on before it could be completed."
"""Result put in for a call that has none."""

NOT_RESUMED = (
    "Tool call {name} was interrupted and could not be resumed: what it waited for is not known any more "
    "(incompatible data)."
)
"""Result put in the place of one that waits for a person although nobody is asked."""


def repair_history(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Give every tool call exactly one result, and every result its call.

    Args:
        messages: any history: cut, cancelled or edited anywhere.

    Returns:
        The messages (the very same tuple when nothing is wrong), and a sentence for every repair: results put in
        for calls without one, results without a call left out, doubles left out, results put in the order of the
        calls, results of several tool messages gathered in one, results that wait for nobody answered.
    """
    repaired: list[Message] = []
    repairs: list[str] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message.role == "tool":
            names = ", ".join(result.name or result.tool_call_id for result in message.tool_results)
            repairs.append(f"left out results without a call: {names or 'an empty tool message'}")
            continue
        repaired.append(message)
        if message.role != "assistant" or not message.tool_calls:
            continue
        following: list[Message] = []
        while place < len(messages) and messages[place].role == "tool":
            following.append(messages[place])
            place += 1
        answer = _answer(message.tool_calls, following, repairs)
        if len(following) == 1 and following[0].tool_results == answer:
            repaired.append(following[0])
        else:
            metadata = following[0].metadata if following else {}
            repaired.append(Message("tool", tool_results=answer, metadata=metadata))
    if not repairs and len(repaired) == len(messages):
        return messages, ()
    return tuple(repaired), tuple(repairs)


def _answer(calls: tuple[ToolCall, ...], following: list[Message], repairs: list[str]) -> tuple[ToolResult, ...]:
    before = len(repairs)
    given: dict[str, list[ToolResult]] = {}
    for result in (result for message in following for result in message.tool_results):
        given.setdefault(result.tool_call_id, []).append(result)
    answer = []
    for call in calls:
        results = given.get(call.id)
        if results:
            result = results.pop(0)
            if result.is_interrupt:
                result = not_executed(call, NOT_RESUMED)
                repairs.append(f"answered {call.name} ({call.id}), which waited for a person whom nobody asks any more")
            answer.append(result)
        else:
            answer.append(not_executed(call))
            repairs.append(f"put in a result for {call.name} ({call.id}), which had none")
    spare = [result for results in given.values() for result in results]
    if spare:
        repairs.append(f"left out results without a call: {', '.join(r.name or r.tool_call_id for r in spare)}")
    if len(following) > 1:
        repairs.append(f"gathered the results of {len(following)} tool messages in one")
    elif len(following) == 1 and not spare and tuple(answer) != following[0].tool_results and len(repairs) == before:
        repairs.append("put results in the order of their calls")
    return tuple(answer)


def not_executed(call: ToolCall, text: str = NOT_EXECUTED) -> ToolResult:
    """The result of a call that never ran."""
    return ToolResult(text.format(name=call.name), tool_call_id=call.id, name=call.name, is_error=True)


class HistoryKeeper:
    """Repairs a growing history at the cost of what is new: it remembers what was found right, from run to run."""

    def __init__(self) -> None:
        self._good: tuple[Message, ...] = ()

    def check(self, messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """`repair_history`, where only what follows the part known to be right is looked at."""
        good = self._good  # one look: runs of other threads may use the same keeper
        known = len(good)
        if known < len(messages) and messages[known].role == "tool":
            known = 0  # it may belong to the last message of the part known to be right
        # Comparing tuples of the very same objects is one pass in C, some 10 ns a message.
        if known and messages[:known] == good:
            tail, repairs = repair_history(messages[known:])
            checked = good + tail if repairs else messages
        else:
            checked, repairs = repair_history(messages)
        self._good = _closed(checked)
        return checked, repairs


def _closed(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The longest part from the start after which anything may follow: no call at its end waits for a result."""
    end = len(messages)
    if end and messages[-1].role == "assistant" and messages[-1].tool_calls:
        end -= 1
    elif end and messages[-1].role == "tool":
        end -= 2  # a second tool message may follow, and belongs to the same calls
    return messages[: max(end, 0)]
