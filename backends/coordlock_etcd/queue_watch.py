"""One watch for all departures from a queue that is in demand. No I/O.

Where several clients take turns at a lock, watches for single contenders cost more than the lock:
each turn begins two and ends two, they begin in the past, and a waiter that was third when it came
reads the queue when it is second. One watch on the keys of the queue costs an event for each client
and turn. So a client has it only for a short queue in which it waits again and again.

It is one watch, and etcd reports to a watch in order. So no departure of another contender is
reported before an earlier one of the client's own, and what has been reported is all that has
happened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.watch import Watch

__all__ = ["QueueWatch"]

#: How many departures are remembered, for contenders whose creation is yet to be answered.
_REMEMBERED = 128


class QueueWatch:
    """What is known of one queue's departures. Not safe for threads.

    Attributes:
        prefix: what the queue's keys start with.
        id: of the watch, on the stream.
        used: when the client last enqueued there, by the clock.
        is_short: whether the queue was short then, so that more contenders are watched here.
    """

    def __init__(self, prefix: bytes, used: float) -> None:
        self.prefix = prefix
        self.id = 0
        self.used = used
        self.is_short = True
        #: Every departure after this revision is among those that left, or will be.
        self._since = math.inf
        self._left: dict[bytes, int] = {}
        self._watches: dict[bytes, Watch] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no contender waits for any of its departures."""
        return all(watch.own for watch in self._watches.values())

    def created(self, revision: int) -> None:
        """The watch is filed: etcd reports what happens after ``revision``."""
        self._since = revision or math.inf  # which a proxy of etcd does not say

    def take(self, watch: Watch) -> bool:
        """Serve ``watch``, if all that it waits for is reported here; whether that is so."""
        misses = watch.start <= self._since or watch.version
        if misses or not self.is_short or watch.key in self._watches:
            return False
        self._watches[watch.key] = watch
        watch.sent, watch.carrier = watch.start, self
        return True

    def drop(self, watch: Watch) -> None:
        """Serve ``watch`` no longer."""
        del self._watches[watch.key]

    def drop_all(self) -> list[Watch]:
        """Serve no watch any longer; those that were."""
        served = list(self._watches.values())
        self._watches = {}
        for watch in served:
            watch.carrier = None
        return served

    def has_left(self, key: bytes, order: int) -> bool:
        """Whether the contender ``key`` that was created at ``order`` is known to have left."""
        return self._left.get(key, 0) > order

    def report(self, events: Sequence[pb.Event]) -> list[Watch]:
        """Take what etcd reports; the watches that are over, the client's own first."""
        over = []
        for event in events:
            key, revision = event.kv.key, event.kv.mod_revision
            self._left[key] = revision
            watch = self._watches.get(key)
            if watch is not None and watch.order < revision:
                over.append(watch)
        while len(self._left) > _REMEMBERED:
            self._since = max(self._since, self._left.pop(next(iter(self._left))))
        return sorted(over, key=lambda one: not one.own)
