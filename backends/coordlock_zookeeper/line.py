"""A session for what needs no lock: opened when first used, and anew when it was lost."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Final, Protocol, TypeVar

from coordlock.backend import SessionInfo
from coordlock.errors import BackendUnavailable, SessionLost
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock.runtime.worker import Worker
from coordlock_zookeeper.answers import all_done
from coordlock_zookeeper.connection import Connection
from coordlock_zookeeper.errors import SERVICE, translate
from coordlock_zookeeper.session import ZookeeperSession

__all__ = ["Audience", "Line"]

T = TypeVar("T")


class Audience(Protocol):
    """Who is told, by the line's worker, how its connections come and go."""

    def connected(self, session: ZookeeperSession) -> None:
        """There is a connection, of a new session or of the one before."""

    def disconnected(self) -> None:
        """There is none any more. No answer comes over it after this."""

    def lost(self) -> None:
        """The session has ended, after `disconnected`; the next request opens another."""

    def closed(self, error: BackendUnavailable) -> None:
        """Nothing comes any more."""


class Line:
    """The session that observations share with reads and writes of data.

    Not that of the locks: that one is opened, and given up, as the locks need it, and no change
    that somebody observes shall stand before an event that hands over a lock.

    Attributes:
        worker: does all that is to be done here, one thing after the other: so does the audience.
        audience: told of connections; it makes itself known before the first use.
    """

    audience: Audience

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self.worker: Final = Worker("coordlock-zookeeper-line")
        self._connect: Final = connect
        self._session: ZookeeperSession | None = None
        #: The same, once it is open.
        self._open: ZookeeperSession | None = None
        self._stopping: set[Promise[None]] = set()
        self._closed: Promise[None] | None = None

    def submit(self, steps: Callable[[ZookeeperSession], Steps[T]]) -> Promise[T]:
        """Run a protocol of requests in a session, which is opened where there is none.

        `BackendUnavailable` when the session, or its connection, is lost meanwhile.
        """
        promise: Promise[T] = Promise()

        def answered(answer: Promise[T]) -> None:
            error = answer.exception()
            if isinstance(error, SessionLost):  # no session of the caller's
                promise.fail(BackendUnavailable(SERVICE, error.reason))
            else:
                promise.follow(answer)

        def opened(answer: Promise[ZookeeperSession]) -> None:
            error = answer.exception()
            if error is not None:
                promise.fail(copy(error))
                return
            session = answer.result()
            session.submit(lambda: steps(session)).add_done_callback(answered)

        self.session().add_done_callback(opened)
        return promise

    def session(self) -> Promise[ZookeeperSession]:
        """The session, when it is open. Without one, another is opened."""
        promise: Promise[ZookeeperSession] = Promise()
        if (session := self._open) is not None:
            promise.resolve(session)
        else:
            self.worker.run(partial(self._want, promise))
        return promise

    def close(self) -> Promise[None]:
        """End the session, and what the audience waits for; kept when its threads have gone."""
        promise: Promise[None] = Promise()
        self.worker.run(partial(self._close, promise))
        return promise

    # In the worker

    def _want(self, promise: Promise[ZookeeperSession]) -> None:
        if self._closed is not None:
            promise.fail(_closed())
            return
        if (session := self._session) is None:
            try:
                session = self._new()
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

    def _new(self) -> ZookeeperSession:
        ear = _Ear(self)
        session = ear.session = self._session = ZookeeperSession(self._connect(), ear)
        self._stopping.add(session.stopped)
        session.stopped.add_done_callback(self._stopping.discard)
        session.opened.add_done_callback(lambda _: self.worker.run(partial(self._opened, session)))
        session.open()
        return session

    def _opened(self, session: ZookeeperSession) -> None:
        if session is not self._session:
            return
        if session.opened.exception() is None:
            self._open = session
            self.audience.connected(session)
        else:
            self._session = None

    def _broke(self, session: ZookeeperSession) -> None:
        if session is self._session:
            self.audience.disconnected()

    def _mended(self, session: ZookeeperSession) -> None:
        if session is self._session:
            self.audience.connected(session)

    def _lost(self, session: ZookeeperSession) -> None:
        if session is self._session:
            self._session = self._open = None
            self.audience.disconnected()
            self.audience.lost()

    def _close(self, promise: Promise[None]) -> None:
        if self._closed is None:
            session, self._session, self._open = self._session, None, None
            stopping = list(self._stopping)
            if session is not None:
                session.end(_closed())
            self._closed = all_done(stopping)
            self.audience.closed(_closed())
        self._closed.add_done_callback(promise.follow)


class _Ear:
    """Tells the line, in its worker, what becomes of ``session``: see `SessionListener`."""

    def __init__(self, line: Line) -> None:
        self.session: ZookeeperSession | None = None
        self._line = line

    def suspect(self, reason: str) -> None:
        """See `SessionListener`."""
        self._tell(self._line._broke)

    def recovered(self) -> None:
        """See `SessionListener`."""
        self._tell(self._line._mended)

    def lost(self, reason: str) -> None:
        """See `SessionListener`."""
        self._tell(self._line._lost)

    def _tell(self, told: Callable[[ZookeeperSession], None]) -> None:
        if self.session is not None:
            self._line.worker.run(partial(told, self.session))


def _closed() -> BackendUnavailable:
    return BackendUnavailable(SERVICE, "the connection is closed")
