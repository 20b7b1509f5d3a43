"""The users' listeners: each behind a queue, in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, Self
from weakref import WeakSet

from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS
from coordlock.runtime.recorder import RECORDER, Event
from coordlock.runtime.worker import Worker

__all__ = ["MAX_PENDING", "Subscription", "flush_all", "on_event"]

log = Log("coordlock")

_subscriptions: Final[WeakSet[Subscription]] = WeakSet()

#: How many events wait for a listener at most; the newest are dropped.
MAX_PENDING: Final = 10_000
#: Seconds without events after which a listener's thread ends.
_IDLE_S: Final = 10.0


class Subscription:
    """What `on_event` returns: call it, or leave its ``with`` block, to end the subscription.

    Attributes:
        dropped: how many events the listener missed, because 10,000 waited for it.
    """

    def __init__(
        self, listener: Callable[[Event], object], matches: Callable[[Event], bool] | None
    ) -> None:
        self.dropped = 0
        self._listener: Final = listener
        self._matches: Final = matches
        self._is_over = False
        self._begin()
        _subscriptions.add(self)
        self._remove: Final = RECORDER.add(self._put)

    def __call__(self) -> None:
        """Call the listener no more. Idempotent; a call that is under way goes on."""
        self._is_over = True
        self._remove()

    def end_soon(self) -> None:
        """Call the listener with what was recorded so far, and no more."""
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self()

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait up to ``timeout`` seconds until all events so far were delivered; whether they were.

        A listener that calls it does not wait.
        """
        if self._pid != PROCESS.id:
            return True  # the parent's events are the parent's
        return self._worker.finish(timeout)

    def _begin(self) -> None:
        self._pid = PROCESS.id
        self._worker = Worker("coordlock-events", _IDLE_S, is_slow=True)

    def _put(self, event: Event) -> None:
        if self._matches is not None and not self._matches(event):
            return
        if self._pid != PROCESS.id:
            self._begin()  # the parent has the thread
        if self._worker.waiting >= MAX_PENDING:
            if not self.dropped:
                text = "a listener of events is too slow: from now on, it misses some of them"
                log.warning(text)
            self.dropped += 1
            return
        self._worker.run(partial(self._deliver, event))

    def _deliver(self, event: Event) -> None:
        if not self._is_over:
            try:
                self._listener(event)
            except Exception:
                log.exception("a listener of events failed on %s", type(event).__name__)


def flush_all(timeout: float) -> None:
    """Wait up to ``timeout`` seconds until all events so far were delivered, at the exit."""
    until = time.monotonic() + timeout
    for subscription in list(_subscriptions):
        subscription.flush(max(0.0, until - time.monotonic()))


def on_event(listener: Callable[[Event], object]) -> Subscription:
    """Call ``listener`` with each event of all clients and fences of this process from now on.

    A thread of its own calls it, one event after the other: it may block, and delays no
    lock. Up to 10,000 events wait for it; then the newest are dropped, counted, and the log says so
    once. What it raises is logged. See `Client.on_event` for the events of one client. In the child
    of a fork, another thread calls it with the child's events.
    """
    return Subscription(listener, None)
