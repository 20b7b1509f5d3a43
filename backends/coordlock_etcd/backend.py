"""The backend contract on etcd: requests in, what they mean out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Self

from coordlock.backend import (
    Backend,
    Capabilities,
    Data,
    EntrySets,
    Listing,
    ObservableQueues,
    Observation,
    Operation,
    PublishedValues,
    ServiceInfo,
    SessionInfo,
    SessionListener,
    Stored,
    Transactions,
)
from coordlock.errors import BackendUnavailable, SessionLost
from coordlock.model.admission import is_blocked
from coordlock.model.claim import Permit
from coordlock.model.contender import Contender, Entry, Snapshot, are_known
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, all_of, failed
from coordlock.settings import TLS_OPTIONS, Option, Settings, boolean
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests, rpc
from coordlock_etcd.data import PlainData
from coordlock_etcd.entry_sets import Sets
from coordlock_etcd.errors import SERVICE, UNKNOWN_LEASE
from coordlock_etcd.keys import Layout
from coordlock_etcd.observing import Observations
from coordlock_etcd.places import DataPlace, QueuePlace
from coordlock_etcd.published import published
from coordlock_etcd.status import status
from coordlock_etcd.transactions import GuardedData
from coordlock_etcd.transport import (
    Batches,
    Connection,
    GeventRoom,
    Limiter,
    can_start_threads,
)
from coordlock_etcd.watcher import Watcher

__all__ = ["EtcdBackend"]

log = Log("coordlock")

#: How many contenders a reading of a part of a queue lists at least. So counting the others rarely
#: takes another request.
_LISTED = 16
#: How many contenders may be on their way to a queue at once. More would not join it any sooner:
#: etcd takes one after another.
_COMING = 16


def _learning(value: object) -> bool | str:
    """Parses ``auto``, or what `boolean` does."""
    if str(value).strip().lower() == "auto":
        return "auto"
    try:
        return boolean(value)
    except ValueError:
        raise ValueError("auto, true or false") from None


class EtcdBackend(Backend, Transactions, EntrySets, PublishedValues, ObservableQueues, Data):
    """Locks in an etcd cluster, version 3.4 or later: see `coordlock_etcd`."""

    scheme: ClassVar[str] = "etcd"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="cluster", leased=True, durable=True, ordered=True, fenced=True, one_step="mode"
    )
    options: ClassVar[Sequence[Option]] = (
        *TLS_OPTIONS,
        Option(
            "leading_slash",
            boolean,
            True,
            "Whether keys begin with a slash, as the root is written.",
        ),
        Option(
            "learn_members",
            _learning,
            "auto",
            "Whether to use the cluster's other members, too; auto: if one of the URL's hosts is "
            "among their client URLs.",
        ),
    )
    default_port: ClassVar[int] = 2379
    fork_warning: ClassVar[str] = (
        "this process forks with an open gRPC connection, and gRPC may crash or hang a forked "
        "child that connects, too: let the fork come before the first use of the client, or start "
        "processes with spawn or forkserver"
    )

    def __init__(self, layout: Layout, connection: Connection, ttl: float) -> None:
        self._layout = layout
        self._connection = connection
        # etcd counts in whole seconds.
        self._ttl = math.ceil(ttl)
        self._guarded = GuardedData(connection)
        self._data = PlainData(layout, connection)
        self._room = GeventRoom(len(connection.cluster.endpoints))
        self._limiter: Limiter[Snapshot] = Limiter(_COMING)
        self._set_limiter: Limiter[tuple[Snapshot, ...]] = Limiter(_COMING)
        self._sets = Sets(layout, connection, self.snapshot, self.withdraw)
        self._enqueues: Batches[Snapshot] = Batches(connection, rpc.TXN)
        self._withdrawals: Batches[bool] = Batches(connection, rpc.DELETE_RANGE)
        self._watcher = Watcher(connection, self)
        # As often as a session's heartbeats: an observation is in doubt when a session would be.
        self._timers = SystemTimers("coordlock-etcd-look")
        self._observations = Observations(connection, self._timers, self._ttl / 3)
        connection.cluster.moved = self._moved
        # Re-entrant, because a call may be answered before `call` returns.
        self._lock = threading.RLock()
        self._lease = 0
        self._listener: SessionListener | None = None
        self._opening: Promise[SessionInfo] | None = None
        self._closing: Promise[None] | None = None

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None) -> Self:
        """A backend for ``settings``.

        ``client`` is an ``etcd3.Etcd3Client``: its channel is used and its token, unless the
        settings name a user. Neither is closed.
        """
        slash = settings.options["leading_slash"]
        layout = Layout.below(settings.root, leading_slash=slash)
        connection = Connection.configure(settings, layout.prefix, client)
        return cls(layout, connection, settings.ttl)

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        with self._lock:
            if self._closing is not None:
                return failed(_closed())
            self._watcher.reset()
            # A cluster that was restored from a backup starts from there.
            self._connection.cluster.revision = 0
            # Contenders of the session before would stand in queues until it expires.
            forsaken, self._lease = self._lease, 0
            self._listener = None
            if forsaken:
                self._revoke(forsaken)
            request = pb.LeaseGrantRequest(TTL=self._ttl)
            opened = partial(self._opened, listener)
            self._opening = self._connection.call(rpc.LEASE_GRANT, request, opened)
            return self._opening

    def heartbeat(self) -> Promise[float]:
        if not (lease := self._session):
            return failed(_no_session())
        self._watcher.recheck_when_due()
        self._connection.members.learn_when_due()
        request = pb.LeaseKeepAliveRequest(ID=lease)
        # A member that hangs is left in time to ask another.
        timeout = min(self._connection.timeout, self._ttl / 3)
        beaten = partial(self._beaten, lease)
        return self._connection.call(rpc.LEASE_KEEP_ALIVE, request, beaten, timeout=timeout)

    def enqueue(self, entry: Entry, *, unless_blocked: bool = False) -> Promise[Snapshot]:
        if not (lease := self._session):
            return failed(_no_session())
        send = self._enqueue
        if unless_blocked:
            # A transaction compares keys, and can't count permits.
            send = self._look if isinstance(entry.claim, Permit) else self._try
        answer = self._limiter.submit(entry.queue, partial(send, entry, lease))
        answer.add_done_callback(partial(self._notice_loss, lease))
        return answer

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        # Every read is linearizable, and tokens come with the keys.
        prefix = self._layout.queue(queue)
        if conflicting and upto is not None:
            looks = requests.in_the_way(prefix, upto, owners=owners)
            found = partial(self._in_the_way, upto, queue, owners)
            return self._connection.call(rpc.TXN, looks, found)
        if upto is None:
            request = requests.nearest(prefix, owners=owners)
        else:
            limit = max(upto.claim.window + 1, _LISTED)
            request = requests.nearest(prefix, limit, upto.order, owners=owners)
        return self._connection.call(rpc.RANGE, request, partial(self._read, queue, upto, owners))

    def watch(
        self,
        contender: Contender,
        revision: int,
        departed: Callable[[bool], None],
        waiters: Sequence[Contender] = (),
    ) -> Callable[[], None]:
        own = contender.session == requests.session(self._lease)
        return self._watcher.watch(contender, revision, departed, waiters, own=own)

    def enqueue_all(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        if not (lease := self._session):
            return failed(_no_session())
        send = self._look_all if unless_blocked else self._enqueue_all
        answer = self._set_limiter.submit(entries[0].queue, partial(send, entries, lease))
        answer.add_done_callback(partial(self._notice_loss, lease))
        return answer

    def withdraw_all(self, entries: Sequence[Entry]) -> Promise[bool]:
        return self._sets.withdraw(entries)

    def withdraw(self, entry: Entry) -> Promise[bool]:
        request = pb.DeleteRangeRequest(key=self._layout.key(entry))
        return self._withdrawals.call(entry.queue, request, _has_deleted)

    def queues(self) -> Promise[list[str]]:
        request = requests.keys_under(self._layout.prefix)
        return self._connection.call(rpc.RANGE, request, self._names)

    def evict(self, contender: Contender) -> Promise[bool]:
        key = contender.key.encode("utf-8", "surrogateescape")
        request = requests.delete_created(key, contender.order)
        return self._connection.call(rpc.TXN, request, lambda reply: reply.succeeded)

    def fetch(self, contender: Contender, key: str) -> Promise[Stored | None]:
        return self._guarded.fetch(contender, key)

    def commit(
        self,
        contender: Contender,
        operations: Sequence[Operation],
        others: Sequence[Contender] = (),
    ) -> Promise[None]:
        return self._guarded.commit((contender, *others), operations)

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        request = requests.publish(contender, value, version)
        told = partial(published, contender, value, version)
        return self._connection.call(rpc.TXN, request, told)

    def watch_value(
        self, contender: Contender, revision: int, changed: Callable[[], None]
    ) -> Callable[[], None]:
        return self._watcher.watch(contender, revision, lambda _: changed(), changes=True)

    def read(self, where: str) -> Promise[Listing]:
        return self._data.read(where)

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[int]:
        return self._data.write(operations, guards)

    def follow(self, where: str, news: Callable[[], None]) -> Observation[Listing]:
        return self._observations.observe(DataPlace(self._layout, where), news)

    def observe(self, queue: str, news: Callable[[], None]) -> Observation[Snapshot]:
        return self._observations.observe(QueuePlace(self._layout, queue), news)

    def verify(self, contender: Contender) -> Promise[None]:
        return self.commit(contender, ())

    def describe(self) -> Promise[ServiceInfo]:
        return status(self._connection)

    def close(self) -> Promise[None]:
        with self._lock:
            if self._closing is not None:
                return self._closing
            closing = self._closing = Promise()
            self._listener = None
        self._watcher.close()
        self._observations.close()
        if can_start_threads():
            threading.Thread(
                target=self._shut_down, name="coordlock-etcd-close", daemon=True
            ).start()
        else:
            self._leave()
        return closing

    @property
    def _session(self) -> int:
        """The lease, while it is to be used."""
        return 0 if self._closing is not None else self._lease

    def _moved(self) -> None:
        """Another endpoint or connection is in use."""
        self._room.fit(len(self._connection.cluster.endpoints))
        self._connection.members.moved()
        self._watcher.restart()
        self._observations.restart()

    def _enqueue(self, entry: Entry, lease: int) -> Promise[Snapshot]:
        if self._session != lease:  # it was lost while the request waited for its turn
            return failed(_no_session())
        request = requests.enqueue(self._layout, entry, lease)
        return self._enqueues.call(entry.queue, request, partial(self._enqueued, entry, lease))

    def _try(self, entry: Entry, lease: int) -> Promise[Snapshot]:
        """Enqueue where nothing may be in the way, else read.

        In a transaction of its own: beside another one of the same queue, both would find nothing
        in their way, and a batch fails as a whole.
        """
        if self._session != lease:  # it was lost while the request waited for its turn
            return failed(_no_session())
        request = requests.enqueue_unless_blocked(self._layout, entry, lease)
        return self._connection.call(rpc.TXN, request, partial(self._tried, entry, lease))

    def _look(self, entry: Entry, lease: int) -> Promise[Snapshot]:
        """Read, then enqueue where nothing is in the way."""
        limit = max(entry.claim.window, _LISTED)
        request = requests.nearest(self._layout.queue(entry.queue), limit)
        return self._connection.call(rpc.RANGE, request, partial(self._looked, entry, lease))

    def _look_all(self, entries: Sequence[Entry], lease: int) -> Promise[tuple[Snapshot, ...]]:
        def look() -> Steps[tuple[Snapshot, ...]]:
            queues: tuple[Snapshot, ...]
            queues = yield all_of(self.snapshot(entry.queue) for entry in entries)
            if not any(map(is_blocked, queues, entries)):
                queues = yield self._enqueue_all(entries, lease)
            return queues

        return run_in_background(look())

    def _enqueue_all(self, entries: Sequence[Entry], lease: int) -> Promise[tuple[Snapshot, ...]]:
        if self._session != lease:  # it was lost while the request waited for its turn
            return failed(_no_session())
        return self._sets.enqueue(entries, lease)

    # What the watcher tells.

    def suspect(self, reason: str) -> None:
        """The watch stream is broken."""
        if (listener := self._listener) is not None:
            listener.suspect(reason)

    def recovered(self) -> None:
        """The watch stream is back."""
        if (listener := self._listener) is not None:
            listener.recovered()

    # What answers mean; called by gRPC's threads.

    def _opened(self, listener: SessionListener, reply: pb.LeaseGrantResponse) -> SessionInfo:
        with self._lock:
            self._lease = reply.ID
            if self._closing is not None:
                raise _closed()
            self._listener = listener
        return SessionInfo(id=requests.session(reply.ID), ttl=float(reply.TTL))

    def _beaten(self, lease: int, reply: pb.LeaseKeepAliveResponse) -> float:
        if reply.TTL <= 0:
            raise self._lost(lease, "its lease has expired or was revoked")
        return float(reply.TTL)

    def _notice_loss(self, lease: int, answer: Promise[Any]) -> None:
        error = answer.exception()
        if isinstance(error, SessionLost) and error.reason == UNKNOWN_LEASE:
            self._lost(lease, error.reason)

    def _lost(self, lease: int, reason: str) -> SessionLost:
        listener = None
        with self._lock:
            if self._lease == lease:
                # Under the lock, so that the watches of a next session are not dropped.
                self._watcher.reset()
                listener, self._lease, self._listener = self._listener, 0, None
        if listener is not None:
            listener.lost(reason)
        return SessionLost(SERVICE, reason)

    def _enqueued(
        self, entry: Entry, lease: int, reply: pb.TxnResponse
    ) -> Snapshot | Promise[Snapshot]:
        revision = reply.header.revision
        if reply.succeeded:
            found = reply.responses[1].response_range
            snapshot = requests.enqueued(self._layout, entry, found, revision)
            if are_known(snapshot.contenders):
                return snapshot
            return self.snapshot(entry.queue, snapshot.contenders[-1], owners=True)
        mine = reply.responses[0].response_range.kvs[0]
        if mine.lease != lease:
            # An attempt of an earlier session dies with that session, so it can't be adopted.
            removal = requests.delete_created(mine.key, mine.create_revision)
            return self._connection.call(rpc.TXN, removal, _refuse_other_lease)
        # Others may stand behind it by now, so the end of the queue may not show it.
        me = requests.snapshot(self._layout, entry.queue, [mine], revision).contenders[0]
        return self.snapshot(entry.queue, me)

    def _tried(
        self, entry: Entry, lease: int, reply: pb.TxnResponse
    ) -> Snapshot | Promise[Snapshot]:
        if reply.succeeded or reply.responses[0].response_range.kvs:
            return self._enqueued(entry, lease, reply)
        present = requests.refused(self._layout, entry.queue, reply)
        # A contender that converts tells its mode by its value: it may share, after all.
        return present if is_blocked(present, entry) else self._enqueue(entry, lease)

    def _looked(
        self, entry: Entry, lease: int, reply: pb.RangeResponse
    ) -> Snapshot | Promise[Snapshot]:
        omitted = reply.count - len(reply.kvs)
        present = requests.snapshot(
            self._layout, entry.queue, reply.kvs, reply.header.revision, omitted
        )
        return present if is_blocked(present, entry) else self._enqueue(entry, lease)

    def _read(
        self, queue: str, upto: Contender | None, owners: bool, reply: pb.RangeResponse
    ) -> Snapshot | Promise[Snapshot]:
        revision = reply.header.revision
        if upto is not None and revision < upto.order:
            # Servers before 3.4.42, 3.5.28 and 3.6.9 may show the past after a pause.
            raise BackendUnavailable(SERVICE, "the answer is older than the contender")
        known = None if owners else upto
        described = partial(requests.snapshot, self._layout, queue, reply.kvs, revision, me=known)
        listed = described()
        if not are_known(listed.contenders):
            return self.snapshot(queue, upto, owners=True)
        if upto is None or not reply.more:
            return listed
        # The count has no upper bound, so it includes the contenders that stand behind.
        request = requests.behind(self._layout.queue(queue), upto.order, revision)
        return self._connection.call(
            rpc.RANGE,
            request,
            lambda others: described(reply.count - len(reply.kvs) - len(others.kvs)),
        )

    def _in_the_way(
        self, me: Contender, queue: str, owners: bool, reply: pb.TxnResponse
    ) -> Snapshot | Promise[Snapshot]:
        revision = reply.header.revision
        if revision < me.order:
            raise BackendUnavailable(SERVICE, "the answer is older than the contender")
        kvs = [kv for one in reply.responses for kv in one.response_range.kvs]
        kvs.sort(key=lambda kv: kv.create_revision, reverse=True)
        known = None if owners else me
        snapshot = requests.snapshot(self._layout, queue, kvs, revision, me=known)
        if are_known(snapshot.contenders):
            return snapshot
        return self.snapshot(queue, me, owners=True, conflicting=True)

    def _names(self, reply: pb.RangeResponse) -> list[str]:
        names = {self._layout.name(kv.key) for kv in reply.kvs}
        return [name for name in names if name is not None]

    def _revoke(self, lease: int) -> Promise[None]:
        request = pb.LeaseRevokeRequest(ID=lease)
        return self._connection.call(rpc.LEASE_REVOKE, request, lambda _: None)

    def _leave(self) -> None:
        """End the session at the interpreter's end. The channels end with the process."""
        try:
            if self._lease:
                request = pb.LeaseRevokeRequest(ID=self._lease)
                self._connection.call_now(rpc.LEASE_REVOKE, request)
        except Exception as error:
            log.warning("etcd: a lease was not revoked and will expire: %r", error)
        finally:
            self._connection.cluster.cancel()
            assert self._closing is not None
            self._closing.resolve(None)

    def _shut_down(self) -> None:
        try:
            if self._opening is not None:
                self._opening.exception()  # a lease that is granted meanwhile is revoked as well
            error = self._revoke(lease).exception() if (lease := self._lease) else None
            if error is not None and not isinstance(error, SessionLost):  # which has ended already
                log.warning("etcd: lease %x was not revoked and will expire: %s", lease, error)
            self._connection.close()
            self._watcher.join(self._connection.timeout)
            self._observations.join(self._connection.timeout)
            self._timers.close()
        except Exception:
            log.exception("etcd: closing failed")
        finally:
            self._room.leave()
            assert self._closing is not None
            self._closing.resolve(None)


def _closed() -> BackendUnavailable:
    return BackendUnavailable(SERVICE, "the client is closed")


def _no_session() -> SessionLost:
    return SessionLost(SERVICE, "there is no session")


def _has_deleted(reply: pb.DeleteRangeResponse) -> bool:
    return reply.deleted > 0


def _refuse_other_lease(_: pb.TxnResponse) -> Snapshot:
    raise SessionLost(SERVICE, "the contender was made in an earlier session")
