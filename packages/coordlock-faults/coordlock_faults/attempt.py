"""One call of acquire and what became of it: waiting, holding, the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coordlock.model.claim import Claim
from coordlock_faults.events import (
    AcquireFailed,
    AcquireInvoked,
    Enqueued,
    Event,
    FaultBegan,
    Granted,
    LossSignalled,
    ReleaseAcknowledged,
    ReleaseFailed,
    ReleaseSent,
    Withdrawn,
)

__all__ = ["WORKERS", "Attempt"]

#: How the names of the queues begin whose contenders are the workers of a work queue. Each serves
#: one item after the other, so several attempts have the same one.
WORKERS: Final = "@work-"

#: What a client writes of an attempt after its invocation.
Told = (
    Enqueued
    | Granted
    | AcquireFailed
    | Withdrawn
    | ReleaseSent
    | ReleaseAcknowledged
    | ReleaseFailed
    | LossSignalled
)


@dataclass(eq=False, slots=True)
class Attempt:
    """The events of one attempt; None for what did not happen.

    ``killed`` is the fault that ended its process, if one did.
    """

    invoked: AcquireInvoked
    enqueued: Enqueued | None = None
    granted: Granted | None = None
    failed: AcquireFailed | None = None
    withdrawn: Withdrawn | None = None
    release_sent: ReleaseSent | None = None
    release_answer: ReleaseAcknowledged | ReleaseFailed | None = None
    lost: LossSignalled | None = None
    killed: FaultBegan | None = None

    @property
    def name(self) -> str:
        """What the events call it."""
        return self.invoked.attempt

    @property
    def process(self) -> str:
        """The client process."""
        return self.invoked.process

    @property
    def lock(self) -> str:
        """The lock that was asked for."""
        return self.invoked.lock

    @property
    def claim(self) -> Claim:
        """How it was asked for."""
        return self.invoked.claim

    @property
    def token(self) -> int | None:
        """The token of its contender, where it is known."""
        told = self.granted or self.enqueued
        return None if told is None else told.token

    @property
    def deadline(self) -> int | None:
        """The local deadline of its session, as it was told last."""
        told = [one.deadline for one in (self.granted, self.lost) if one is not None]
        return max((one for one in told if one is not None), default=None)

    @property
    def acknowledged(self) -> Enqueued | Granted | None:
        """The first event that shows that the contender was in the queue."""
        return self.enqueued or self.granted

    @property
    def answer(self) -> Granted | AcquireFailed | None:
        """What acquire returned or raised."""
        return self.granted or self.failed

    @property
    def end(self) -> ReleaseSent | LossSignalled | FaultBegan | None:
        """What ended the hold of an attempt that was granted: the first thing that did."""
        ends = [one for one in (self.release_sent, self.lost, self.killed) if one is not None]
        return min(ends, key=lambda one: one.at, default=None)

    @property
    def events(self) -> tuple[Event, ...]:
        """All that is known, in the order of time."""
        told = (
            self.invoked,
            self.enqueued,
            self.granted,
            self.withdrawn,
            self.failed,
            self.release_sent,
            self.release_answer,
            self.lost,
            self.killed,
        )
        return tuple(sorted((one for one in told if one is not None), key=lambda one: one.at))

    def take(self, event: Told) -> bool:
        """Note ``event``; whether it can come after what came before."""
        fits = event.process == self.process
        match event:
            case Enqueued():
                fits &= self.enqueued is None and self.answer is None
                self.enqueued = event
            case Granted():
                fits &= self.answer is None
                self.granted = event
            case AcquireFailed():
                fits &= self.answer is None
                self.failed = event
            case Withdrawn():
                fits &= self.withdrawn is None and self.answer is None
                self.withdrawn = event
            case ReleaseSent():
                fits &= self.granted is not None and self.release_sent is None
                self.release_sent = event
            case ReleaseAcknowledged() | ReleaseFailed():
                fits &= self.release_sent is not None and self.release_answer is None
                self.release_answer = event
            case LossSignalled():
                fits &= self.granted is not None and self.lost is None
                self.lost = event
        return fits
