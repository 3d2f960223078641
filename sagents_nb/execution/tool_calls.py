"""The tools of one message: run beside each other, answered in the order of the calls."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from sagents_nb.errors import ToolError, did_you_mean, in_words
from sagents_nb.events import (
    MessageAdded,
    StateUpdated,
    ToolAbandoned,
    ToolEnded,
    ToolEntered,
    ToolsInterrupted,
    ToolStarted,
    ToolWaiting,
)
from sagents_nb.execution.callbacks import CallbackFailed
from sagents_nb.execution.cancellation import stop_requests
from sagents_nb.execution.capture import Output, captured
from sagents_nb.execution.gate import refusal
from sagents_nb.execution.hooks import call_wrapped
from sagents_nb.execution.repair import not_executed
from sagents_nb.execution.run import Run
from sagents_nb.execution.scope_guard import check_scope
from sagents_nb.execution.threads import in_thread, on_main_thread
from sagents_nb.execution.tool_values import as_result
from sagents_nb.execution.waiting_calls import waiting_calls
from sagents_nb.messages import Message, ToolCall, ToolResult
from sagents_nb.state import State, StateUpdate
from sagents_nb.tools import Tool, ToolContext

CANCELLED = "Tool call {name} was stopped by the user before it was completed."
NO_WORDS = "(the tool failed and said nothing)"
FAILED = "Tool call {name} was not completed: the run failed."


async def run_tools(run: Run) -> None:
    """tools, each wrapped by wrap_tool_call; concurrent; results in call order; updates folded in call order."""
    calls = waiting_calls(run.state)
    if not calls:
        run.failures = 0
        return
    results: list[ToolResult | None] = [None] * len(calls)
    unanswered = CANCELLED
    try:
        for batch in _batches(run, calls):
            snapshot = run.state
            try:
                await _run_batch(run, calls, batch, results, snapshot)
            finally:
                _fold(run, [results[place] for place in batch], snapshot)
    except Exception:
        unanswered = FAILED
        raise
    finally:
        # Also when the run is stopped in the middle: what was answered is kept, the rest says why it was not.
        answered = tuple(result or not_executed(call, unanswered) for call, result in zip(calls, results, strict=True))
        message = Message("tool", tool_results=answered)
        added = tuple(message for result in answered if result.update is not None for message in result.update.messages)
        run.state = run.state.add_messages((message, *added))
        run.unseen = True
        waiting = tuple(result for result in answered if result.is_interrupt)
        try:
            if waiting:
                run.emit(ToolsInterrupted(results=waiting, cycle=run.cycle))
        finally:  # a callback that fails there does not take the message out of the record
            run.emit(MessageAdded(message=message, cycle=run.cycle))
    run.failures = run.failures + 1 if all(result.is_error for result in answered) else 0


def _batches(run: Run, calls: tuple[ToolCall, ...]) -> Iterator[list[int]]:
    """Places of the calls that run at once: a sequential tool alone, those between two such together."""
    batch: list[int] = []
    for place, call in enumerate(calls):
        tool = run.agent.all_tools.get(call.name)
        if tool is not None and tool.sequential:
            if batch:
                yield batch
            yield [place]
            batch = []
        else:
            batch.append(place)
    if batch:
        yield batch


async def _run_batch(
    run: Run, calls: tuple[ToolCall, ...], batch: list[int], results: list[ToolResult | None], snapshot: State
) -> None:
    async def one(place: int) -> None:
        await _run_call(run, calls[place], snapshot, keep=partial(results.__setitem__, place))

    if len(batch) == 1:
        await one(batch[0])
        return
    tasks = [asyncio.ensure_future(one(place)) for place in batch]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _run_call(run: Run, call: ToolCall, snapshot: State, keep: Callable[[ToolResult], None]) -> None:
    over = False  # set when the call is over, for a tool that still runs in its thread

    def publish(name: str, data: Mapping[str, Any]) -> None:
        if not over:
            run.publish(call.name, name, data)

    context = ToolContext(
        scope=run.agent.scope,
        tool_context=run.agent.tool_context,
        state=snapshot,
        agent_id=run.agent_id,
        agent_name=run.agent.name,
        tool_call_id=call.id,
        parent_middleware=tuple(run.agent.stack),
        parent_tools=tuple(run.agent.all_tools.values()),
        otel_attributes=run.agent.otel_attributes,
        publish=publish,
        cancelled=lambda: over,
    )
    output = Output()
    run.emit(ToolStarted(call=call, cycle=run.cycle))
    started = time.perf_counter()
    result: ToolResult | None = None
    cancelled = True
    try:
        result = await _wrapped(run, call, context, output)
        cancelled = False
        keep(result)
    except Exception:
        cancelled = False
        raise
    finally:
        over = True
        run.emit(
            ToolEnded(
                call=call,
                result=result or not_executed(call, CANCELLED if cancelled else FAILED),
                cycle=run.cycle,
                duration=time.perf_counter() - started,
                output=output.getvalue(),
                cancelled=cancelled,
            )
        )


async def _wrapped(run: Run, call: ToolCall, context: ToolContext, output: Output) -> ToolResult:
    async def body(call: ToolCall) -> ToolResult:
        refused = await refusal(run, call)
        return await _execute(run, call, context, output) if refused is None else _error(call, refused)

    step: Callable[[ToolCall], Awaitable[ToolResult]] = body
    for bound in reversed(run.agent.stack.hooks("wrap_tool_call")):
        inner = step
        step = lambda call, bound=bound, inner=inner: call_wrapped(  # type: ignore[misc]  # noqa: E731
            run, bound, call, context, inner, expect=ToolResult
        )
    return _settle(run, call, context, await step(call))


def _settle(run: Run, call: ToolCall, context: ToolContext, result: ToolResult) -> ToolResult:
    """Whatever wrap hooks made of a result: it belongs to this call, keeps the rules, and stops the run if it says so."""
    try:
        result = as_result(result, call, context)
        if result.update is not None:
            check_scope(result.update.apply(context.state), context.state, run.agent.scope)
        if result.is_interrupt:
            run.interrupt(result.processed, call.name, call.id)
            result = result.model_copy(update={"processed": None})
    except ValueError as error:
        result = _error(call, f"ERROR: ({type(error).__name__}) {error}")
    return result


async def _execute(run: Run, call: ToolCall, context: ToolContext, output: Output) -> ToolResult:
    """Run the tool itself. Whatever goes wrong is an error result that the model sees, never a failed run."""
    tool = run.agent.all_tools.get(call.name)
    try:
        if tool is None:
            known = run.agent.all_tools
            raise ToolError(
                f"Tool call made to {call.name} but tool not found{did_you_mean(call.name, known)}. "
                f"Tools: {', '.join(known) or 'none'}."
            )
        if call.invalid_arguments is not None:
            raise ToolError(
                f"The arguments of {call.name} were not a JSON object: {call.invalid_arguments[:200]!r}. "
                "Call it again with valid JSON."
            )
        value = await _call_function(run, tool, call, context, output)
        result = as_result(value, call, context)
    except ToolError as error:
        result = _error(call, in_words(error))
    except CallbackFailed:
        raise
    except asyncio.CancelledError:
        if stop_requests():
            raise
        result = _error(call, f"Tool {call.name} waited for something that was cancelled.")
    except (Exception, SystemExit) as error:  # sys.exit() in a tool is its failure, not the end of all agents
        result = _error(call, f"ERROR: ({type(error).__name__}) {in_words(error)}")
    if result.display_text is None and tool is not None and tool.display_text:
        result = result.model_copy(update={"display_text": tool.display_text})
    return result


async def _call_function(run: Run, tool: Tool, call: ToolCall, context: ToolContext, output: Output) -> Any:
    arguments = tool.validate(call.arguments)
    if tool.context_parameter is not None:
        arguments[tool.context_parameter] = context
    run.emit(ToolEntered(call=call, cycle=run.cycle))
    limit = tool.timeout if tool.timeout is not None else run.agent.tool_timeout
    waits = tool.thread == "main"  # until it is its turn there

    def begin() -> None:
        nonlocal waits
        waits = False

    try:
        async with asyncio.timeout(limit) as deadline:
            if tool.is_async:
                with captured(output):
                    return await tool.function(**arguments)
            value = await _in_thread(run, tool, call, arguments, output, begin=begin)
            if inspect.isawaitable(value):  # a def that only returns what is to be awaited
                with captured(output):
                    value = await value
            return value
    except TimeoutError:
        if not deadline.expired():
            raise  # the tool's own
        if waits:
            raise ToolError(
                f"Tool {tool.name} waited {limit:g} s for the main thread, where something else runs, and was given up "
                "before it began."
            ) from None
        raise ToolError(f"Tool {tool.name} did not answer within {limit:g} s and was given up.") from None


async def _in_thread(
    run: Run, tool: Tool, call: ToolCall, arguments: dict[str, Any], output: Output, *, begin: Callable[[], None]
) -> Any:
    ended = threading.Event()

    def body() -> Any:
        begin()
        with captured(output):
            return tool.function(**arguments)

    def wait() -> None:
        run.emit(ToolWaiting(call=call, cycle=run.cycle))

    try:
        if tool.thread == "main":
            return await on_main_thread(body, name=tool.name, on_end=ended.set, on_wait=wait)
        return await in_thread(body, name=tool.name, on_end=ended.set)
    finally:
        if not ended.is_set():
            run.emit(ToolAbandoned(call=call, cycle=run.cycle))


def _error(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(text if text.strip() else NO_WORDS, tool_call_id=call.id, name=call.name, is_error=True)


def _fold(run: Run, results: list[ToolResult | None], snapshot: State) -> None:
    """Merge the updates of a batch in call order; messages wait until the tool message stands before them."""
    state = run.state
    written: set[str] = set()
    conflicts: list[str] = []
    for result in results:
        update: StateUpdate | None = result.update if result is not None else None
        if update is None:
            continue
        keys = {*update.metadata, *update.delete_metadata}
        conflicts += sorted(keys & written)
        written |= keys
        state = update.model_copy(update={"messages": ()}).apply(state)
    if state is not run.state:
        run.state = state
        run.emit(StateUpdated(cycle=run.cycle, before=snapshot, after=state, conflicts=tuple(conflicts)))
