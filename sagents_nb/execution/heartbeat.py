"""A timer that lets the kernel's Interrupt button reach a loop that only waits.

ipykernel cancels an awaiting cell by a callback that does not wake the selector, so an interrupt is seen only when
something else happens in the loop. While a run waits, this makes something happen five times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

INTERVAL = 0.2
"""Seconds between two beats; an interrupt waits half of it on average."""

_beating: WeakKeyDictionary[asyncio.AbstractEventLoop, list[int]] = WeakKeyDictionary()


@contextmanager
def heartbeat() -> Iterator[None]:
    """Keep the running loop awake; one timer per loop, however many runs wait in it."""
    loop = asyncio.get_running_loop()
    users = _beating.setdefault(loop, [0])
    users[0] += 1
    if users[0] == 1:
        _beat(loop, users)
    try:
        yield
    finally:
        users[0] -= 1


def _beat(loop: asyncio.AbstractEventLoop, users: list[int]) -> None:
    if users[0] > 0:
        loop.call_later(INTERVAL, _beat, loop, users)
    else:
        _beating.pop(loop, None)
