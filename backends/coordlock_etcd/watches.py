"""Watches: of one contender, and of all departures from a short queue. No I/O.

A client that waits in a queue of up to 16 watches all of it: one watch on what its keys start
with, for deletions, from etcd's present on. It stays from turn to turn, so a client that waits
there again and again begins no watch. Every client that has it receives each departure, so a client
that comes to a longer queue watches one contender at a time.

Three facts follow from its being one watch, to which etcd reports in the order of the revisions:

- It reports all that happens after the revision at which etcd filed it. A contender that was seen
  there only before that may have left since, so the client reads its key, once.
- A contender that it covers, and whose departure it has not reported, was there when any other
  left.
- A listing of the whole queue, of that revision or later, less what has left since, bounds who is
  there: contenders enter a queue at its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from coordlock.backend.watch_table import Watched
from coordlock.model.contender import Contender
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.keys import key_of

__all__ = ["QueueWatch", "QueueWatches", "Watch"]

#: The longest queue that a client begins to watch whole.
MAX_WATCHED_QUEUE: Final = 16
#: Seconds after which a client ends the watch when it has not been there again.
UNUSED_S: Final = 2.0
#: How many departures are remembered, for contenders whose creation is yet to be answered.
MAX_DEPARTURES: Final = 128


class Watch(Watched):
    """One contender's watch, shared by all waiters for it.

    Attributes:
        contender: the contender that is watched.
        own: whether it is this client's own contender.
        start: the revision from which it must be watched: the contender was there just before.
        version: the version of the value whose change counts, too; 0 where only departures do.
        name: the contender's key in etcd. It may have several contenders, one after another.
        order: the revision that created the contender.
        id: its id on the current stream; 0 while it is on no stream.
        queue: the watch on the whole queue that serves it in place of one of its own.
        is_covered: whether a watch on the stream reports for certain what it waits for.
    """

    __slots__ = (
        "contender",
        "id",
        "is_covered",
        "name",
        "order",
        "own",
        "queue",
        "start",
        "version",
    )

    def __init__(self, contender: Contender, own: bool, start: int, version: int = 0) -> None:
        super().__init__((contender.key, contender.order, version))
        self.contender = contender
        self.own = own
        self.start = start
        self.version = version
        self.name = key_of(contender)
        self.order = contender.order
        self.id = 0
        self.queue: QueueWatch | None = None
        self.is_covered = False

    def is_over_with(self, event: pb.Event) -> bool:
        """Whether ``event`` is what it waits for."""
        if event.kv.mod_revision <= self.order:
            return False  # of an earlier contender: a member that lags begins in the past
        return event.type == pb.Event.DELETE or 0 < self.version < event.kv.version

    def still_waits(self, kvs: Sequence[pb.KeyValue]) -> bool:
        """Whether ``kvs``, a reading of the key, shows that nothing has happened yet."""
        if not kvs or kvs[0].create_revision != self.order:
            return False
        return self.version in (0, kvs[0].version)


class QueueWatch:
    """The departures of one queue that etcd has reported. Not safe for threads.

    Attributes:
        prefix: what the queue's keys start with.
        id: of the watch, on the stream.
        used: when the client last enqueued there, by the clock.
    """

    def __init__(self, prefix: bytes, used: float) -> None:
        self.prefix = prefix
        self.id = 0
        self.used = used
        #: Where etcd filed it; and after which revision all departures are known or to come.
        self._filed = self._since = math.inf
        #: The newest revision that it has reported.
        self._seen = 0
        self._left: dict[bytes, int] = {}
        #: Of those before the order ``_listed``, all that have not left, by key: their orders.
        self._there: dict[bytes, int] = {}
        self._listed = 0
        self._watches: dict[bytes, Watch] = {}

    @property
    def is_filed(self) -> bool:
        """Whether etcd has filed it, and so reports departures."""
        return self._filed < math.inf

    def is_unused(self, now: float) -> bool:
        """Whether the client has not been there for a while, and waits for no departure."""
        return self.used + UNUSED_S < now and all(watch.own for watch in self._watches.values())

    def created(self, revision: int) -> list[Watch]:
        """It is filed: etcd reports what happens after ``revision``; those it does not cover."""
        self._filed = self._since = self._seen = revision
        for watch in self._watches.values():
            watch.is_covered = watch.start > revision
        return [watch for watch in self._watches.values() if not watch.is_covered]

    def broke(self) -> None:
        """It is on no stream any more."""
        self.id = self._listed = 0
        self._filed = self._since = math.inf
        self._there.clear()
        for watch in self._watches.values():
            watch.is_covered = False

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
        """Take over ``watch``, unless this does not report what it waits for; whether it did."""
        if watch.version or watch.name in self._watches:
            return False
        self._watches[watch.name] = watch
        watch.queue, watch.is_covered = self, watch.start > self._since
        return True

    def seen(self, watch: Watch) -> None:
        """The contender of ``watch`` was there just before its start."""
        watch.is_covered = watch.start > self._filed

    def drop(self, watch: Watch) -> None:
        """Serve ``watch`` no longer."""
        del self._watches[watch.name]

    def drop_all(self) -> list[Watch]:
        """Serve no watch any longer; those that were."""
        served = list(self._watches.values())
        self._watches = {}
        for watch in served:
            if watch.is_covered:
                watch.start = max(watch.start, self._seen + 1)
            watch.queue, watch.is_covered = None, False
        return served

    def has_left(self, key: bytes, order: int) -> bool:
        """Whether etcd has reported that the contender ``key``, created at ``order``, has left."""
        return self._left.get(key, 0) > order

    def report(self, events: Sequence[pb.Event]) -> list[Watch]:
        """Take what etcd reports; the watches that are over, the client's own first."""
        over = []
        for event in events:
            key, revision = event.kv.key, event.kv.mod_revision
            self._seen = revision
            self._left.pop(key, None)  # the latest come last
            self._left[key] = revision
            if self._there.get(key, revision) < revision:
                del self._there[key]
            watch = self._watches.get(key)
            if watch is not None and watch.order < revision:
                over.append(watch)
        while len(self._left) > MAX_DEPARTURES:
            self._since = max(self._since, self._left.pop(next(iter(self._left))))
        return sorted(over, key=lambda one: not one.own)


