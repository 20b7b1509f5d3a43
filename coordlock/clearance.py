"""Clearing a queue from its end, so that nobody in it is granted on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coordlock.kernel.link import Link
from coordlock.runtime.driver import Steps
from coordlock.standing import Standing, standings

__all__ = ["Clearance"]

#: How often the queue is read for contenders that came meanwhile.
_LOOKS: Final = 20


class Clearance:
    """The eviction of all contenders of one queue, as a series of requests.

    A contender waits only for earlier ones, so the last leaves first, and its removal is
    acknowledged before the next is asked for. What holds the lock stays until the queue shows no
    waiter any more: an eviction from the head would grant the lock to the next in line, which may
    start its work before its own turn to leave.

    Contenders that come meanwhile are evicted too, where a later look finds them. If they come
    faster than they can be evicted, the last look decides, and what came after it stays.
    """

    def __init__(self, link: Link, queue: str) -> None:
        self._link = link
        self._queue = queue
        self._seen: tuple[Standing, ...] = ()
        #: Who was there to be evicted, in the order of the queue.
        self.evicted: Final[list[Standing]] = []

    def __iter__(self) -> Iterator[Steps[None]]:
        """The requests; each is to be run to its end before the next is taken."""
        for left in reversed(range(_LOOKS)):
            yield self._look()
            waiting = tuple(one for one in self._seen if not one.holding)
            is_last = not waiting or not left
            for one in reversed(self._seen if is_last else waiting):
                yield self._evict(one)
            if is_last:
                break
        self.evicted.sort(key=lambda one: one.contender.order)

    def _look(self) -> Steps[None]:
        self._seen = yield from standings(self._link, self._queue)

    def _evict(self, one: Standing) -> Steps[None]:
        backend = self._link.backend
        if (yield from self._link.remove(lambda: backend.evict(one.contender))):
            self.evicted.append(one)
