"""Clearing a queue from its end, so that no waiter is granted on the way."""

from __future__ import annotations

from functools import partial
from typing import Final

from coordlock.kernel.engine import Engine
from coordlock.locks.queue_view import QueueMember, queue_view
from coordlock.runtime.driver import Steps

__all__ = ["cleared"]

#: How often the queue is read for contenders that came meanwhile.
_LOOKS: Final = 20


def cleared(engine: Engine, queue: str) -> Steps[tuple[QueueMember, ...]]:
    """Evict all contenders of ``queue``; those that were there to be evicted, in its order.

    A contender waits only for earlier ones, so the last leaves first, and its removal is
    acknowledged before the next is asked for. What holds the lock stays until the queue shows no
    waiter any more: an eviction from the head would grant the lock to the next in line, which may
    start its work before its own turn to leave.

    Contenders that come meanwhile are evicted too, where a later look finds them. If they come
    faster than they can be evicted, the last look decides, and what came after it stays.
    """
    evicted: list[QueueMember] = []
    for left in reversed(range(_LOOKS)):
        seen = yield from queue_view(engine, queue)
        waiting = tuple(one for one in seen if not one.holding)
        is_last = not waiting or not left
        for one in reversed(seen if is_last else waiting):
            was_there = yield from engine.remove(partial(engine.backend.evict, one.contender))
            evicted += [one] * was_there
        if is_last:
            break
    return tuple(sorted(evicted, key=lambda one: one.contender.order))
