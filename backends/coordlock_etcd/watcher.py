"""Departures of contenders, over one watch stream.

A short queue in which the client waits gets one watch for all of its departures: see `watches`. So
departures in it are in order. Other contenders are watched one by one: a holder's own, those in
long queues, and those whose values change. Their departures prove nothing but themselves, so the
kernel reads the queue.

No departure is missed:

- Where something may have happened before a watch began, the client reads the key, after a
  reconnect those of all watches together. The contender has departed if no key with its creation
  revision is there.
- Servers have lost watch events. So the client also reads all watched keys once a minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from coordlock.backend import Departure
from coordlock.backend.session import OneSession
from coordlock.backend.watch_table import WatchTable
from coordlock.errors import CoordlockError
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Clock
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.keys import prefix_end
from coordlock_etcd.rpc import TXN
from coordlock_etcd.transport import Connection, StreamHost
from coordlock_etcd.watches import EtcdWatch, Watch

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
        self.host: StreamHost[EtcdWatch] = StreamHost(connection, "coordlock-etcd-watch", self)
        self._lock = self.host.lock
        self._watches: WatchTable[Watch] = WatchTable(self._lock, self._unwatch)
        #: All watches on a stream, or to be sent on the next one.
        self._sent: dict[EtcdWatch, None] = {}
        #: Those of whole queues, by what the queues' keys start with.
        self._queues: dict[bytes, EtcdWatch] = {}
        self._broken = False
        #: Those that their watches do not cover. They are read together when this watch is filed.
        self._unsure: list[Watch] = []
        self._read_at = 0
        self._rechecked_at = clock.now()

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender] = (),
        *,
        prefix: bytes = b"",
        changes: bool = False,
    ) -> Callable[[], None]:
        """See `Backend.watch`.

        ``prefix``: what the keys of its queue start with.
        """
        version = contender.version if changes else 0
        wanted = Watch(contender, revision + 1, version)
        has_left = is_unsure = False
        with self._lock:
            if self.host.closed:
                return lambda: None
            self.host.start()
            try:
                watch, cancel = self._watches.add(wanted, on_departure, waiters, version)
                if watch is wanted:
                    served_by = self._serve(watch, self._queues.get(prefix))
                    has_left = served_by.has_left(watch.name, watch.order)
                    is_unsure = served_by.filed < math.inf and not watch.is_covered
            except BaseException:
                self._watches.discard(wanted)  # it would serve no later waiter either
                raise
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
            if (queue := self._queues.get(prefix)) is not None:
                queue.is_used = True
                queue.listed(found, revision)
            elif waits and found.count <= requests.LISTED:
                queue = EtcdWatch(prefix, prefix_end(prefix))
                self._send(queue)  # first: a signal handler may raise in it
                self._queues[prefix] = queue

    def recheck_when_due(self) -> None:
        """Read the watched keys if that was long ago. Never blocks.

        And end the watches on queues in which the client has not been since the last call.
        """
        with self._lock:
            for queue in list(self._queues.values()):
                if queue.is_over():
                    self._drop(self._queues.pop(queue.key))
        if self._clock.now() - self._rechecked_at >= RECHECK_INTERVAL_S:
            self._rechecked_at = self._clock.now()
            with self._lock:
                watches = list(self._watches.watched.values())
            self._recheck(watches)

    def reset(self) -> None:
        """Drop all watches: their session has ended. Never blocks."""
        with self._lock:
            self._watches.clear()
            self._queues.clear()
            self._sent.clear()
            self._broken = False
            self.host.restart()

    def close(self) -> None:
        """Drop all watches and let the thread end. Never blocks."""
        self.host.close()
        self.reset()

    # With the lock held

    def _serve(self, watch: Watch, queue: EtcdWatch | None) -> EtcdWatch:
        """Have ``watch`` served by that of its ``queue``, if that can, or by one of its own."""
        if queue is not None and queue.take(watch):
            return queue
        own = EtcdWatch(watch.name, puts=watch.version > 0)
        own.take(watch)
        self._send(own)
        return own

    def _send(self, watch: EtcdWatch) -> None:
        self._sent[watch] = None
        if self.host.is_open and not watch.id:
            watch.id = self.host.watch(watch, watch.key, watch.end, puts=watch.puts)

    def _drop(self, watch: EtcdWatch) -> None:
        self._sent.pop(watch, None)
        self.host.unwatch(watch.id)

    def _unwatch(self, watch: Watch) -> None:
        served_by = watch.served_by
        if served_by is not None and served_by.drop(watch):
            self._drop(served_by)

    # Called by the host

    def needs_stream(self) -> bool:
        """See `StreamUser`, as for the following three."""
        return bool(self._watches.watched)

    def opened(self) -> None:
        """Send all watches."""
        with self._lock:
            for watch in list(self._sent):
                self._send(watch)
            self._read_at = self.host.newest_id

    def broke(self, error: CoordlockError | None) -> None:
        """No watch is on a stream until the next one is open."""
        with self._lock:
            for watch in self._sent:
                watch.broke()
            self._unsure.clear()
            if error is None or self._broken or not self._watches.watched:
                return
            self._broken = True
        self._session.suspect(str(error))

    def received(self, response: pb.WatchResponse) -> None:
        """Take what etcd says of a watch."""
        with self._lock:
            target = self.host.target(response.watch_id)
            over: list[Watch] = []
            if target is not None:  # else it was cancelled meanwhile
                if response.canceled:  # the member lags behind a compaction
                    self.host.restart()
                if response.created:
                    self._unsure += target.created(response.header.revision)
                over = target.report(response.events)
            unsure: list[Watch] = []
            are_filed = response.created and response.watch_id >= self._read_at
            if are_filed:
                unsure, self._unsure = self._unsure, []
                self._read_at = self.host.newest_id
        for watch in over:
            self._depart(watch)
        if unsure:
            self._connection.cluster.saw(response.header.revision)
            self._recheck(unsure)
        elif are_filed:
            self._mend()

    def _mend(self) -> None:
        """The client has read what changed while it had no stream: it tells the session."""
        with self._lock:
            was_broken, self._broken = self._broken, False
        if was_broken:
            self._session.recovered()

    def _depart(self, watch: Watch) -> None:
        """Etcd has reported what ``watch`` waits for."""
        self._watches.report(watch, partial(self._proof, watch))

    def _proof(self, watch: Watch, waiters: Sequence[Contender]) -> Departure:
        """What that proves. Decided now: when waiters wake, they may be on another stream."""
        with self._lock:
            queue = watch.served_by
            if queue is None:
                return Departure.UNORDERED
            for waiter in waiters:
                own = self._watches.watched.get((waiter.key, waiter.order, 0))
                # Its own departure may be among those that are about to be reported.
                if own is None or own.served_by is not queue or not own.is_covered:
                    return Departure.UNORDERED
                if queue.has_left(own.name, own.order):
                    return Departure.UNORDERED
            return Departure.FIRST if queue.is_first(watch.order) else Departure.IN_ORDER

    # Readings of watched keys, where no watch is certain to report what has happened

    def _recheck(self, watches: Sequence[Watch]) -> None:
        for start in range(0, len(watches), requests.MAX_OPERATIONS):
            batch = watches[start : start + requests.MAX_OPERATIONS]
            request = requests.presence([watch.name for watch in batch])
            answer = self._connection.call(TXN, request, partial(self._found, batch))
            answer.add_done_callback(partial(self._rechecked, batch))

    def _found(self, batch: Sequence[Watch], reply: pb.TxnResponse) -> None:
        revision = reply.header.revision
        for watch, operation in zip(batch, reply.responses, strict=True):
            has_left = not watch.still_waits(operation.response_range.kvs)
            with self._lock:
                # Its event has been lost, or comes too late; or it was there just before.
                watch.start = 0 if has_left else max(watch.start, revision + 1)
            if has_left:
                self._watches.report(watch)

    def _rechecked(self, batch: Sequence[Watch], answer: Promise[None]) -> None:
        with self._lock:
            are_unsure = any(watch.watches and not watch.is_covered for watch in batch)
        if not are_unsure:
            self._mend()
        elif answer.exception() is not None:
            self.host.restart()  # which sends them again, after a while