class QueueWatches:
    """The queues that are watched whole, by their prefixes. Not safe for threads."""

    def __init__(self) -> None:
        self._queues: dict[bytes, QueueWatch] = {}

    def __contains__(self, prefix: bytes) -> bool:
        return prefix in self._queues

    def __iter__(self) -> Iterator[QueueWatch]:
        return iter(self._queues.values())

    def get(self, prefix: bytes) -> QueueWatch | None:
        """The watch on that queue, if there is one."""
        return self._queues.get(prefix)

    def enqueued(
        self, prefix: bytes, found: pb.RangeResponse, revision: int, now: float, *, waits: bool
    ) -> QueueWatch | None:
        """The client has enqueued, and ``found`` that queue; what is to be watched from now on.

        ``waits``: whether it has to wait.
        """
        if (queue := self._queues.get(prefix)) is not None:
            queue.used = now
            queue.listed(found, revision)
        elif waits and found.count <= MAX_WATCHED_QUEUE:
            queue = self._queues[prefix] = QueueWatch(prefix, now)
            return queue
        return None

    def lists(self, prefix: bytes) -> int:
        """How many contenders the next enqueue must list that stand in the queue before its own."""
        return MAX_WATCHED_QUEUE if prefix in self._queues else 0

    def unused(self, now: float) -> list[QueueWatch]:
        """Those that the client has not used for a while: perhaps nothing is reported any more."""
        return [queue for queue in self if queue.is_unused(now)]

    def end(self, queue: QueueWatch) -> list[Watch]:
        """Watch ``queue`` no longer; the watches that it served."""
        self._queues.pop(queue.prefix, None)
        return queue.drop_all()

    def clear(self) -> None:
        """Watch no queue any longer."""
        self._queues.clear()
