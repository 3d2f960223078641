"""A timer that lets the kernel's Interrupt button reach a loop that only waits.

ipykernel cancels an awaiting cell by a callback that does not wake the selector, so an interrupt is seen only when
something else happens in the loop. While a run waits, this makes something happen five times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sagents_nb.main_thread import served_by

INTERVAL = 0.2
"""Seconds between two beats; an interrupt waits half of it on average."""


@dataclass(slots=True)
class _Pulse:
    """Of one loop: who waits in it, and whether its timer is set."""

    users: int = 0
    beating: bool = False


_pulses: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pulse] = WeakKeyDictionary()


@contextmanager
def heartbeat() -> Iterator[None]:
    """Keep the running loop awake; one timer per loop, however many runs wait in it.

    A loop of the main thread also runs what tools hand over to that thread.
    """
    loop = asyncio.get_running_loop()
    pulse = _pulses.setdefault(loop, _Pulse())
    pulse.users += 1
    if not pulse.beating:  # the timer of a run that just ended may still be set
        _beat(loop, pulse)
    try:
        with served_by(loop):
            yield
    finally:
        pulse.users -= 1


def _beat(loop: asyncio.AbstractEventLoop, pulse: _Pulse) -> None:
    pulse.beating = pulse.users > 0
    if pulse.beating:
        loop.call_later(INTERVAL, _beat, loop, pulse)
