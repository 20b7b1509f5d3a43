"""What happens in one client, told to listeners: for logs, metrics, traces and live views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from coordlock.model.claim import Claim
from coordlock.runtime.clock import Timers, soon

__all__ = [
    "ContenderEvent",
    "Event",
    "Events",
    "Granted",
    "Left",
    "Lost",
    "Queued",
    "SessionDoubted",
    "SessionEnded",
    "SessionEvent",
    "SessionOpened",
    "SessionRecovered",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened ``at`` a moment of the client's clock, in seconds."""

    at: float


@dataclass(frozen=True, slots=True)
class SessionEvent(Event):
    """What happened to the session with that id in the service."""

    session: str


@dataclass(frozen=True, slots=True)
class SessionOpened(SessionEvent):
    """It was opened, with a time-to-live of ``ttl`` seconds, infinite where it has none."""

    ttl: float


@dataclass(frozen=True, slots=True)
class SessionDoubted(SessionEvent):
    """Its connection is gone, or its heartbeats are late."""

    reason: str


@dataclass(frozen=True, slots=True)
class SessionRecovered(SessionEvent):
    """The doubt is over, and it lives."""


@dataclass(frozen=True, slots=True)
class SessionEnded(SessionEvent):
    """It was lost or closed, and with it all of its contenders."""

    reason: str


@dataclass(frozen=True, slots=True)
class ContenderEvent(Event):
    """What happened to this client's contender with that ``id`` in the queue of ``name``."""

    id: str
    name: str
    claim: Claim


@dataclass(frozen=True, slots=True)
class Queued(ContenderEvent):
    """It stands in the queue, ``position`` contenders before it, and waits."""

    position: int


@dataclass(frozen=True, slots=True)
class Granted(ContenderEvent):
    """The lock was granted, after ``waited`` seconds."""

    token: int
    waited: float


@dataclass(frozen=True, slots=True)
class Lost(ContenderEvent):
    """It was lost, granted or not."""

    reason: str


@dataclass(frozen=True, slots=True)
class Left(ContenderEvent):
    """It was withdrawn: released, or given up before it was granted."""

    was_granted: bool


Listener = Callable[[Event], object]


class Events:
    """The events of one client.

    A listener is called in the thread for callbacks, one event after another, and its errors are
    logged. Events are made only where ``heard`` is true, and otherwise cost nothing.
    """

    def __init__(self, callbacks: Timers) -> None:
        self._callbacks: Final = callbacks
        self._listeners: tuple[Listener, ...] = ()
        self.heard = False

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell ``listener`` of all events from now on; what is returned ends that."""
        mine = partial(listener)  # equal to no other, whichever listeners there are
        self._set((*self._listeners, mine))
        return lambda: self._set(tuple(one for one in self._listeners if one is not mine))

    def tell(self, event: Event) -> None:
        """Tell all listeners of ``event``, soon. Never blocks."""
        for listener in self._listeners:
            soon(self._callbacks, partial(listener, event))

    def _set(self, listeners: tuple[Listener, ...]) -> None:
        self._listeners = listeners
        self.heard = bool(listeners)
