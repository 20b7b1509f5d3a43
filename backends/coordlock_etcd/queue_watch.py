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
from typing import Final

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.watch import Watch

__all__ = ["QueueWatch", "QueueWatches"]

#: The longest queue whose departures one watch reports: every client that has it hears of each.
_SHORT: Final = 16
#: Seconds within which a client that waits in a queue again gets one watch for all of it, and
#: after which it ends that watch when it has not been there again.
_AGAIN: Final = 2.0
#: For how many queues the client remembers that it has waited there.
_QUEUES: Final = 64
#: How many departures are remembered, for contenders whose creation is yet to be answered.
_REMEMBERED: Final = 128


class QueueWatch:
    """The departures of one queue that etcd has reported. Not safe for threads.

    Attributes:
        prefix: what the queue's keys start with.
        id: of the watch, on the stream.
        used: when the client last enqueued there, by the clock.
        is_short: whether the queue was short then, so that more contenders are watched here.
        has_caught_up: whether it has caught up with the store, as its first report shows.
    """

    def __init__(self, prefix: bytes, used: float) -> None:
        self.prefix = prefix
        self.id = 0
        self.used = used
        self.is_short = True
        self.has_caught_up = False
        #: Every departure after this revision is among those that left, or will be.
        self._since = math.inf
        self._left: dict[bytes, int] = {}
        #: Of those before the order ``_listed``, all that have not left, by key: their orders.
        self._there: dict[bytes, int] = {}
        self._listed = 0
        self._watches: dict[bytes, Watch] = {}

    def is_unused(self, now: float) -> bool:
        """Whether the client has not been there for a while, and waits for no departure."""
        return self.used + _AGAIN < now and all(watch.own for watch in self._watches.values())

    def created(self, revision: int) -> None:
        """The watch is filed: etcd reports what happens after ``revision``."""
        self._since = revision or math.inf  # which a proxy of etcd does not say

    def listed(self, found: pb.RangeResponse, revision: int) -> None:
        """The end of the queue as it was at ``revision``, the newest first."""
        if found.more or revision < self._since:
            return  # others may be there, or may have left without a report
        self._listed = max(self._listed, found.kvs[0].create_revision)
        for kv in found.kvs:
            if not self.has_left(kv.key, kv.create_revision):
                self._there[kv.key] = kv.create_revision

    def is_first(self, order: int) -> bool:
        """Whether none of the contenders before ``order`` is left in the queue."""
        return order < self._listed and all(one >= order for one in self._there.values())

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
        """Whether etcd has reported that the contender ``key``, created at ``order``, has left."""
        return self._left.get(key, 0) > order

    def report(self, events: Sequence[pb.Event]) -> list[Watch]:
        """Take what etcd reports; the watches that are over, the client's own first."""
        over = []
        self.has_caught_up = self.has_caught_up or bool(events)
        for event in events:
            key, revision = event.kv.key, event.kv.mod_revision
            self._left.pop(key, None)  # the latest come last
            self._left[key] = revision
            if self._there.get(key, revision) < revision:
                del self._there[key]
            watch = self._watches.get(key)
            if watch is not None and watch.order < revision:
                over.append(watch)
        while len(self._left) > _REMEMBERED:
            self._since = max(self._since, self._left.pop(next(iter(self._left))))
        return sorted(over, key=lambda one: not one.own)


class QueueWatches:
    """The queues in demand, by their prefixes. Not safe for threads."""

    def __init__(self) -> None:
        self._queues: dict[bytes, QueueWatch] = {}
        #: When the client last waited in other queues.
        self._waited: dict[bytes, float] = {}

    def __contains__(self, prefix: bytes) -> bool:
        return prefix in self._queues

    def enqueued(
        self, prefix: bytes, found: pb.RangeResponse, revision: int, now: float
    ) -> QueueWatch | None:
        """The client has enqueued, and ``found`` that queue; what is to be watched from now on.

        None if that has begun before, or is not worth it.
        """
        length = found.count
        if (queue := self._queues.get(prefix)) is not None:
            queue.used, queue.is_short = now, length <= _SHORT
            queue.listed(found, revision)
        elif 1 < length <= _SHORT:
            if now < self._waited.pop(prefix, -math.inf) + _AGAIN:
                queue = self._queues[prefix] = QueueWatch(prefix, now)
                return queue
            self._waited[prefix] = now
            if len(self._waited) > _QUEUES:
                del self._waited[next(iter(self._waited))]
        return None

    def lists(self, prefix: bytes) -> int:
        """How many contenders the client should know that stand in the queue before its own."""
        return _SHORT if prefix in self._queues else 0

    def take(self, prefix: bytes, watch: Watch) -> QueueWatch | None:
        """What serves ``watch`` from now on, which is on a contender of that queue."""
        queue = self._queues.get(prefix)
        return queue if queue is not None and queue.take(watch) else None

    def unused(self, now: float) -> list[QueueWatch]:
        """Those that the client has not used for a while: perhaps nothing is reported any more."""
        return [queue for queue in self._queues.values() if queue.is_unused(now)]

    def end(self, queue: QueueWatch) -> list[Watch]:
        """Watch ``queue`` no longer; the watches that it served."""
        self._queues.pop(queue.prefix, None)
        return queue.drop_all()

    def end_all(self) -> None:
        """The stream has ended, and all watches with it."""
        for queue in self._queues.values():
            queue.drop_all()
        self._queues.clear()
