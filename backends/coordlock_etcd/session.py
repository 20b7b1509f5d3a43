"""One session on etcd: a lease, and the connection on which it is kept alive."""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from coordlock.backend import Backend, SessionInfo, SessionListener
from coordlock.backend.session import OneSession
from coordlock.errors import BackendError, BackendUnavailable, SessionLost
from coordlock.runtime.clock import Timers
from coordlock.runtime.driver import Steps, awaited, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, failed, in_thread
from coordlock_etcd import keys, rpc
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import SERVICE, client_closed
from coordlock_etcd.keys import Layout
from coordlock_etcd.transport import Connection, StreamHost, can_start_threads
from coordlock_etcd.watcher import Watcher

if TYPE_CHECKING:
    from coordlock_etcd.observing import Observations

__all__ = ["EtcdSession"]

log = Log("coordlock")


def _beat(sent: Promise[float]) -> Steps[float]:
    """The answer to a heartbeat."""
    try:
        return (yield from awaited(sent))
    except BackendUnavailable as error:
        # What etcd's grpc-proxy makes of a stream that ends with its first request.
        if not error.reason.endswith("context canceled"):
            raise
        advice = "It answers no heartbeats of coordlock: name the members of the cluster themselves"
        reason = f"{error.reason}; is this `etcd grpc-proxy`? {advice}"
        raise BackendError(SERVICE, reason) from None


class EtcdSession(Backend):
    """The part of the backend that opens sessions, keeps them alive, and ends them."""

    def __init__(self, layout: Layout, connection: Connection, ttl: float, timers: Timers) -> None:
        self._layout = layout
        self._connection = connection
        self._timers = timers
        # etcd counts in whole seconds.
        self._ttl = math.ceil(ttl)
        # Re-entrant, because a call may be answered before `call` returns.
        self._lock = threading.RLock()
        self._session: OneSession[int] = OneSession(SERVICE, self._lock, self._ended)
        self._watcher = Watcher(connection, timers.clock, self._session)
        #: Made when something is followed for the first time.
        self._observations: Observations | None = None
        connection.cluster.moved = self._moved
        #: The lease until it has ended, also after `close`; 0 for none.
        self._lease = 0
        self._opening: Promise[SessionInfo] | None = None
        self._closing: Promise[None] | None = None

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        with self._lock:
            if self._closing is not None:
                return failed(client_closed())
            self._watcher.reset()
            self._layout.own.clear()
            # A cluster that was restored from a backup starts from there.
            self._connection.cluster.revision = 0
            # Contenders of the session before would stand in queues until it expires.
            self._session.forget()
            forsaken, self._lease = self._lease, 0
            if forsaken:
                self._revoke(forsaken)
            request = pb.LeaseGrantRequest(TTL=self._ttl)
            opened = partial(self._opened, listener)
            self._opening = self._connection.call(rpc.LEASE_GRANT, request, opened)
            return self._opening

    def heartbeat(self) -> Promise[float]:
        if not (lease := self._session.current):
            return failed(self._session.missing())
        self._watcher.recheck_when_due()
        request = pb.LeaseKeepAliveRequest(ID=lease)
        # A member that hangs is left in time to ask another.
        timeout = min(self._connection.timeout, self._ttl / 3)
        beaten = partial(self._beaten, lease)
        sent = self._connection.call(rpc.LEASE_KEEP_ALIVE, request, beaten, timeout=timeout)
        return run_in_background(_beat(sent))

    def close(self) -> Promise[None]:
        with self._lock:
            if self._closing is not None:
                return self._closing
            closing = self._closing = Promise()
            self._session.forget(closes=True)
        self._watcher.close()
        if self._observations is not None:
            self._observations.close()
        in_thread("coordlock-etcd-close", self._shut_down).add_done_callback(closing.follow)
        return closing

    @property
    def _hosts(self) -> list[StreamHost[Any]]:
        users = self._watcher, self._observations
        return [user.host for user in users if user is not None]

    def _moved(self) -> None:
        """Another endpoint or connection is in use."""
        for host in self._hosts:
            host.restart()

    # What answers mean; called by gRPC's threads

    def _opened(self, listener: SessionListener, reply: pb.LeaseGrantResponse) -> SessionInfo:
        self._lease = reply.ID
        if not self._session.begin(reply.ID, listener):
            raise client_closed()
        return SessionInfo(id=keys.session(reply.ID), ttl=float(reply.TTL))

    def _beaten(self, lease: int, reply: pb.LeaseKeepAliveResponse) -> float:
        if reply.TTL <= 0:
            raise self._session.lose(lease, "its lease has expired or was revoked")
        return float(reply.TTL)

    def _ended(self) -> None:
        self._watcher.reset()
        self._lease = 0

    def _revoke(self, lease: int) -> Promise[None]:
        request = pb.LeaseRevokeRequest(ID=lease)
        return self._connection.call(rpc.LEASE_REVOKE, request, lambda _: None)

    def _shut_down(self) -> None:
        if self._opening is not None:
            self._opening.exception()  # a lease that is granted meanwhile is revoked as well
        error = self._revoke(lease).exception() if (lease := self._lease) else None
        if error is not None and not isinstance(error, SessionLost):  # which has ended already
            log.warning("etcd: lease %x was not revoked and will expire: %s", lease, error)
        if can_start_threads():
            self._connection.close()
            for host in self._hosts:
                host.join(self._connection.timeout)
        else:  # at the interpreter's end, the channels end with the process
            self._connection.cluster.closed = True
