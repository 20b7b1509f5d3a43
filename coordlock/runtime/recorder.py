"""Where this process records what its clients do, for metrics, traces and the users' listeners.

coordlock's own listeners are called in place. Each of the users' is behind a queue, in a thread of
its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self
from weakref import WeakSet

from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS
from coordlock.runtime.worker import Worker

__all__ = [
    "MAX_PENDING",
    "RECORDER",
    "Event",
    "Listener",
    "Recorder",
    "Subscription",
    "flush_all",
    "on_event",
]

log = Log("coordlock")

#: How many events wait for a listener at most; the newest are dropped.
MAX_PENDING: Final = 10_000
#: Seconds without events after which a listener's thread ends.
_IDLE_S: Final = 10.0


@dataclass(slots=True)
class Event:
    """Something that a client has done, or that has happened to it.

    All listeners get the same event, so a listener must not change it.

    Attributes:
        client: the number of the client, unique in its process; 0 for events without a client.
        backend: the scheme of its service, such as ``etcd``; empty without a client.
        time: when it was recorded, in seconds since 1970.
    """

    client: int
    backend: str
    time: float = field(default_factory=time.time, init=False)


Listener = Callable[[Event], object]


class _Thread(threading.local):
    """What a thread has recorded, and its listeners have not seen yet."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        #: Taken while it calls listeners. No other thread uses it.
        self.calling = threading.Lock()


class Recorder:
    """Calls its listeners in place, in the thread in which an event happens. Never raises.

    Its listeners are coordlock's own, and never block: a thread that beats may call them. Code that
    records looks at `listeners` first, so that nothing is made where nobody listens.

    A signal handler, or a collection of garbage, may release a lock while a listener holds a lock
    of a library for metrics. So listeners are never called inside of one another in a thread: what
    is recorded meanwhile comes after.
    """

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self._thread: Final = _Thread()
        self._lock: Final = threading.RLock()
        #: The listeners that have failed.
        self._failing: Final[set[Listener]] = set()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with each event from now on; returns what ends that. Idempotent."""
        with self._lock:
            self.listeners += (listener,)
        return lambda: self._remove(listener)

    def _remove(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = tuple(kept for kept in self.listeners if kept is not listener)
            self._failing.discard(listener)

    def record(self, event: Event) -> None:
        """Call all listeners with ``event``.

        The first failure of a listener is logged. Ctrl-C passes once all listeners were called.
        """
        events, calling = self._thread.events, self._thread.calling
        events.append(event)
        if calling.locked():
            return
        struck: BaseException | None = None
        with calling:
            while events:
                event = events.popleft()
                for listener in self.listeners:
                    try:
                        listener(event)
                    except Exception as error:
                        self._failed(listener, error)
                    except BaseException as error:
                        struck = error
        if struck is not None:
            raise struck

    def _failed(self, listener: Listener, error: Exception) -> None:
        if listener not in self._failing:
            self._failing.add(listener)
            log.error("telemetry failed; its next failures are not logged", exc_info=error)


#: The recorder of this process. In the child of a fork, it goes on with the same listeners.
RECORDER: Final = Recorder()

_subscriptions: Final[WeakSet[Subscription]] = WeakSet()


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

    A thread of its own calls it, one event after the other: it may block, and delays no lock. Up to
    10,000 events wait for it; then the newest are dropped and counted, with a line in the log. What
    it raises is logged. See `Client.on_event` for the events of one client. In the child of a fork,
    another thread calls it with the child's events.
    """
    return Subscription(listener, None)
