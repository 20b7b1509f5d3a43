"""Departures of contenders, over one watch stream.

No departure is missed:

- On every stream, a watch begins at the revision after the one at which its contender was seen.
  etcd replays the deletions since then.
- Where etcd has compacted that history, the client reads the key. The contender has departed if no
  key with its creation revision is there.
- Servers have lost watch events. So the client also reads all watched keys after every reconnect,
  and once a minute: see `rechecks`.

`progress` says whether departures come in order. One that a reading found counts as out of order.

A watch that begins in the past is late: etcd lets such watches catch up only every 100 ms, and any
write to etcd between the reading of a queue and the watch puts its beginning into the past. A lock
that several clients hold briefly would change hands ten times a second. So for some seconds after a
departure came late, the client watches other clients' contenders from etcd's present on, which etcd
reports at once. If a contender may have left before that, the client reads its key. This reading
rarely finds anything, so it is not done always.

A short queue in which the client waits again and again gets one watch for all of its departures:
see `queue_watch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from coordlock.backend import Departure
from coordlock.errors import CoordlockError
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Clock
from coordlock.runtime.log import Log
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.keys import prefix_end
from coordlock_etcd.progress import Progress
from coordlock_etcd.queue_watch import QueueWatch, QueueWatches
from coordlock_etcd.rechecks import Rechecks
from coordlock_etcd.transport import Connection, StreamHost
from coordlock_etcd.watch import Callback, Watch

__all__ = ["ConnectionListener", "Watcher"]

log = Log("coordlock")

#: So many own watches are replayed at a time.
_REPLAYS: Final = 32
#: Seconds for which watches begin in the present after a departure that came late.
_HURRIES: Final = 10.0


class ConnectionListener(Protocol):
    """Learns how the stream is, from the watcher's thread and gRPC's."""

    def suspect(self, reason: str) -> None:
        """The stream is broken."""

    def recovered(self) -> None:
        """The stream is back."""


class Watcher:
    """The watches of one client."""

    def __init__(self, connection: Connection, clock: Clock, listener: ConnectionListener) -> None:
        self._connection = connection
        self._clock = clock
        self._listener = listener
        self.host: StreamHost[Watch | QueueWatch] = StreamHost(
            connection, "coordlock-etcd-watch", self
        )
        self._lock = self.host.lock
        self._watches: dict[tuple[str, int, int], Watch] = {}
        self._progress = Progress()
        #: Own watches that are to be replayed, in order, and watches that are being replayed.
        self._late: dict[Watch, None] = {}
        self._replayed: set[Watch] = set()
        self._queues = QueueWatches()
        #: Until when watches begin in the present, by the clock.
        self._hurries_until = 0.0
        #: Before this revision, history is known to be gone.
        self._compacted = 0
        self._cancelled = self._cancel  # one for all callbacks
        self._broken = False
        #: Whether watches are on a stream again, and their keys are to be read for that.
        self._is_resent = False
        self._rechecks = Rechecks(connection, clock, self)

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
        wanted = Watch(contender, own and not changes, revision + 1, version=version)
        has_left = False
        with self._lock:
            if self.host.closed:
                return lambda: None
            watch = self._watches.get(wanted.identity)
            if watch is None:
                watch = self._watches[wanted.identity] = wanted
                if (queue := self._queues.take(prefix, watch)) is None:
                    self._progress.unsent(watch)
                    self._send(watch)
                else:
                    has_left = queue.has_left(watch.key, watch.order)
            elif watch.carrier is None:
                self._progress.joined(watch)
                self._witness()
            callback = Callback(on_departure, () if changes else waiters, watch, self._cancelled)
            watch.callbacks.append(callback)
            self.host.start()
        if has_left:
            self._depart(watch)
        return callback

    def told_in_order(self, contender: Contender, before: Watch | None = None) -> bool:
        """Whether a departure of ``contender``, an own one, would be told by now.

        True if its watch is known to have caught up with etcd, or if the same watch reports the
        contender of ``before``.
        """
        with self._lock:
            watch = self._watches.get((contender.key, contender.order, 0))
            if watch is None:
                return False
            if (carrier := watch.carrier) is not None:
                # Its own departure may be among those that are about to be told.
                if carrier.has_left(watch.key, watch.order):
                    return False
                is_one = before is None or carrier is before.carrier
                return is_one or carrier.has_caught_up
            return watch in self._progress

    # Queues in demand

    def enqueued(self, prefix: bytes, found: pb.RangeResponse, revision: int) -> None:
        """The client has enqueued a contender; the queue's end with it, the newest first."""
        if found.count == 1 and prefix not in self._queues:
            return
        with self._lock:
            if not self.host.is_open:
                return
            queue = self._queues.enqueued(prefix, found, revision, self._clock.now())
            if queue is not None:
                end = prefix_end(prefix)
                queue.id = self.host.watch(
                    queue, lambda id: requests.watch(id, prefix, requests.NOW, end=end)
                )
                self._progress.witness(queue.id)

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
        if self._rechecks.are_due:
            self._rechecks.read_all()

    def reset(self) -> None:
        """Drop all watches: their session has ended. Never blocks."""
        with self._lock:
            self._watches.clear()
            self._queues.end_all()
            self._progress.clear()
            self._late.clear()
            self._replayed.clear()
            self._compacted = 0
            self._broken = False
            self.host.forget()
            self.host.restart()

    def close(self) -> None:
        """Drop all watches and let the thread end. Never blocks."""
        self.host.close()
        self.reset()

    def _cancel(self, callback: Callback) -> None:
        watch = callback.watch
        with self._lock:
            if callback in watch.callbacks:
                watch.callbacks.remove(callback)
            if not watch.callbacks:
                self._remove(watch)
                self.host.unwatch(watch.id)

    # With the lock held

    def _send(self, watch: Watch) -> None:
        if self.host.is_open and not watch.id and watch.carrier is None:
            is_hurried = not watch.own and self._clock.now() < self._hurries_until
            watch.sent = watch.start
            watch.began = requests.NOW if is_hurried else watch.start
            self._begin(watch, watch.began, puts=watch.version > 0)

    def _begin(self, watch: Watch, start: int, *, puts: bool) -> None:
        watch.id = self.host.watch(
            watch, lambda id: requests.watch(id, watch.key, start, puts=puts)
        )
        self._progress.sent(watch)

    def _replay(self, watches: Sequence[Watch]) -> None:
        """Watch anew from the contenders' creation on, which comes when a watch catches up.

        A few at a time: etcd keeps no more than 128 answers for a stream, and sends the others
        later, in any order.
        """
        self._late.update(dict.fromkeys(watches))
        while self._late and len(self._replayed) < _REPLAYS:
            watch = next(iter(self._late))
            del self._late[watch]
            if self.host.is_open and watch.id and watch.order >= self._compacted:
                self._replayed.add(watch)
                self.host.unwatch(watch.id)
                watch.sent = watch.order
                self._begin(watch, watch.order, puts=True)

    def _replays_no_more(self, watch: Watch) -> None:
        self._late.pop(watch, None)
        if watch in self._replayed:
            self._replayed.remove(watch)
            self._replay(())

    def _witness(self) -> None:
        """Show whether an own watch was sent in time, where no other watch will."""
        if (watch := self._progress.alone()) is not None and self.host.is_open:
            key, start = watch.key, watch.start
            id = self.host.watch(None, lambda id: requests.watch(id, key, start))
            self._progress.witness(id)
            self.host.send(requests.unwatch(id))

    def _unsent(self, watch: Watch) -> None:
        self._replays_no_more(watch)
        self.host.unwatch(watch.id)
        if self._is_live(watch):
            self._progress.unsent(watch)
        watch.id = 0

    def _is_live(self, watch: Watch) -> bool:
        return self._watches.get(watch.identity) is watch

    def _remove(self, watch: Watch) -> None:
        self._replays_no_more(watch)
        if self._is_live(watch):
            del self._watches[watch.identity]
            self._progress.ended(watch)
            if watch.carrier is not None:
                watch.carrier.drop(watch)

    # Called by the host

    def needs_stream(self) -> bool:
        """See `StreamUser`, as for the following three."""
        return bool(self._watches)

    def opened(self) -> None:
        """Send all watches."""
        with self._lock:
            unsent = [watch for watch in self._watches.values() if not watch.id]
            again = any(watch.sent for watch in unsent)
            for watch in unsent:
                self._send(watch)
            if again:
                self._progress.resent()
                self._is_resent = True

    def broke(self, error: CoordlockError | None, *, is_forgiven: bool) -> None:
        """All watches count as behind until they are created on the next stream."""
        with self._lock:
            self._queues.end_all()
            for watch in self._watches.values():
                self._unsent(watch)
            if error is None or is_forgiven or self._broken or not self._watches:
                return
            self._broken = True
        self._listener.suspect(str(error))

    def received(self, response: pb.WatchResponse) -> None:
        """Take what etcd says of a watch."""
        if response.created:
            self._mend()
        over: list[Watch] = []
        unsure: list[Watch] = []
        with self._lock:
            if response.created:
                revision = response.header.revision
                self._replay(self._progress.created(response.watch_id, revision))
                self._witness()
            watch = self.host.target(response.watch_id)
            if isinstance(watch, QueueWatch):
                over = self._reported_queue(watch, response)
            elif watch is not None:  # else it was cancelled meanwhile
                over, unsure = self._reported(watch, response)
        for one in over:
            self._depart(one)
        if unsure:
            self._connection.cluster.saw(response.header.revision)
            self._rechecks.read(unsure)

    def _reported(
        self, watch: Watch, response: pb.WatchResponse
    ) -> tuple[list[Watch], list[Watch]]:
        """The watches that are over, and those whose keys are to be read. With the lock held."""
        revision = response.header.revision
        is_unsure = response.canceled
        if response.created and watch.began == requests.NOW:
            watch.began = revision + 1
            is_unsure = watch.has_gap or not revision  # which a proxy of etcd does not say
        ends = [one for one in response.events if watch.is_over_with(one)]
        if response.events and not ends:  # else it ends, and must prove nothing before
            self._progress.told(watch)
            self._replays_no_more(watch)
        # A watch that has caught up hears of each revision by itself.
        if ends and not watch.own and ends[-1].kv.mod_revision < revision:
            self._hurries_until = self._clock.now() + _HURRIES
        if response.canceled:
            self._compacted = max(self._compacted, response.compact_revision)
            # etcd 3.4 keeps a watch that a compaction has cancelled until the client ends it,
            # or until the stream's end.
            self._unsent(watch)
        return [watch] if ends else [], [watch] if is_unsure else []

    def _reported_queue(self, queue: QueueWatch, response: pb.WatchResponse) -> list[Watch]:
        """As `_reported`, of a whole queue."""
        if response.created:
            queue.created(response.header.revision)
        over = queue.report(response.events)
        if response.canceled or queue.is_unused(self._clock.now()):
            self._end(queue)
        return over

    def _end(self, queue: QueueWatch) -> None:
        """Watch one by one what ``queue`` has served. With the lock held."""
        self.host.unwatch(queue.id)
        for watch in self._queues.end(queue):
            self._progress.unsent(watch)
            self._send(watch)

    def _mend(self) -> None:
        with self._lock:
            was_broken, self._broken = self._broken, False
            is_resent, self._is_resent = self._is_resent, False
        if was_broken:
            self._listener.recovered()
        if was_broken or is_resent:
            self._rechecks.read_all()

    def _depart(self, watch: Watch, *, in_order: bool = True) -> None:
        with self._lock:
            callbacks = watch.callbacks if self._is_live(watch) else []
            watch.callbacks = []  # a callback cancelled from now on finds nothing
            self._remove(watch)
        for callback in callbacks:
            waiters = callback.waiters
            departure = Departure.UNORDERED
            # Decided now: when the waiters wake, their watches may be on another stream.
            if in_order and waiters and all(self.told_in_order(one, watch) for one in waiters):
                departure = Departure.FIRST if watch.is_first else Departure.IN_ORDER
            try:
                callback.on_departure(departure)
            except Exception:
                log.exception("etcd: the callback of a watch failed")
        # Only now: gRPC's thread for requests would compete with the callbacks for the interpreter.
        with self._lock:
            self.host.unwatch(watch.id)

    # Called by the rechecks

    def watched(self) -> list[Watch]:
        """See `Rechecked`, as for the following three."""
        with self._lock:
            return list(self._watches.values())

    def went(self, watch: Watch) -> None:
        self._depart(watch, in_order=False)

    def stays(self, watch: Watch, revision: int) -> None:
        with self._lock:
            watch.start = max(watch.start, revision + 1)
            if self._is_live(watch) and not watch.id:
                self._send(watch)
                self._progress.resent()

    def not_read(self, watches: Sequence[Watch]) -> None:
        with self._lock:
            live = filter(self._is_live, watches)
            are_unsure = any(watch.is_unsure for watch in live)
        if are_unsure:
            self.host.restart()  # which sends them again, after a while
