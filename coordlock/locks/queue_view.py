"""The queue as people see it: holders and waiters, in order."""

from __future__ import annotations

import time
from dataclasses import dataclass

from coordlock.kernel.engine import Engine
from coordlock.model.admission import holders
from coordlock.model.claim import Claim, Convertible, Mode
from coordlock.model.contender import Contender, Owner, Snapshot
from coordlock.runtime.driver import Steps

__all__ = ["QueueMember", "queue_view", "ranked"]


@dataclass(frozen=True, slots=True)
class QueueMember:
    """One contender's place in a queue when the queue was read.

    Attributes:
        position: 0 for the first in line.
        holding: whether the admission rule lets it hold the lock now.
        claim: its mode, or its permit.
        converting_to: the mode to which it is being converted; None where it is not.
        token: its fencing token; None where the service doesn't tell.
        owner: the client that enqueued it, by its own account; None for programs that don't say.
        age: seconds since it was enqueued, by the owner's and this machine's wall clocks; None
            where the owner doesn't say.
        session: the id of its session; "" where the service doesn't tell.
        contender: what the backend knows, as `Client.evict` takes it.
        value: what it publishes: a member of a group its value, a candidate its proposal.
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


def queue_view(engine: Engine, queue: str) -> Steps[tuple[QueueMember, ...]]:
    """Read ``queue`` with all owners and tokens, by a linearizable read."""
    snapshot = yield from engine.ask(lambda: engine.backend.snapshot(queue, owners=True))
    return ranked(snapshot)


def ranked(snapshot: Snapshot) -> tuple[QueueMember, ...]:
    """The contenders of ``snapshot``, which omits none, as people see them."""
    now = time.time()
    holding = holders(snapshot)
    return tuple(
        QueueMember(
            position=position,
            holding=one.id in holding,
            claim=one.claim.mode if isinstance(one.claim, Convertible) else one.claim,
            token=one.token,
            owner=one.described,
            age=max(0.0, now - one.owner.since) if one.owner and one.owner.since else None,
            session=one.session,
            contender=one,
            converting_to=one.claim.target if isinstance(one.claim, Convertible) else None,
            value=b"" if isinstance(one.claim, Convertible) else one.value or b"",
        )
        for position, one in enumerate(snapshot.contenders)
    )
