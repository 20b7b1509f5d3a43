"""Where this process records what its clients do, for metrics, traces and the users' listeners."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from coordlock.runtime.log import Log

__all__ = ["MOST_FAILURES", "RECORDER", "Event", "Listener", "Recorder"]

log = Log("coordlock")

#: A listener that fails so often in a row is dropped.
MOST_FAILURES: Final = 100


@dataclass(slots=True)
class Event:
    """Something that a client has done, or that has happened to it.

    All listeners are given the same event: none may change it.

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
        #: How often in a row each listener has failed.
        self._failures: Final[dict[Listener, int]] = {}

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with each event from now on; returns what ends that. Idempotent."""
        with self._lock:
            self.listeners += (listener,)
        return lambda: self._remove(listener)

    def _remove(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = tuple(kept for kept in self.listeners if kept is not listener)
            self._failures.pop(listener, None)

    def record(self, event: Event) -> None:
        """Call all listeners with ``event``.

        The first failure of a listener is logged. One that has failed `MOST_FAILURES` times in a
        row is dropped. Ctrl-C passes once all listeners were called.
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
                    else:
                        if self._failures:
                            self._failures.pop(listener, None)
        if struck is not None:
            raise struck

    def _failed(self, listener: Listener, error: Exception) -> None:
        with self._lock:
            failures = self._failures[listener] = self._failures.get(listener, 0) + 1
        if failures == 1:
            log.error("telemetry failed", exc_info=error)
        elif failures == MOST_FAILURES:
            self._remove(listener)
            log.error("telemetry failed %d times, and is off from now on", failures)


#: The recorder of this process. In the child of a fork, it goes on with the same listeners.
RECORDER: Final = Recorder()
