"""What happens in one client: for logs, metrics, traces and live views."""

from __future__ import annotations

from dataclasses import dataclass

from coordlock.model.claim import AnyClaim

__all__ = [
    "ContenderEvent",
    "Event",
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
    claim: AnyClaim


@dataclass(frozen=True, slots=True)
class Queued(ContenderEvent):
    """``position`` contenders stand before it: it waits or, asked once, is refused."""

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
