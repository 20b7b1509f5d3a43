"""Departures of contenders, over one watch stream.

A short queue in which the client waits gets one watch for all of its departures, from etcd's
present on: see `watches`. So departures in it are in order. Other contenders are watched one by
one: a holder's own, those in long queues, and those whose values change. Their departures prove
nothing but themselves, so the kernel reads the queue.

No departure is missed:

- A watch on one contender begins at the revision after the one at which that was seen. etcd replays
  what has happened since, within 100 ms. That would be late for changes of values, so a watch for
  those begins in the present, too.
- Where something may have happened before a watch began, or where etcd has compacted the history,
  the client reads the key. The contender has departed if no key with its creation revision is
  there.
- Servers have lost watch events. So the client also reads all watched keys after every reconnect,
  and once a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from coordlock.backend import Departure
from coordlock.backend.session import OneSession
from coordlock.backend.watch_table import WatchTable
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Clock
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.keys import prefix_end
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection, StreamHost
from coordlock_etcd.watches import QueueWatch, QueueWatches, Watch

__all__ = ["Watcher"]

#: Seconds after which the watched keys are read, even if the stream is well.
RECHECK_INTERVAL_S: Final = 60.0


class Watcher:
    """The watches of one client.

    Args:
        session: learns how the stream is, from the watcher's thread and gRPC's.
    """

    def __init__(self, connection: Connection, clock: Clock, session: OneSession[int]) -> None:
        self._connection = connection
        self._clock = clock
        self._session = session
        self.host: StreamHost[Watch | QueueWatch] = StreamHost(
            connection, "coordlock-etcd-watch", self
        )
        self._lock = self.host.lock
        self._watches: WatchTable[Watch] = WatchTable(self._lock, self._unwatch)
        self._queues = QueueWatches()
        self._broken = False
        #: Whether watches are on a stream again, and their keys are to be read for that.
        self._is_resent = False
        self._rechecked_at = clock.now()

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender] = (),
        *,
        prefix: bytes = b"",
        own: bool = False,
        changes: bool = False,
    ) -> Callable[[], None]:
        """See `Backend.watch`.

        ``prefix``: what the keys of its queue start with. ``own``: ``contender`` is this client's.
        """
        version = contender.version if changes else 0
        wanted = Watch(contender, own and not changes, revision + 1, version)
        has_left = is_unsure = False
        with self._lock:
            if self.host.closed:
                return lambda: None
            self.host.start()
            watch, cancel = self._watches.add(wanted, on_departure, waiters, version)
            if watch is wanted:
                queue = self._queues.get(prefix)
                if queue is None or not queue.take(watch):
                    self._send(watch)
                else:
                    has_left = queue.has_left(watch.name, watch.order)
                    is_unsure = queue.is_filed and not watch.is_covered
        if has_left:
            self._depart(watch)
        elif is_unsure:
            self._recheck([watch])
        return cancel

    def enqueued(
        self, prefix: bytes, found: pb.RangeResponse, revision: int, *, waits: bool
    ) -> None:
        """The client has enqueued a contender, and ``waits``; the queue's end, the newest first."""
        if not waits and prefix not in self._queues:
            return
        with self._lock:
            now = self._clock.now()
            queue = self._queues.enqueued(prefix, found, revision, now, waits=waits)
            if queue is not None:
                self._send_queue(queue)

    def lists(self, prefix: bytes) -> int:
        """See `QueueWatches`."""
        with self._lock:
            return self._queues.lists(prefix)

    def recheck_when_due(self) -> None:
        """Read the watched keys if that was long ago. Never blocks.

        And end the watches on queues that have been left: nothing may be reported there any more.
        """
        with self._lock:
            for queue in self._queues.unused(self._clock.now()):
                self._end(queue)
        if self._clock.now() - self._rechecked_at >= RECHECK_INTERVAL_S:
            self._recheck_all()

    def reset(self) -> None:
        """Drop all watches: their session has ended. Never blocks."""
        with self._lock:
            self._watches.clear()
            self._queues.clear()
            self._broken = False
            self.host.forget()
            self.host.restart()

    def close(self) -> None:
        """Drop all watches and let the thread end. Never blocks."""
        self.host.close()
        self.reset()

    # With the lock held

    def _send(self, watch: Watch) -> None:
        if self.host.is_open and not watch.id:
            key, puts = watch.name, watch.version > 0
            start = requests.NOW if puts else watch.start
            watch.id = self.host.watch(watch, lambda id: requests.watch(id, key, start, puts=puts))

    def _send_queue(self, queue: QueueWatch) -> None:
        if self.host.is_open and not queue.id:
            key, end = queue.prefix, prefix_end(queue.prefix)
            queue.id = self.host.watch(
                queue, lambda id: requests.watch(id, key, requests.NOW, end=end)
            )

    def _end(self, queue: QueueWatch) -> None:
        """Watch one by one what ``queue`` has served."""
        self.host.unwatch(queue.id)
        for watch in self._queues.end(queue):
            self._send(watch)

    def _unwatch(self, watch: Watch) -> None:
        if watch.queue is not None:
            watch.queue.drop(watch)
        self.host.unwatch(watch.id)

    # Called by the host

    def needs_stream(self) -> bool:
        """See `StreamUser`, as for the following three."""
        return bool(self._watches.watched)

    def opened(self) -> None:
        """Send all watches."""
        with self._lock:
            for queue in self._queues:
                self._send_queue(queue)
            for watch in self._watches.watched.values():
                if watch.queue is None:
                    self._send(watch)

    def broke(self, error: CoordlockError | None, *, is_forgiven: bool) -> None:
        """No watch is on a stream until the next one is open."""
        with self._lock:
            for queue in self._queues:
                queue.broke()
            for watch in self._watches.watched.values():
                watch.id, watch.is_covered = 0, False
            self._is_resent = bool(self._watches.watched)
            if error is None or is_forgiven or self._broken or not self._watches.watched:
                return
            self._broken = True
        self._session.suspect(str(error))

    def received(self, response: pb.WatchResponse) -> None:
        """Take what etcd says of a watch."""
        if response.created:
            self._mend()
        over: list[Watch] = []
        unsure: list[Watch] = []
        with self._lock:
            target = self.host.target(response.watch_id)
            if isinstance(target, QueueWatch):
                if response.created:
                    unsure = target.created(response.header.revision)
                over = target.report(response.events)
                if response.canceled or target.is_unused(self._clock.now()):
                    self._end(target)
            elif target is not None:  # else it was cancelled meanwhile
                over = [target] if any(map(target.is_over_with, response.events)) else []
                if response.created:
                    is_late = target.start <= response.header.revision
                    target.is_covered = not (target.version and is_late)
                if response.canceled:
                    # etcd 3.4 keeps a watch that a compaction has cancelled until the client ends
                    # it, or until the stream's end.
                    self.host.unwatch(target.id)
                    target.id, target.is_covered = 0, False
                if response.created or response.canceled:
                    unsure = [] if target.is_covered else [target]
        for watch in over:
            self._depart(watch)
        if unsure:
            self._connection.cluster.saw(response.header.revision)
            self._recheck(unsure)

    def _mend(self) -> None:
        with self._lock:
            was_broken, self._broken = self._broken, False
            is_resent, self._is_resent = self._is_resent, False
        if was_broken:
            self._session.recovered()
        if is_resent:
            self._recheck_all()

    def _depart(self, watch: Watch) -> None:
        """Etcd has reported what ``watch`` waits for."""
        self._watches.report(watch, partial(self._proof, watch))

    def _proof(self, watch: Watch, waiters: Sequence[Contender]) -> Departure:
        """What that proves. Decided now: when waiters wake, they may be on another stream."""
        with self._lock:
            queue = watch.queue
            if queue is None:
                return Departure.UNORDERED
            for waiter in waiters:
                own = self._watches.watched.get((waiter.key, waiter.order, 0))
                # Its own departure may be among those that are about to be reported.
                if own is None or own.queue is not queue or not own.is_covered:
                    return Departure.UNORDERED
                if queue.has_left(own.name, own.order):
                    return Departure.UNORDERED
            return Departure.FIRST if queue.is_first(watch.order) else Departure.IN_ORDER

    # Readings of watched keys, where no watch is certain to report what has happened

    def _recheck_all(self) -> None:
        self._rechecked_at = self._clock.now()
        with self._lock:
            watches = list(self._watches.watched.values())
        self._recheck(watches)

    def _recheck(self, watches: Sequence[Watch]) -> None:
        for start in range(0, len(watches), requests.MAX_OPERATIONS):
            batch = watches[start : start + requests.MAX_OPERATIONS]
            request = requests.presence([watch.name for watch in batch])
            seen = self._connection.cluster.revision
            answer = self._connection.call(TXN, request, partial(self._found, batch, seen))
            answer.add_done_callback(partial(self._rechecked, batch))

    def _found(self, batch: Sequence[Watch], seen: int, reply: pb.TxnResponse) -> None:
        revision = reply.header.revision
        if revision < seen:  # see `data`
            raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
        for watch, operation in zip(batch, reply.responses, strict=True):
            has_left = not watch.still_waits(operation.response_range.kvs)
            with self._lock:
                if has_left:
                    watch.is_covered = False  # its event has been lost, or comes too late
                else:
                    self._stays(watch, revision)
            if has_left:
                self._watches.report(watch)

    def _stays(self, watch: Watch, revision: int) -> None:
        watch.start = max(watch.start, revision + 1)
        if watch.queue is not None:
            watch.queue.seen(watch)
        elif watch.id:
            watch.is_covered = True
        elif watch.watches:
            self._send(watch)

    def _rechecked(self, batch: Sequence[Watch], answer: Promise[None]) -> None:
        if answer.exception() is None:
            return
        with self._lock:
            are_unsure = any(watch.watches and not watch.is_covered for watch in batch)
        if are_unsure:
            self.host.restart()  # which sends them again, after a while
