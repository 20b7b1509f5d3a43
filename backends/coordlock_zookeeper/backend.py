"""The contract of `coordlock.backend`, put together from this package's parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

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
from coordlock.errors import BackendUnavailable, ConfigurationError, SessionLost
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, failed
from coordlock.settings import TLS_OPTIONS, Option, Settings, choice
from coordlock_zookeeper import given_client, nodes
from coordlock_zookeeper.access import Access
from coordlock_zookeeper.answers import all_done, promise_of
from coordlock_zookeeper.connection import Connection
from coordlock_zookeeper.contenders import Described
from coordlock_zookeeper.data import PlainData
from coordlock_zookeeper.describe import describe
from coordlock_zookeeper.entry_sets import SetQueues
from coordlock_zookeeper.errors import SERVICE
from coordlock_zookeeper.line import Line
from coordlock_zookeeper.observing import Observations
from coordlock_zookeeper.own_client import OwnClient
from coordlock_zookeeper.places import QueuePlace
from coordlock_zookeeper.session import ZookeeperSession
from coordlock_zookeeper.transactions import GuardedData

__all__ = ["ZookeeperBackend"]

T = TypeVar("T")


class _Opened(NamedTuple):
    """A session and what is done in it."""

    session: ZookeeperSession
    queues: SetQueues
    data: GuardedData


class ZookeeperBackend(Backend, Transactions, EntrySets, PublishedValues, ObservableQueues, Data):
    """One client of a ZooKeeper ensemble: a kazoo client of its own per session, or a given one."""

    scheme: ClassVar[str] = "zookeeper"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="cluster", leased=True, durable=True, ordered=True, fenced=True
    )
    options: ClassVar[tuple[Option, ...]] = (
        *TLS_OPTIONS,
        Option("auth", choice("digest", "sasl"), "digest", "How user and password are presented."),
        Option(
            "acl",
            choice("creator", "open"),
            None,
            "Which clients may use the nodes made: those with the same credentials (the default "
            "where there are some), or all.",
        ),
        Option(
            "token",
            choice("czxid", "sequence"),
            "czxid",
            "What fencing tokens are: the transaction that made the contender, or its sequence.",
        ),
        Option(
            "nodes",
            choice(*nodes.STYLES),
            "kazoo",
            "Whose recipes wait for the contenders made: kazoo's, Curator's mutex, its read and "
            "write locks, or its leader latch.",
        ),
    )
    default_port: ClassVar[int] = 2181

    def __init__(
        self, settings: Settings, connect: Callable[[], Connection], acl: Any, chroot: str = ""
    ) -> None:
        self._connect: Final = connect
        self._acl: Final = acl
        self._root: Final = settings.root.rstrip("/")
        self._at_top: Final = not self._root and not chroot
        self._described: Final = Described(settings.options["token"])
        self._style: Final = settings.options["nodes"]
        self._timeout: Final = settings.request_timeout
        self._unwanted: dict[str, None] = {}
        self._lock = threading.RLock()
        self._current: _Opened | None = None
        self._stopping: set[Promise[None]] = set()
        self._closed: Promise[None] | None = None
        self._line: Final = Line(connect)
        self._observations: Final = Observations(self._line)
        self._data: Final = PlainData(self._line, self._observations, acl)

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None) -> Self:
        """As the contract says; ``client`` is a started `KazooClient` with its usual threads."""
        acl = {"creator": CREATOR_ALL_ACL, "open": OPEN_ACL_UNSAFE}.get(settings.options["acl"])
        if client is not None:
            given_client.check(client)
            shared = given_client.unblocked(client)
            return cls(settings, lambda: given_client.GivenClient(shared), acl, shared.chroot)
        access = Access.of(settings)
        if settings.options["acl"] == "creator" and not access.identified:
            raise ConfigurationError("option 'acl': creator needs a user name and a password")
        if acl is None and access.identified:
            acl = CREATOR_ALL_ACL
        return cls(settings, lambda: OwnClient(access), acl)

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        session = ZookeeperSession(self._connect(), listener)
        queues = SetQueues(
            session, self._root, self._acl, self._described, self._style, self._unwanted
        )
        opened = _Opened(session, queues, GuardedData(session, queues.acl))
        with self._lock:
            if self._closed is not None:
                return failed(_closed())
            previous, self._current = self._current, opened
            self._stopping.add(session.stopped)
        session.stopped.add_done_callback(self._stopping.discard)
        if previous is not None:
            # Its caller has given the previous session up, though the server may not know yet, and
            # a given client may even go on with it. So what is under way fails without an answer,
            # and a withdrawal is sent again.
            previous.session.end(BackendUnavailable(SERVICE, "a new session was opened"))
        session.open()
        return session.opened

    def heartbeat(self) -> Promise[float]:
        sent = SYSTEM_CLOCK.now()

        def beat(session: ZookeeperSession, queues: SetQueues) -> Steps[float]:
            session.watches.rearm(broken=True)
            queues.sweep()
            # `sync` is answered by the leader. A follower that is cut off from it answers reads for
            # a while, but cannot keep the session alive.
            yield promise_of(session.client.sync_async("/"))
            return session.proven(sent)

        return self._submit(lambda now: beat(now.session, now.queues))

    def enqueue(self, entry: Entry, *, unless_blocked: bool = False) -> Promise[Snapshot]:
        def unwanted(queues: SetQueues, snapshot: Snapshot) -> None:
            if (contender := snapshot.find(entry.id)) is not None:
                queues.discard(contender.key)

        return self._submit(lambda now: now.queues.enqueue(entry, unless_blocked), unwanted)

    def enqueue_all(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        def unwanted(queues: SetQueues, snapshots: tuple[Snapshot, ...]) -> None:
            queues.discard_all(entries, snapshots)

        return self._submit(lambda now: now.queues.enqueue_all(entries, unless_blocked), unwanted)

    def withdraw_all(self, entries: Sequence[Entry]) -> Promise[bool]:
        return self._submit(lambda now: now.queues.withdraw_all(entries))

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        part = None if conflicting else upto  # the list of all comes anyway
        return self._submit(lambda now: now.queues.snapshot(queue, part, owners))

    def watch(
        self,
        contender: Contender,
        revision: int,
        departed: Callable[[bool], None],
        waiters: Sequence[Contender] = (),
    ) -> Callable[[], None]:
        current = self._current
        if current is None:
            return lambda: None
        if nodes.is_shared_place(contender.key.rpartition("/")[2]):
            # A contender that no snapshot has shown may stand there still: the queue must be read.
            waiters = ()
        return current.session.watches.add(contender.key, departed, waiters)

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        return self._submit(lambda now: now.queues.publish(contender, value, version))

    def watch_value(
        self, contender: Contender, revision: int, changed: Callable[[], None]
    ) -> Callable[[], None]:
        current = self._current
        if current is None:
            return lambda: None
        watches = current.session.watches
        return watches.add(contender.key, lambda _: changed(), version=contender.version)

    def withdraw(self, entry: Entry) -> Promise[bool]:
        return self._submit(lambda now: now.queues.withdraw(entry))

    def queues(self) -> Promise[list[str]]:
        return self._submit(lambda now: now.queues.names())

    def evict(self, contender: Contender) -> Promise[bool]:
        return self._submit(lambda now: now.queues.delete(contender.key))

    def fetch(self, contender: Contender, key: str) -> Promise[Stored | None]:
        return self._submit(lambda now: now.data.fetch(contender, key))

    def commit(
        self,
        contender: Contender,
        operations: Sequence[Operation],
        others: Sequence[Contender] = (),
    ) -> Promise[None]:
        answer: Promise[None] = Promise()

        def answered(done: Promise[int]) -> None:
            error = done.exception()
            if error is None:
                answer.resolve(None)
            elif isinstance(error, SessionLost):
                # What was sent in it may have been done.
                answer.fail(BackendUnavailable(SERVICE, error.reason))
            else:
                answer.fail(error)

        done = self._submit(lambda now: now.data.commit((contender, *others), operations))
        done.add_done_callback(answered)
        return answer

    def verify(self, contender: Contender) -> Promise[None]:
        return self.commit(contender, ())

    def observe(self, queue: str, news: Callable[[], None]) -> Observation[Snapshot]:
        path = f"{self._root}/{nodes.component(queue, at_top=self._at_top)}"
        return self._observations.observe(QueuePlace(queue, path, self._described), news)

    def read(self, where: str) -> Promise[Listing]:
        return self._data.read(where)

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[int]:
        return self._data.write(operations, guards)

    def follow(self, where: str, news: Callable[[], None]) -> Observation[Listing]:
        return self._data.follow(where, news)

    def describe(self) -> Promise[ServiceInfo]:
        return failed(_closed()) if self._closed else describe(self._connect(), self._timeout)

    def close(self) -> Promise[None]:
        with self._lock:
            if self._closed is not None:
                return self._closed
            closed: Promise[None]
            closed = self._closed = Promise()
            current = self._current
            stopping = list(self._stopping)
        if current is not None:
            current.session.end(_closed())
        all_done([*stopping, self._line.close()]).add_done_callback(closed.follow)
        return closed

    def _submit(
        self,
        steps: Callable[[_Opened], Steps[T]],
        unwanted: Callable[[SetQueues, T], None] | None = None,
    ) -> Promise[T]:
        current = self._current
        if current is None:
            return failed(_closed() if self._closed else SessionLost(SERVICE, "none is open yet"))
        return current.session.submit(
            lambda: steps(current),
            None if unwanted is None else lambda result: unwanted(current.queues, result),
        )


def _closed() -> BackendUnavailable:
    return BackendUnavailable(SERVICE, "the connection is closed")
