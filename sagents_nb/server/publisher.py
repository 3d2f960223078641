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
        self._subscribers: tuple[Subscriber, ...] = ()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call this function with every event from now on.

        Returns:
            A function that ends the subscription.
        """
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(each for each in self._subscribers if each is not subscriber)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Tell everybody."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                logger.exception("a subscriber of session events raised and is not called any more: %r", subscriber)
                with self._lock:
                    self._subscribers = tuple(each for each in self._subscribers if each is not subscriber)
