"""The gate: a call that a person has to approve does not run without, whoever asks for it.

It has two halves. `gate` is a step of the cycle: after all after_model hooks, so that the person is shown what is going to
run, it stops the run when a call needs an approval. `refusal` is the door of the executor: it asks again for the
very call that is about to run, which a wrap hook, a mode without the step or a hook's own message may have changed. An
approval is worth a digest of name and arguments, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import NoneType
from typing import Any

from sagents_nb.execution.hooks import call_checked
from sagents_nb.execution.run import Run
from sagents_nb.execution.waiting_calls import waiting_calls
from sagents_nb.frozen import thaw
from sagents_nb.interrupts import APPROVAL, ApprovalRequest, Interrupt
from sagents_nb.messages import ToolCall

REFUSED = "Tool call {name} needs a person's approval for exactly these arguments and has none, so it was not run."


def digest(name: str, arguments: Mapping[str, Any]) -> str:
    """Names one call exactly: equal only for the same tool with the same arguments."""
    text = json.dumps([name, thaw(arguments)], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


async def gate(run: Run) -> None:
    """Interrupt gate: calls that a person has to approve stop the run before any of the message runs [loop]."""
    if not run.agent.stack.hooks("needs_approval"):
        return
    requests = []
    source = ""
    for call in waiting_calls(run.state):
        if call.invalid_arguments is not None:
            continue  # it will not run
        request, source = await _asked(run, call)
        if request is not None:
            requests.append(
                {
                    "tool_call_id": call.id,
                    "tool_name": call.name,
                    "arguments": thaw(call.arguments),
                    "allowed_decisions": list(request.allowed_decisions),
                    "description": request.description,
                    "digest": digest(call.name, call.arguments),
                }
            )
    if requests:
        names = ", ".join(str(request["tool_name"]) for request in requests)
        run.interrupt(Interrupt(APPROVAL, f"Approve {names}?", {"requests": requests}), source)


async def refusal(run: Run, call: ToolCall) -> str | None:
    """What the model is told of a call that needs an approval and has none; None when it may run."""
    if not run.agent.stack.hooks("needs_approval"):
        return None
    request, _ = await _asked(run, call)
    return None if request is None else REFUSED.format(name=call.name)


async def _asked(run: Run, call: ToolCall) -> tuple[ApprovalRequest | None, str]:
    """What the person has to be asked about a call that is not approved, and by which middleware."""
    (bound,) = run.agent.stack.hooks("needs_approval")
    if digest(call.name, call.arguments) in run.approved:
        return None, bound.middleware
    request = await call_checked(
        run,
        bound,
        call,
        run.hook_run(bound.middleware),
        expect=(ApprovalRequest, NoneType),
        words="needs_approval returns an ApprovalRequest, or None for a call that needs none",
    )
    return request, bound.middleware
