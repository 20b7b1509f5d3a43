"""A session for what needs no lock: opened at its first use, and anew when it was lost."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from threading import RLock
from typing import Final, TypeVar

from coordlock.backend import SessionInfo, SessionListener
from coordlock.errors import BackendUnavailable
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, failed
from coordlock_zookeeper.errors import SERVICE, closed
from coordlock_zookeeper.session import ZookeeperSession, in_doubt

__all__ = ["DataSession"]

T = TypeVar("T")


class DataSession:
    """The session that observations share with reads and writes of data. Safe for threads.

    The locks have their own: it is opened and given up as they need it, and an event that hands
    over a lock must not wait behind thousands of changes that somebody observes.

    Attributes:
        on_break: called, from any thread, when the connection or the session is lost, and when
            there is a connection again. Set before the first use.
    """

    on_break: Callable[[], None]

    def __init__(self, new: Callable[[SessionListener], ZookeeperSession]) -> None:
        self._new: Final = new
        self._lock: Final = RLock()
        #: The newest session.
        self._session: ZookeeperSession | None = None
        self._is_closed = False

    def submit(self, steps: Callable[[ZookeeperSession], Steps[T]]) -> Promise[T]:
        """Run a protocol of requests in a session, which is opened where there is none.

        `BackendUnavailable` when the session, or its connection, is lost meanwhile.
        """
        with self._lock:
            if self._is_closed:
                return failed(closed())
            session = self._session
            if session is None or session.has_ended:
                session = self._session = self._new(self)
                try:
                    session.open()
                except BaseException:  # Ctrl-C: the next request opens another
                    session.end(BackendUnavailable(SERVICE, "opening it was interrupted"))
                    raise
        promise: Promise[T] = Promise()

        def opened(answer: Promise[SessionInfo]) -> None:
            if (error := answer.exception()) is not None:
                promise.fail(copy(error))  # each is raised, and collects tracebacks
            else:
                done = in_doubt(session.submit(lambda: steps(session)))
                done.add_done_callback(promise.follow)

        session.opened.add_done_callback(opened)
        return promise

    def close(self) -> None:
        """End the session, and open none any more."""
        with self._lock:
            self._is_closed = True
            session = self._session
        if session is not None:
            session.end(closed())

    # See `SessionListener`

    def suspect(self, reason: str) -> None:
        self.on_break()

    def recovered(self) -> None:
        self.on_break()

    def lost(self, reason: str) -> None:
        self.on_break()
