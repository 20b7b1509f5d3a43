"""A queue as people see it: holders and waiters in order."""

from __future__ import annotations

from dataclasses import dataclass

from coordlock.model.admission import holders
from coordlock.model.claim import Claim, Convertible, Mode, in_force
from coordlock.model.contender import Contender, Owner, Snapshot

__all__ = ["QueueEntry", "queue_entries"]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One contender's place in a queue when the queue was read.

    Attributes:
        position: 0 for the first in line.
        holding: whether it holds the lock now, by the admission rule.
        claim: its mode, or its permit.
        converting_to: the mode to which it is being upgraded; None if it is not.
        token: its fencing token; None if the service does not tell.
        owner: the client that enqueued it, as it describes itself; None for programs that do not.
        age: seconds since it was enqueued, by the owner's and this machine's wall clocks; None if
            the owner does not say.
        session: the id of its session; "" if the service does not tell.
        contender: the backend's own record, which `Admin.evict` also takes.
        value: what it publishes: a member of a group, or a candidate.
    """

    position: int
    holding: bool
    claim: Claim
    token: int | None
    owner: Owner | None
    age: float | None
    session: str
    contender: Contender
    converting_to: Mode | None = None
    value: bytes = b""


def queue_entries(snapshot: Snapshot, now: float) -> tuple[QueueEntry, ...]:
    """The contenders of ``snapshot``, which shows their owners and tokens, at the time ``now``."""
    holding = holders(snapshot)
    return tuple(
        QueueEntry(
            position=position,
            holding=contender.id in holding,
            claim=in_force(contender.claim),
            token=contender.token,
            owner=contender.described,
            age=max(0.0, now - contender.owner.since)
            if contender.owner and contender.owner.since
            else None,
            session=contender.session,
            contender=contender,
            converting_to=contender.claim.target
            if isinstance(contender.claim, Convertible)
            else None,
            value=b"" if isinstance(contender.claim, Convertible) else contender.value or b"",
        )
        for position, contender in enumerate(snapshot.contenders)
    )
