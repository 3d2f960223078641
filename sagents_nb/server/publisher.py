"""Events to everybody who watches a session, numbered, none lost and none twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sagents_nb.events import Event

logger = logging.getLogger("sagents_nb")

Subscriber = Callable[[Event], object]


class Publisher:
    """Calls subscribers, in the order of the events, on the thread that publishes.

    A subscriber that raises is dropped and logged: it must not hold back the run or the others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A key for each subscription, so that a function subscribed twice is called twice and ended once at a time.
        self._subscribers: dict[object, Subscriber] = {}

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call this function with every event from now on.

        Returns:
            A function that ends the subscription.
        """
        key = object()
        with self._lock:
            self._subscribers = {**self._subscribers, key: subscriber}
        return lambda: self._end(key)

    def publish(self, event: Event) -> None:
        """Tell everybody."""
        for key, subscriber in self._subscribers.items():  # never changed in place, so it may end itself
            try:
                subscriber(event)
            except Exception:
                logger.exception("a subscriber of session events raised and is not called any more: %r", subscriber)
                self._end(key)

    def _end(self, key: object) -> None:
        with self._lock:
            self._subscribers = {other: each for other, each in self._subscribers.items() if other is not key}
