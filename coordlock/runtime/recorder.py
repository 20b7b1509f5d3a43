"""Where this process records what its clients do, for metrics, traces and the users' listeners."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["RECORDER", "Event", "Listener", "Recorder"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a client has done, or that has happened to it.

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
        self.is_recording = False


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

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with each event from now on; returns what ends that. Idempotent."""
        self.listeners += (listener,)

        def remove() -> None:
            self.listeners = tuple(kept for kept in self.listeners if kept is not listener)

        return remove

    def record(self, event: Event) -> None:
        """Call all listeners with ``event``. One that raises is logged and dropped."""
        thread = self._thread
        thread.events.append(event)
        if thread.is_recording:
            return
        thread.is_recording = True
        try:
            while thread.events:
                event = thread.events.popleft()
                for listener in self.listeners:
                    try:
                        listener(event)
                    except Exception as error:
                        self._drop(listener, error)
        finally:
            thread.is_recording = False

    def _drop(self, failed: Listener, error: Exception) -> None:
        self.listeners = tuple(kept for kept in self.listeners if kept is not failed)
        log = logging.getLogger("coordlock")
        log.error("telemetry failed, and is off from now on", exc_info=error)


#: The recorder of this process. In the child of a fork, it goes on with the same listeners.
RECORDER: Final = Recorder()
