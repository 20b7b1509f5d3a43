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
from coordlock.runtime.promise import Promise, all_of, resolved, settled
from coordlock.runtime.worker import Worker
from coordlock_zookeeper.errors import SERVICE, closed, translate
from coordlock_zookeeper.session import ZookeeperSession, in_doubt

__all__ = ["ConnectionListener", "DataSession"]

T = TypeVar("T")


class ConnectionListener(Protocol):
    """Who hears, from the worker, how the connections of a `DataSession` come and go."""

    def connected(self, session: ZookeeperSession) -> None:
        """There is a connection, of a new session or of the one before."""

    def disconnected(self) -> None:
        """There is no connection any more; no answer comes over it after this."""

    def lost(self) -> None:
        """The session has ended, after `disconnected`; the next request opens another."""

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
        self.worker: Final = Worker("coordlock-zookeeper-data")
        self._new: Final = new
        self._sessions: Final[OneSession[ZookeeperSession]] = OneSession(SERVICE, RLock())
        #: The newest session, and the same once it is open.
        self._session: ZookeeperSession | None = None
        self._open_session: ZookeeperSession | None = None
        self._stopping: set[Promise[None]] = set()
        self._closed: Promise[None] | None = None

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
        if (session := self._open_session) is not None:
            return resolved(session)
        promise: Promise[ZookeeperSession] = Promise()
        self.worker.run(partial(self._want, promise))
        return promise

    def close(self) -> Promise[None]:
        """End the session, and tell the listener; kept when the session's threads have gone."""
        promise: Promise[None] = Promise()
        self.worker.run(partial(self._close, promise))
        return promise

    # See `SessionListener`: another session is opened only after `_lost`

    def suspect(self, reason: str) -> None:
        self.worker.run(self._disconnected)

    def recovered(self) -> None:
        self.worker.run(self._reconnected)

    def lost(self, reason: str) -> None:
        self.worker.run(self._lost)

    # In the worker

    def _want(self, promise: Promise[ZookeeperSession]) -> None:
        if self._closed is not None:
            promise.fail(closed())
            return
        try:
            session = self._session or self._start()
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

    def _start(self) -> ZookeeperSession:
        session = self._session = self._new(self._sessions, self)
        self._stopping.add(session.stopped)
        session.stopped.add_done_callback(self._stopping.discard)
        session.opened.add_done_callback(lambda _: self.worker.run(partial(self._opened, session)))
        session.open()
        return session

    def _opened(self, session: ZookeeperSession) -> None:
        if session is not self._session:
            return
        if session.opened.exception() is None:
            self._open_session = session
            self.listener.connected(session)
        else:
            self._session = None

    def _disconnected(self) -> None:
        self.listener.disconnected()

    def _reconnected(self) -> None:
        # This may come late, of a session that was lost meanwhile.
        if self._open_session is not None and self._open_session.is_connected:
            self.listener.connected(self._open_session)

    def _lost(self) -> None:
        self._session = self._open_session = None
        self.listener.disconnected()
        self.listener.lost()

    def _close(self, promise: Promise[None]) -> None:
        if self._closed is None:
            self._sessions.forget(closes=True)
            session, self._session, self._open_session = self._session, None, None
            stopping = list(self._stopping)
            if session is not None:
                session.end(closed())
            self._closed = settled(all_of([resolved(None), *stopping]))
            self.listener.closed(closed())
        self._closed.add_done_callback(promise.follow)
