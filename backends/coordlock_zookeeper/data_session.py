"""A session for what needs no lock: opened at its first use, and anew when it was lost."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from threading import RLock
from typing import Final, Protocol, TypeVar

from coordlock.backend import SessionInfo, SessionListener
from coordlock.backend.session import OneSession
from coordlock.errors import BackendUnavailable
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, resolved
from coordlock.runtime.worker import Worker
from coordlock_zookeeper.errors import SERVICE, closed, translate
from coordlock_zookeeper.session import ZookeeperSession, in_doubt

__all__ = ["ConnectionListener", "DataSession"]

T = TypeVar("T")


class ConnectionListener(Protocol):
    """Learns, in the worker, how the connections of a `DataSession` come and go."""

    def connected(self, session: ZookeeperSession) -> None:
        """There is a connection, of a new session or of the one before."""

    def disconnected(self) -> None:
        """There is no connection any more; no answer comes over it after this."""

    def lost(self) -> None:
        """The session has ended; the next request opens another."""

    def closed(self, error: BackendUnavailable) -> None:
        """Nothing comes any more."""


class DataSession:
    """The session that observations share with reads and writes of data.

    The locks have their own: it is opened and given up as they need it, and an event that hands
    over a lock must not wait behind thousands of changes that somebody observes.

    Attributes:
        worker: does all work here and that of the listener, one thing after the other.
        listener: set before the first use.
    """

    listener: ConnectionListener

    def __init__(
        self, new: Callable[[OneSession[ZookeeperSession], SessionListener], ZookeeperSession]
    ) -> None:
        self.worker: Final = Worker("coordlock-zookeeper-data", must_not_wait=True)
        self._new: Final = new
        #: The newest session.
        self._session: ZookeeperSession | None = None
        self._is_closed = False

    def submit(self, steps: Callable[[ZookeeperSession], Steps[T]]) -> Promise[T]:
        """Run a protocol of requests in a session, which is opened where there is none.

        `BackendUnavailable` when the session, or its connection, is lost meanwhile.
        """
        promise: Promise[T] = Promise()

        def opened(answer: Promise[ZookeeperSession]) -> None:
            error = answer.exception()
            if error is not None:
                promise.fail(error)
                return
            session = answer.result()
            done = in_doubt(session.submit(lambda: steps(session)))
            done.add_done_callback(promise.follow)

        self.session().add_done_callback(opened)
        return promise

    def session(self) -> Promise[ZookeeperSession]:
        """The session, when it is open. Without one, another is opened."""
        session = self._session
        if session is not None and session.opened.done() and not session.has_ended:
            return resolved(session)
        promise: Promise[ZookeeperSession] = Promise()
        self.worker.run(partial(self._want, promise))
        return promise

    def close(self) -> Promise[None]:
        """End the session; the promise is kept when the listener knows."""
        promise: Promise[None] = Promise()
        self.worker.run(partial(self._close, promise))
        return promise

    # See `SessionListener`

    def suspect(self, reason: str) -> None:
        self.worker.run(self.listener.disconnected)

    def recovered(self) -> None:
        self.worker.run(self._connected)

    def lost(self, reason: str) -> None:
        self.worker.run(self.listener.lost)

    # In the worker

    def _want(self, promise: Promise[ZookeeperSession]) -> None:
        if self._is_closed:
            promise.fail(closed())
            return
        try:
            session = self._session
            if session is None or session.has_ended:
                session = self._session = self._new(OneSession(SERVICE, RLock()), self)
                session.opened.add_done_callback(lambda _: self.recovered())
                session.open()
        except Exception as error:
            promise.fail(translate(error))
            return

        def opened(answer: Promise[SessionInfo]) -> None:
            error = answer.exception()
            if error is None:
                promise.resolve(session)
            else:
                promise.fail(copy(error))

        session.opened.add_done_callback(opened)

    def _connected(self) -> None:
        # This may come late, of a session that was lost meanwhile.
        if self._session is not None and self._session.is_connected:
            self.listener.connected(self._session)

    def _close(self, promise: Promise[None]) -> None:
        self._is_closed = True
        if self._session is not None:
            self._session.end(closed())
        self.listener.closed(closed())
        promise.resolve(None)
