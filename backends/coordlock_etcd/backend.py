"""The backend contract on etcd: the contenders of its queues, and what is followed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, overload

from coordlock.backend import Capabilities, Departure, ServiceInfo
from coordlock.errors import Evicted, TooLarge, VersionMismatch
from coordlock.model.admission import blockers, is_blocked
from coordlock.model.claim import Permit
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock.runtime.clock import Timers
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, all_of, failed
from coordlock.settings import TLS_OPTIONS, Option, Settings, boolean
from coordlock_etcd import keys, requests
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.data import EtcdData
from coordlock_etcd.keys import Layout
from coordlock_etcd.rpc import RANGE, TXN
from coordlock_etcd.transport import Connection, Limiter

if TYPE_CHECKING:
    from coordlock.backend import Listing, Observation, Queue

__all__ = ["EtcdBackend"]

Snapshots = tuple[Snapshot, ...]

#: How many requests may add contenders at once, and how many may remove some. A busy etcd answers
#: more of them later, and heartbeats with them: 64 took 3,000 locks half as fast.
_MAX_REQUESTS: Final = 16


class EtcdBackend(EtcdData):
    """Locks in an etcd cluster, version 3.4 or later: see `coordlock_etcd`."""

    scheme: ClassVar[str] = "etcd"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="cluster",
        leased=True,
        durable=True,
        ordered=True,
        fenced=True,
        sets=True,
        publishing=True,
        data=True,
        one_step="mode",
    )
    options: ClassVar[Sequence[Option]] = (
        *TLS_OPTIONS,
        Option(
            "leading_slash",
            boolean,
            True,
            "Whether keys begin with a slash, as the root is written.",
        ),
    )
    default_port: ClassVar[int] = 2379
    fork_warning: ClassVar[str] = (
        "this process forks with an open gRPC connection, and gRPC may crash or hang a forked "
        "child that connects, too: fork before the first use of the client, or start processes "
        "with spawn or forkserver"
    )

    def __init__(self, layout: Layout, connection: Connection, ttl: float, timers: Timers) -> None:
        super().__init__(layout, connection, ttl, timers)
        #: Those of the URL, for what is asked beside gRPC.
        self._options: Mapping[str, Any] = {}
        self._coming = Limiter(_MAX_REQUESTS)
        self._leaving = Limiter(_MAX_REQUESTS)

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        """A backend for ``settings``.

        ``client`` is an ``etcd3.Etcd3Client``: its channel is used and its token, unless the
        settings name a user. Neither is closed.
        """
        layout = Layout.below(settings.root, leading_slash=settings.options["leading_slash"])
        connection = Connection.configure(settings, client)
        made = cls(layout, connection, settings.ttl, timers)
        made._options = settings.options
        return made

    def describe(self) -> Promise[ServiceInfo]:
        from coordlock_etcd.status import status

        return status(self._connection)

    # Queues

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[Snapshots]:
        if not (lease := self._session.current):
            return failed(self._session.missing())
        send = partial(self._add, entries, lease)
        if unless_blocked:
            # A transaction compares keys, and can't count permits.
            can_compare = len(entries) == 1 and not isinstance(entries[0].claim, Permit)
            send = (
                partial(send, compares=True) if can_compare else partial(self._look, entries, lease)
            )
        answer = self._coming.submit(send)
        answer.add_done_callback(partial(self._session.notice, lease))
        return answer

    def _add(
        self, entries: Sequence[Entry], lease: int, *, compares: bool = False
    ) -> Promise[Snapshots]:
        """Create the contenders, all in one transaction.

        If it ``compares``, create the one only where nothing may be in its way, else read.
        """
        if self._session.current != lease:  # it was lost while the request waited for its turn
            return failed(self._session.missing())
        within = self._patience(entries)
        for entry in entries:
            self._layout.adding(entry)
        answered: Callable[[pb.TxnResponse], Snapshots | Promise[Snapshots]]
        if compares:
            request = requests.enqueue_unless_blocked(self._layout, entries[0], lease)
            answered = partial(self._tried, entries[0], lease)
        else:
            request = requests.enqueue(self._layout, entries, lease)
            answered = partial(self._added, entries, lease)
        return self._connection.call(TXN, request, answered, timeout=within, once=True)

    def _patience(self, entries: Sequence[Entry]) -> float:
        """Seconds for the next request to add ``entries``, or to remove them."""
        return self._connection.patience(max(map(self._layout.own.attempts, entries)))

    def _look(self, entries: Sequence[Entry], lease: int) -> Promise[Snapshots]:
        """Read, then enqueue where nothing is in the way."""

        def steps() -> Steps[Snapshots]:
            found: Snapshots = yield all_of(self.snapshot(entry.queue) for entry in entries)
            if not any(map(is_blocked, found, entries)):
                found = yield self._add(entries, lease)
            return found

        return run_in_background(steps())

    def _added(
        self, entries: Sequence[Entry], lease: int, reply: pb.TxnResponse
    ) -> Snapshots | Promise[Snapshots]:
        if reply.succeeded:
            ends = [one.response_range for one in reply.responses[1::2]]
            revision = reply.header.revision
            return tuple(
                self._entered(entry, end, revision)
                for entry, end in zip(entries, ends, strict=True)
            )
        kvs = [kv for one in reply.responses[: len(entries)] for kv in one.response_range.kvs]
        by_key = {self._layout.key(entry): entry for entry in entries}
        for kv in kvs:
            keys.check_is_of(by_key[kv.key], kv, lease)
        # Contenders of one transaction have one creation revision. Where one of a set has gone,
        # others may have been granted behind the gap. And an attempt of an earlier session dies
        # with that session. So only a whole set of this session is adopted. The rest is deleted
        # first, because a transaction can't delete a key and create it; and by revision, so that a
        # request that comes late spares what is added next.
        is_whole = len(kvs) == len(entries) and len({kv.create_revision for kv in kvs}) == 1
        if not is_whole or any(kv.lease != lease for kv in kvs):
            removal = requests.delete_all({kv.key: kv.create_revision for kv in kvs})
            return self._connection.call(TXN, removal, lambda _: self._add(entries, lease))
        mine: list[Contender] = []
        for entry, kv in zip(entries, kvs, strict=True):
            self._layout.own.added(entry, kv.create_revision)
            mine += keys.snapshot(self._layout, entry.queue, [kv], 0).contenders
        # Others may stand behind them by now, so the ends of the queues may not show them.
        return all_of(map(self.snapshot, [entry.queue for entry in entries], mine))

    def _entered(self, entry: Entry, end: pb.RangeResponse, revision: int) -> Snapshot:
        """The ``end`` of the queue that ``entry`` has just entered."""
        snapshot = keys.enqueued(self._layout, entry, end, revision)
        waits = snapshot.omitted or blockers(snapshot, snapshot.contenders[-1])
        prefix = self._layout.queue(entry.queue)
        self._watcher.enqueued(prefix, end, revision, waits=bool(waits))
        return snapshot

    def _tried(
        self, entry: Entry, lease: int, reply: pb.TxnResponse
    ) -> Snapshots | Promise[Snapshots]:
        if reply.succeeded or reply.responses[0].response_range.kvs:
            return self._added([entry], lease, reply)
        self._layout.own.refused(entry)
        present = keys.refused(self._layout, entry.queue, reply)
        # The value of a convertible contender has its mode: it may share, after all.
        return (present,) if is_blocked(present, entry) else self._add([entry], lease)

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        prefix = self._layout.queue(queue)
        described = partial(keys.snapshot, self._layout, queue, owners=owners)
        if conflicting and upto is not None:

            def both(reply: pb.TxnResponse) -> Snapshot:
                kvs = [kv for one in reply.responses for kv in one.response_range.kvs]
                return described(kvs, reply.header.revision)

            return self._connection.call(TXN, requests.in_the_way(prefix, upto), both)

        def read(reply: pb.RangeResponse) -> Snapshot | Promise[Snapshot]:
            kvs, revision = reply.kvs, reply.header.revision
            if upto is None or not reply.more:
                return described(kvs, revision)
            # The count has no upper bound, so it includes the contenders that stand behind.
            request = requests.behind(prefix, upto.order, revision)
            return self._connection.call(
                RANGE,
                request,
                lambda others: described(kvs, revision, reply.count - len(kvs) - len(others.kvs)),
            )

        limit = 0 if upto is None else max(upto.claim.window, requests.LISTED) + 1
        order = 0 if upto is None else upto.order
        return self._connection.call(RANGE, requests.nearest(prefix, limit, order), read)

    def queues(self) -> Promise[list[str]]:

        def read(reply: pb.RangeResponse) -> list[str]:
            names = {self._layout.name(kv.key) for kv in reply.kvs}
            return [name for name in names if name is not None]

        return self._connection.call(RANGE, requests.keys_under(self._layout.prefix), read)

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:

        def read(reply: pb.TxnResponse) -> None:
            if reply.succeeded:
                return
            kvs = reply.responses[0].response_range.kvs
            if not kvs or kvs[0].create_revision != contender.order:
                raise Evicted(contender.key)
            if kvs[0].version == version + 1 and Owner.published(kvs[0].value) == value:
                return  # a request before this one was made, and its answer lost
            raise VersionMismatch(contender.key, version)

        return self._connection.call(TXN, requests.publish(contender, value, version), read)

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        if len(entries) == 1:
            return self._leaving.submit(partial(self._withdraw, entries))

        def steps() -> Steps[bool]:
            # A set that was too large to be added has left nothing, unless the limit was higher.
            with suppress(TooLarge):
                if (yield self._withdraw(entries)):
                    return True
            # One has left before, and kept the others.
            return all((yield all_of(self._withdraw([entry]) for entry in entries)))

        return run_in_background(steps())

    def _withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        within = self._patience(entries)
        request = requests.withdraw(self._layout, entries)
        removed = partial(self._removed, entries)
        return self._connection.call(TXN, request, removed, timeout=within, once=True)

    def _removed(self, entries: Sequence[Entry], reply: pb.TxnResponse) -> bool:
        were_there = requests.has_deleted_all(reply)
        if were_there or len(entries) == 1:
            for entry in entries:
                self._layout.own.removed(entry, was_there=were_there)
        return were_there

    def evict(self, contender: Contender) -> Promise[bool]:
        request = requests.delete_all({keys.key_of(contender): contender.order})
        # Asked again, it would say that the contender had not been there.
        return self._connection.call(TXN, request, lambda reply: reply.succeeded, once=True)

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        prefix = self._layout.queue_of(keys.key_of(contender))
        return self._watcher.watch(
            contender, revision, on_departure, waiters, prefix=prefix, changes=changes
        )

    # Beside the queues

    def service_time(self) -> Promise[float | None]:
        from coordlock_etcd.clock import time_of

        cluster = self._connection.cluster
        # That in use first.
        known = dict.fromkeys([cluster.current.host, *(one.host for one in cluster.endpoints)])
        return time_of(list(known), self._options, self._connection.timeout)

    @overload
    def follow(self, place: Queue, news: Callable[[], None]) -> Observation[Snapshot]: ...
    @overload
    def follow(self, place: str, news: Callable[[], None]) -> Observation[Listing]: ...
    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        from coordlock_etcd.observing import Observations

        with self._lock:
            if self._observations is None:
                # As often as heartbeats: an observation goes stale when a session is suspect.
                self._observations = Observations(
                    self._layout, self._connection, self._timers, interval=self._ttl / 3
                )
                if self._closing is not None:
                    self._observations.close()
        read: Callable[[], Promise[Any]]
        if isinstance(place, str):
            read = partial(self.read, place)
        else:
            read = partial(self.snapshot, place.name, owners=True)
        return self._observations.observe(place, read, news)
