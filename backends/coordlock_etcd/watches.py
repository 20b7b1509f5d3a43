"""What one watch of etcd reports: of one contender, or of a whole short queue. No I/O.

A client that waits in a queue of up to 16 watches all of it: one watch on what its keys start
with, for deletions. It stays from turn to turn, so a client that waits there again and again begins
no watch. Every client that has it receives each departure, so a client that comes to a longer queue
watches one contender at a time. So it does where a value's changes matter.

All watches begin in etcd's present. etcd reports to each in the order of the revisions, and three
facts follow from that:

- It reports all that happens after the revision at which etcd filed it. A contender that was seen
  there only before that may have left since, so the client reads its key, once.
- A contender that it covers, and whose departure it has not reported, was there when any other of
  its contenders left.
- A listing of the whole queue, of that revision or later, less what has left since, bounds who is
  there: contenders enter a queue at its end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from coordlock.backend.watch_table import Watched
from coordlock.model.contender import Contender
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.keys import key_of

__all__ = ["EtcdWatch", "Watch"]

#: How many departures are remembered, for contenders whose creation is yet to be answered.
MAX_DEPARTURES: Final = 128


class Watch(Watched):
    """One contender that is watched, for all waiters.

    Attributes:
        start: the revision from which it must be watched: the contender was there just before.
        version: the version of the value whose change counts, too; 0 where only departures do.
        name: the contender's key in etcd. It may have several contenders, one after another.
        order: the revision that created the contender.
        served_by: what reports its departure.
    """

    __slots__ = ("name", "order", "served_by", "start", "version")

    def __init__(self, contender: Contender, start: int, version: int = 0) -> None:
        super().__init__((contender.key, contender.order, version))
        self.start = start
        self.version = version
        self.name = key_of(contender)
        self.order = contender.order
        self.served_by: EtcdWatch | None = None

    @property
    def is_covered(self) -> bool:
        """Whether it is certainly reported what this waits for."""
        return self.served_by is not None and self.start > self.served_by.filed

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


class EtcdWatch:
    """One watch in etcd, on one key or a queue, and what it has reported. Not safe for threads.

    Attributes:
        key: the key, or what the queue's keys start with.
        end: the end of the queue's keys; empty for a key.
        puts: whether it reports puts, too.
        id: on the stream; 0 while it is on none.
        is_used: whether the client has enqueued there since the last call of `is_over`.
        filed: the revision at which etcd filed it, and so reports departures; infinite before.
    """

    def __init__(self, key: bytes, end: bytes = b"", *, puts: bool = False) -> None:
        self.key = key
        self.end = end
        self.puts = puts
        self.id = 0
        self.is_used = True
        #: `filed`, and the revision after which this watch has reported all departures, or will.
        self.filed = self._since = math.inf
        self._left: dict[bytes, int] = {}
        #: Of those before the order ``_listed``, all that have not left, by key: their orders.
        self._there: dict[bytes, int] = {}
        self._listed = 0
        self._watches: dict[bytes, Watch] = {}

    def is_over(self) -> bool:
        """Whether the client has not been there since the last call, and awaits no departure."""
        was_used, self.is_used = self.is_used, False
        return not (was_used or self._watches)

    def created(self, revision: int) -> list[Watch]:
        """It is filed: etcd reports what happens after ``revision``; those it does not cover."""
        self.filed = self._since = revision
        return [watch for watch in self._watches.values() if not watch.is_covered]

    def broke(self) -> None:
        """It is on no stream any more.

        It forgets all departures: etcd may be restored from a backup meanwhile.
        """
        self.id = self._listed = 0
        self.filed = self._since = math.inf
        self._there.clear()
        self._left.clear()
        for watch in self._watches.values():
            watch.start = 0

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
        """Serve ``watch``, unless this does not report what it waits for; whether it does."""
        if watch.name in self._watches or self.puts is not (watch.version > 0):
            return False
        self._watches[watch.name] = watch
        watch.served_by = self
        if self.filed < watch.start <= self._since:
            watch.start = 0  # its departure may be forgotten
        return True

    def drop(self, watch: Watch) -> bool:
        """Serve ``watch`` no longer; whether this serves no purpose any more."""
        del self._watches[watch.name]
        return not self.end

    def has_left(self, key: bytes, order: int) -> bool:
        """Whether etcd has reported that the contender ``key``, created at ``order``, has left."""
        return self._left.get(key, 0) > order

    def report(self, events: Sequence[pb.Event]) -> list[Watch]:
        """Take what etcd reports; the watches that are over.

        None of ``events`` is forgotten before the next report: see `Watcher._proof`.
        """
        if len(self._left) > MAX_DEPARTURES:
            self._since = max(self._since, *self._left.values())
            self._left.clear()
        over = []
        for event in events:
            key, revision = event.kv.key, event.kv.mod_revision
            if event.type == pb.Event.DELETE:
                self._left[key] = revision
                if self._there.get(key, revision) < revision:
                    del self._there[key]
            watch = self._watches.get(key)
            if watch is not None and watch.is_over_with(event):
                over.append(watch)
        return over
