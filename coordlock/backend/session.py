"""The session of a client: opened for a listener, which learns once that it is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, TypeVar

from coordlock.backend.contract import SessionListener
from coordlock.errors import SessionLost
from coordlock.runtime.promise import Promise

__all__ = ["OneSession"]

S = TypeVar("S")


class OneSession(Generic[S]):
    """At most one session at a time, each another object or number. Safe for threads.

    Args:
        service: its name, for errors.
        lock: a reentrant lock.
        ended: called with the lock held when a session is lost, before its listener learns it: so
            what it drops is not the next session's.

    Attributes:
        current: the session, while requests may be made in it.
    """

    def __init__(
        self,
        service: str,
        lock: AbstractContextManager[Any],
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        self.current: S | None = None
        self._service: Final = service
        self._lock: Final = lock
        self._ended: Final = ended
        self._listener: SessionListener | None = None
        self._is_closed = False
        self._reason = "there is no session"

    def begin(self, session: S, listener: SessionListener) -> bool:
        """``session`` is open; False if the client was closed meanwhile."""
        with self._lock:
            if not self._is_closed:
                self.current, self._listener = session, listener
            return not self._is_closed

    def forget(self, *, closes: bool = False) -> S | None:
        """Make no more requests in the session; which it was. Its listener learns nothing more.

        If the client ``closes``, no other session begins.
        """
        with self._lock:
            self._is_closed |= closes
            session, self.current, self._listener = self.current, None, None
            self._reason = "there is no session"
            return session

    def lose(
        self, session: S | None, reason: str, end: Callable[[], object] = lambda: None
    ) -> SessionLost:
        """``session`` has ended; the error of requests that need it.

        The first caller ends what it has here by ``end``, before the listener learns of it.
        """
        with self._lock:
            is_new = session is not None and session == self.current
            listener = self._listener
            if is_new:
                self.forget()
                self._reason = reason
                self._ended()
        if is_new:
            try:
                end()
            finally:
                if listener is not None:
                    listener.lost(reason)
        return SessionLost(self._service, reason)

    def notice(self, session: S, answer: Promise[Any]) -> None:
        """The ``answer`` to a request in ``session`` may say that it is lost."""
        if isinstance(error := answer.exception(), SessionLost):
            self.lose(session, error.reason)

    def missing(self) -> SessionLost:
        """Why a request is not sent while there is no session: how the last one was lost."""
        return SessionLost(self._service, self._reason)

    def suspect(self, reason: str) -> None:
        """The connection is gone; the session may still live."""
        if (listener := self._listener) is not None:
            listener.suspect(reason)

    def recovered(self) -> None:
        """The connection is back, with the same session."""
        if (listener := self._listener) is not None:
            listener.recovered()
