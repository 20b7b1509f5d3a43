"""The queue as people see it, holders and waiters in order, and how they clear it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from coordlock.kernel.engine import Engine
from coordlock.model.admission import holders
from coordlock.model.claim import Claim, Convertible, Mode
from coordlock.model.contender import Contender, Owner
from coordlock.runtime.driver import Steps

__all__ = ["QueueEntry", "cleared", "queue_view"]

#: How often `cleared` reads the queue for contenders that came meanwhile.
_MAX_READS: Final = 20


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One contender's place in a queue when the queue was read.

    Attributes:
        position: 0 for the first in line.
        holding: whether it holds the lock now, by the admission rule.
        claim: its mode, or its permit.
        converting_to: the mode to which it is being converted; None if it is not.
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


def queue_view(engine: Engine, queue: str) -> Steps[tuple[QueueEntry, ...]]:
    """Read ``queue`` with all owners and tokens, by a linearizable read."""
    snapshot = yield from engine.ask(lambda: engine.backend.snapshot(queue, owners=True))
    now = time.time()
    holding = holders(snapshot)
    return tuple(
        QueueEntry(
            position=position,
            holding=contender.id in holding,
            claim=contender.claim.mode
            if isinstance(contender.claim, Convertible)
            else contender.claim,
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


def cleared(engine: Engine, queue: str) -> Steps[tuple[QueueEntry, ...]]:
    """Evict all contenders of ``queue``; returns those that were there, in order.

    A contender waits only for earlier ones, so the last leaves first, and its removal is
    acknowledged before the next is asked for. What holds the lock stays until the queue shows no
    waiter any more: an eviction from the head would grant the lock to the next in line, which may
    start its work before it is evicted itself.

    Contenders that come meanwhile are evicted too, where a later look finds them. If they come
    faster than they can be evicted, the last look decides, and what came after it stays.
    """
    evicted: list[QueueEntry] = []
    for left in reversed(range(_MAX_READS)):
        seen = yield from queue_view(engine, queue)
        waiting = tuple(entry for entry in seen if not entry.holding)
        is_last = not waiting or not left
        for entry in reversed(seen if is_last else waiting):
            was_there = yield from engine.remove(partial(engine.backend.evict, entry.contender))
            evicted += [entry] * was_there
        if is_last:
            break
    return tuple(sorted(evicted, key=lambda entry: entry.contender.order))
