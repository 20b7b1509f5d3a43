"""What happens to clients and what they hold, as values: for listeners, metrics and traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coordlock.runtime.recorder import Event

__all__ = [
    "AcquireEvent",
    "AcquireFailed",
    "AcquireStarted",
    "AcquireWaiting",
    "DeadlockFound",
    "Event",
    "FenceRefused",
    "Granted",
    "HeartbeatAnswered",
    "ItemEnded",
    "JobEnded",
    "LockEvent",
    "LossReason",
    "Lost",
    "Outcome",
    "ReleaseRequested",
    "Released",
    "SessionChanged",
    "Upgraded",
]

#: How an acquire has ended without a grant.
Outcome = Literal["busy", "timeout", "cancelled", "deadlock", "error"]
#: Why a grant was lost: nobody acknowledged a heartbeat until its deadline; the service ended the
#: session; somebody evicted it; it was held for longer than its ``max_hold``.
LossReason = Literal["deadline", "session", "evicted", "max_hold"]


@dataclass(slots=True)
class LockEvent(Event):
    """An event of one acquire, or of the grant that it gave.

    Attributes:
        acquire: the number of the acquire, unique in its process: the same in all its events.
        kind: what is acquired: ``lock``, ``semaphore``, ``election``, ``job`` and others; for the
            upgrade of a grant, which counts as an acquire of its own, ``upgrade``.
        mode: ``EX``, ``PR`` and so on; ``permit`` for a semaphore; ``several`` for several locks.
        name: the name of the lock; of several locks, their names.
    """

    acquire: int
    kind: str
    mode: str
    name: str


@dataclass(slots=True)
class AcquireStarted(LockEvent):
    """An acquire has begun."""


@dataclass(slots=True)
class AcquireWaiting(LockEvent):
    """It has to wait: the lock is held. Recorded once for an acquire, and never for a try.

    Attributes:
        position: how many contenders are ahead in its queue.
    """

    position: int


@dataclass(slots=True)
class AcquireEvent(LockEvent):
    """An acquire has ended.

    Attributes:
        duration: seconds since it began.
        contended: whether it had to wait, or to be refused, because the lock was held.
    """

    duration: float
    contended: bool


@dataclass(slots=True)
class Granted(AcquireEvent):
    """It has the lock. For an election: the term has begun.

    Attributes:
        token: the fencing token; 0 where the service has none.
        handoff: seconds from when this client saw the predecessor leave to the grant; None for an
            acquire that did not have to wait.
    """

    token: int
    handoff: float | None


@dataclass(slots=True)
class Upgraded(AcquireEvent):
    """The upgrade of a grant is done: from now on it is held in mode EX."""


@dataclass(slots=True)
class AcquireFailed(AcquireEvent):
    """It has ended without the lock.

    Attributes:
        outcome: ``busy`` for a try, else what ended it.
        error: the kind of the exception, such as ``AcquireTimeout``.
    """

    outcome: Outcome
    error: str


@dataclass(slots=True)
class Released(LockEvent):
    """The holder has released the lock. For an election: the leader has resigned.

    Attributes:
        token: the fencing token; 0 where the service has none.
        held: seconds since the grant.
    """

    token: int
    held: float


@dataclass(slots=True)
class Lost(LockEvent):
    """The lock was lost while it was held.

    Attributes:
        token: the fencing token; 0 where the service has none.
        held: seconds since the grant.
        reason: why, for a metric.
        text: why, in words.
        remaining: for how many seconds the holder could still have been sure of the lock.
    """

    token: int
    held: float
    reason: LossReason
    text: str
    remaining: float


@dataclass(slots=True)
class ReleaseRequested(LockEvent):
    """Another client has asked the holder to release the lock: see `Admin.request_release`.

    Recorded for a holder that listens for requests, by `Grant.release_requested` or a callback.

    Attributes:
        token: the fencing token; 0 where the service has none.
        reason: why, as the other client gave it.
    """

    token: int
    reason: str


@dataclass(slots=True)
class SessionChanged(Event):
    """What the client knows of its session has changed.

    Attributes:
        state: ``connected``, ``in doubt``, ``lost`` or ``closed``.
        text: why it is in doubt or lost; else empty.
        away: when it is ``connected`` again: for how many seconds the service was away; else 0.
    """

    state: Literal["connected", "in doubt", "lost", "closed"]
    text: str
    away: float


@dataclass(slots=True)
class HeartbeatAnswered(Event):
    """The service has answered a heartbeat, or a heartbeat has failed.

    Attributes:
        duration: seconds since it was sent.
        error: the kind of the exception, such as ``BackendUnavailable``; empty for none.
    """

    duration: float
    error: str


@dataclass(slots=True)
class ItemEnded(Event):
    """This client has ended its work at an item of a work queue.

    Attributes:
        queue: the name of the work queue.
        item: the item's id.
        outcome: ``acknowledged``, ``failed``, ``given back`` without blame, or ``lost`` at work.
        deliveries: how many times it was delivered so far.
        duration: seconds of work.
    """

    queue: str
    item: str
    outcome: Literal["acknowledged", "failed", "given back", "lost"]
    deliveries: int
    duration: float


@dataclass(slots=True)
class JobEnded(Event):
    """A run of a job has ended, and its slot is recorded.

    Attributes:
        job: the name of the job.
        slot: the slot, as it is shown.
        outcome: ``done``, ``failed``, or ``interrupted``: found to have come to no end.
        duration: seconds of work; 0 for one that was interrupted.
        error: what has failed; empty for one that is done.
    """

    job: str
    slot: str
    outcome: Literal["done", "failed", "interrupted"]
    duration: float
    error: str


@dataclass(slots=True)
class DeadlockFound(Event):
    """A wait of this client was ended because it was part of a deadlock.

    Attributes:
        name: the lock that it waited for.
        text: who waits for whom.
    """

    name: str
    text: str


@dataclass(slots=True)
class FenceRefused(Event):
    """A fence, of this process or of a server, has refused a stale token of a past holder.

    Attributes:
        resource: what the fence protects.
        token: the stale token.
        newest: the newest token that the fence has seen.
    """

    resource: str
    token: int
    newest: int
