"""The contract of `coordlock.backend`, put together from this package's parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Self, TypeVar

from kazoo.protocol.serialization import Sync
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from coordlock.backend import (
    Backend,
    Capabilities,
    Departure,
    Listing,
    Observation,
    Operation,
    Queue,
    ServiceInfo,
    SessionInfo,
    SessionListener,
    Written,
)
from coordlock.errors import BackendUnavailable, ConfigurationError, SessionLost
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.clock import Timers
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, all_of, failed
from coordlock.settings import TLS_OPTIONS, Option, Settings, choice
from coordlock_zookeeper import curator, nodes
from coordlock_zookeeper.access import Access
from coordlock_zookeeper.data_session import DataSession
from coordlock_zookeeper.describe import describe
from coordlock_zookeeper.errors import SERVICE, closed
from coordlock_zookeeper.observing import Observations
from coordlock_zookeeper.own_client import OwnClient
from coordlock_zookeeper.own_contenders import OwnContenders
from coordlock_zookeeper.session import SessionClient, ZookeeperSession, in_doubt

__all__ = ["ZookeeperBackend"]

T = TypeVar("T")


class ZookeeperBackend(Backend):
    """One client of a ZooKeeper ensemble: a kazoo client of its own per session, or a given one."""

    scheme: ClassVar[str] = "zookeeper"
    capabilities: ClassVar[Capabilities] = Capabilities(
        reach="cluster",
        leased=True,
        durable=True,
        ordered=True,
        fenced=True,
        sets=True,
        publishing=True,
        data=True,
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
            "nodes",
            choice(*nodes.STYLES),
            "kazoo",
            "Whose recipes wait for the contenders made: kazoo's, Curator's mutex, its read and "
            "write locks, or its leader latch.",
        ),
    )
    default_port: ClassVar[int] = 2181

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[], SessionClient],
        acl: Any,
        timers: Timers,
    ) -> None:
        self._connect: Final = connect
        self._acl: Final = acl
        self._clock: Final = timers.clock
        root = settings.root.rstrip("/")
        self._layout: Final = nodes.Layout(root, settings.options["nodes"])
        self._timeout: Final = settings.request_timeout
        self._unwanted: dict[str, None] = {}
        self._lock = threading.RLock()
        self._current: OwnContenders | None = None
        self._stopping: set[Promise[None]] = set()
        self._closed: Promise[None] | None = None
        self._data_session: Final = DataSession(self._new_session)
        self._observations: Final = Observations(self._layout, self._data_session, timers)

    @classmethod
    def configure(cls, settings: Settings, client: object | None = None, *, timers: Timers) -> Self:
        """As the contract says; ``client`` is a started `KazooClient` with its usual threads."""
        clock = timers.clock
        acl = {"creator": CREATOR_ALL_ACL, "open": OPEN_ACL_UNSAFE}.get(settings.options["acl"])
        if client is not None:
            from coordlock_zookeeper.given_client import sharing

            return cls(settings, sharing(client, clock), acl, timers)
        access = Access.of(settings)
        if settings.options["acl"] == "creator" and not access.identified:
            raise ConfigurationError("option 'acl': creator needs a user name and a password")
        if acl is None and access.identified:
            acl = CREATOR_ALL_ACL
        return cls(settings, lambda: OwnClient(access, clock), acl, timers)

    # Sessions

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        session = self._new_session(listener)
        with self._lock:
            is_closed = self._closed is not None
            previous, self._current = (
                self._current,
                OwnContenders(session, self._layout, self._unwanted),
            )
        if is_closed:
            session.end(closed())
            return session.opened
        if previous is not None:
            # Its caller has given the previous session up, though the server may not know yet, and
            # a given client may even go on with it. So what is under way fails without an answer,
            # and a withdrawal is sent again.
            previous.session.end(BackendUnavailable(SERVICE, "a new session was opened"))
        session.open()
        return session.opened

    def heartbeat(self) -> Promise[float]:
        sent = self._clock.now()

        def beat(own: OwnContenders) -> Steps[float]:
            own.sweep()
            # `sync` is answered by the leader. A follower that is cut off from it answers reads for
            # a while, but cannot keep the session alive.
            yield own.session.requests.ask(Sync, "/")
            own.session.watches.rearm(missing=True)  # now: those under way have been answered
            return own.session.proven(sent)

        return self._submit(beat)

    def describe(self) -> Promise[ServiceInfo]:
        return failed(closed()) if self._closed else describe(self._connect(), self._timeout)

    def close(self) -> Promise[None]:
        with self._lock:
            if self._closed is not None:
                return self._closed
            done: Promise[None]
            done = self._closed = Promise()
            current = self._current
        if current is not None:
            current.session.end(closed())

        self._observations.close()
        self._data_session.close()
        all_of(self._stopping).add_done_callback(lambda _: done.resolve(None))
        return done

    # Contenders

    def enqueue(
        self, entries: Sequence[Entry], *, unless_blocked: bool = False
    ) -> Promise[tuple[Snapshot, ...]]:
        return self._submit(lambda own: own.enqueue(entries, unless_blocked))

    def withdraw(self, entries: Sequence[Entry]) -> Promise[bool]:
        return self._submit(lambda own: own.withdraw(entries))

    def snapshot(
        self,
        queue: str,
        upto: Contender | None = None,
        *,
        owners: bool = False,
        conflicting: bool = False,
    ) -> Promise[Snapshot]:
        def read(own: OwnContenders) -> Steps[Snapshot]:
            [found] = yield from own.queues.read(
                [queue], upto, owners=owners, conflicting=conflicting
            )
            if upto is not None and found.contenders == (upto,) and not found.omitted:
                own.session.watches.mark_first(upto.key)
            return found

        return self._submit(read)

    def watch(
        self,
        contender: Contender,
        revision: int,
        on_departure: Callable[[Departure], None],
        *,
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        current = self._current
        if current is None:
            return lambda: None
        if changes or curator.is_shared_position(contender.key.rpartition("/")[2]):
            # A contender that no snapshot has shown may stand there still: the queue must be read.
            waiters = ()
        version = contender.version if changes else 0
        return current.session.watches.add(contender.key, on_departure, waiters, version)

    def queues(self) -> Promise[list[str]]:
        return self._submit(lambda own: own.queues.names())

    def evict(self, contender: Contender) -> Promise[bool]:
        return self._submit(lambda own: own.delete(contender.key))

    def publish(self, contender: Contender, value: bytes, version: int) -> Promise[None]:
        return self._submit(lambda own: own.publish(contender, value, version))

    # Data

    def read(self, where: str, *, guard: Contender | None = None) -> Promise[Listing]:
        if guard is not None:
            return self._submit(lambda own: own.session.data.read(where, guard))
        if where.endswith("/"):
            return self._observations.read(where)
        return self._data_session.submit(lambda session: session.data.read(where))

    def names(self, folder: str, first: int | None = None, split: str = "") -> Promise[list[str]]:
        return self._data_session.submit(lambda session: session.data.names(folder, first, split))

    def write(
        self, operations: Sequence[Operation], guards: Sequence[Contender] = ()
    ) -> Promise[Written]:
        current = self._current
        if guards and current is not None and not current.session.has_ended:
            # In the session in which the guards are released, which takes requests in order: a
            # release sent later overtakes this only where a key was missing, and this is refused.
            session = current.session
            return in_doubt(session.submit(lambda: session.data.write(operations, guards)))
        return self._data_session.submit(lambda session: session.data.write(operations, guards))

    def service_time(self) -> Promise[float | None]:
        key = f"{self._layout.root}/@time"
        return self._data_session.submit(lambda session: session.data.time(key))

    def follow(self, place: Queue | str, news: Callable[[], None]) -> Observation[Any]:
        return self._observations.observe(place, news)

    def _new_session(self, listener: SessionListener) -> ZookeeperSession:
        session = ZookeeperSession(self._connect(), listener, self._clock, self._acl)
        self._stopping.add(session.stopped)
        session.stopped.add_done_callback(self._stopping.discard)
        return session

    def _submit(self, steps: Callable[[OwnContenders], Steps[T]]) -> Promise[T]:
        current = self._current
        if current is None:
            return failed(closed() if self._closed else SessionLost(SERVICE, "none is open yet"))
        return current.session.submit(lambda: steps(current))
