"""One ZooKeeper session: from connecting to its end, whichever side ends it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from copy import copy
from typing import Any, Final, Protocol, TypeVar

from kazoo.protocol.serialization import Sync
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import OPEN_ACL_UNSAFE

from coordlock.backend import SessionInfo, SessionListener
from coordlock.errors import AuthenticationFailed, BackendError, BackendUnavailable, SessionLost
from coordlock.runtime.clock import Clock
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise, failed, in_thread
from coordlock_zookeeper.data import Data
from coordlock_zookeeper.errors import SERVICE, translate
from coordlock_zookeeper.lifetime import BEAT_GAP, Lifetime
from coordlock_zookeeper.nodes import session_name
from coordlock_zookeeper.requests import Requests
from coordlock_zookeeper.watches import Watches

__all__ = ["SessionClient", "ZookeeperSession", "in_doubt"]

T = TypeVar("T")

_BROKEN: Final = "the connection was lost"


class SessionClient(Protocol):
    """The kazoo client under a session: an `OwnClient`, rarely a `GivenClient`."""

    #: A `KazooClient`; kazoo has no types.
    client: Any
    #: Whether others use the client and its session too.
    shared: bool

    def start(self, connected: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Connect, without blocking.

        ``connected`` is called once, when there is a session and `ttl` is known. ``failed`` is
        called, perhaps repeatedly, with the reason why a round of attempts failed. Both are called
        from other threads.
        """

    def call(self, request: Any, answer: Any) -> None:
        """Send one of kazoo's requests, as the client's ``_call`` does, but never block."""

    def ttl(self) -> float:
        """The time-to-live in seconds that the server granted."""

    def born(self) -> float:
        """A moment before the leader last heard of a session that has just been opened."""

    def crash(self) -> BaseException | None:
        """The error of which the client's I/O thread died, which kazoo only logs; None if unknown.

        A given client logs where the application has told it to.
        """
        return None

    def stop(self) -> None:
        """End the session and the connection, if they are our own. Blocks for a bounded time."""

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        """A separate connection to a server, made as the session's is; raises OSError."""


class ZookeeperSession:
    """A session and the requests that belong to it.

    kazoo reports its states and answers requests on its I/O thread, which may not wait here: the
    lock is held for moments, and never while something outside is called but the client's start.

    Args:
        acl: of the nodes that are made; None for the client's own.

    Attributes:
        client: the `KazooClient`.
        requests: sends requests in it, without a look at whether it has ended.
        opened: kept when the session is open; fails when it cannot be opened.
        stopped: kept when the client of our own has gone, after the session's end.
        watches: of the znodes whose departure is waited for.
        data: reads and writes data in it.
        number: the session's id in ZooKeeper; 0 before it is known.
        has_ended: whether it has ended; then the client sends no more requests in it.
    """

    _lifetime: Lifetime

    def __init__(
        self,
        session_client: SessionClient,
        listener: SessionListener,
        clock: Clock,
        acl: Any,
    ) -> None:
        self.client: Final = session_client.client
        self.opened: Final[Promise[SessionInfo]] = Promise()
        self.stopped: Final[Promise[None]] = Promise()
        self.requests: Final = Requests(session_client.client, session_client.call)
        self.watches: Final = Watches(self.requests)
        self.data: Final = Data(self.requests, acl or self.client.default_acl or OPEN_ACL_UNSAFE)
        self.number = 0
        self.has_ended = False
        self._session_client = session_client
        self._listener = listener
        self._clock = clock
        self._lock = threading.RLock()
        self._is_open = False
        self._refusal: BackendError = BackendUnavailable(SERVICE, _BROKEN)
        self._pending: set[Promise[Any]] = set()

    def open(self) -> None:
        """Connect, unless the session has ended; `opened` tells how it went."""
        try:
            with self._lock:  # who ends it stops the client that was started, or none is started
                if not self.has_ended:
                    self.client.add_listener(self._changed)
                    self._session_client.start(self._greet, self._unreachable)
        except RuntimeError as error:  # the interpreter is exiting, and starts no threads any more
            self.end(BackendUnavailable(SERVICE, str(error)))

    @property
    def _is_live(self) -> bool:
        return self._is_open and not self.has_ended

    def ttl(self) -> float:
        """Seconds that the session outlives its last heartbeat, as granted."""
        return self._session_client.ttl()

    def proven(self, sent: float) -> float:
        """Seconds that the session lives from ``sent`` on, when that heartbeat is acknowledged."""
        return self._lifetime.proven(sent, self._clock.now(), self.ttl())

    def submit(self, steps: Callable[[], Steps[T]]) -> Promise[T]:
        """Run a protocol of requests, the first of which are sent before this returns.

        The promise fails when the session ends.
        Without a connection it fails at once, because kazoo would collect requests without bound.
        """
        promise: Promise[T] = Promise()
        with self._lock:
            usable = self._is_live and self.requests.are_possible
            refusal = self._refusal
            if usable:
                self._pending.add(promise)
        if not usable:
            if self._session_client.shared and self.client.client_state == KeeperState.CLOSED:
                # All sessions that the given client ever had are gone.
                refusal = SessionLost(SERVICE, "the client was closed")
            return failed(copy(refusal))  # each is raised, and collects tracebacks
        promise.add_done_callback(self._pending.discard)
        run_in_background(steps()).add_done_callback(promise.follow)
        return promise

    def end(self, error: BackendError) -> None:
        """End the session here: what waits fails with ``error``. Idempotent.

        A client of our own closes its session on the server too, in the background.
        """
        with self._lock:
            if self.has_ended:
                return
            self.has_ended = True
            if isinstance(error, SessionLost) and not self._is_open:
                # It was never in use, so it is not lost; opening may be tried again.
                error = BackendUnavailable(SERVICE, error.reason)
            self._refusal = error
            pending = self._pending.copy()
        self.client.remove_listener(self._changed)
        self.watches.close()
        stopped = in_thread("coordlock-zookeeper-stop", self._session_client.stop)
        stopped.add_done_callback(self.stopped.follow)
        self.opened.fail(error)
        for promise in pending:
            promise.fail(copy(error))

    def _changed(self, state: str) -> None:
        # Called on kazoo's I/O thread. Between two sessions of a client it always comes as LOST.
        live = self._is_live
        if state == KazooState.LOST:
            error = self._why_lost()
            self.end(error)
            if live:
                self._listener.lost(error.reason)
        elif live and state == KazooState.CONNECTED:
            self.requests.after_events(self._reconnected)
        elif live:
            self._listener.suspect(_BROKEN)

    def _reconnected(self) -> None:
        self.watches.rearm()
        self._listener.recovered()

    def _why_lost(self) -> BackendError:
        if (crash := self._session_client.crash()) is not None:
            error = translate(crash)
            if isinstance(error, AuthenticationFailed):
                return error
            return SessionLost(SERVICE, f"kazoo failed: {error}")
        match self.client.client_state:
            case KeeperState.AUTH_FAILED:
                return AuthenticationFailed(SERVICE, "the credentials were refused")
            case KeeperState.CLOSED:
                return SessionLost(SERVICE, "the client was closed")
            case _:
                return SessionLost(SERVICE, "the server expired the session")

    def _current_number(self) -> int:
        identity = self.client.client_id
        return 0 if identity is None else int(identity[0])

    def _unreachable(self, reason: str) -> None:
        # After the greeting was sent, its answer decides. Later kazoo goes on trying, until it has
        # the session again or has lost it.
        if not self.number:
            self.end(BackendUnavailable(SERVICE, reason))

    def _greet(self) -> None:
        # A given client may have lost its connection since it was asked.
        self.number = number = self._current_number()
        if not number:
            self.end(BackendUnavailable(SERVICE, _BROKEN))
            return
        # The answer to a first request proves that the credentials were accepted, too.
        self._lifetime = Lifetime(self._session_client.born())
        self.requests.send(self.requests.made(Sync, "/"), self._greeted)

    def _greeted(self, answer: Promise[Any]) -> None:
        if isinstance(error := answer.exception(), BackendError):
            self.end(error)
            return
        THREAD.must_not_wait = True  # kazoo's thread for answers; also a given client's
        with self._lock:
            if self.has_ended:
                return
            self._is_open = self._current_number() == self.number
        if not self._is_open:
            # The connection has gone, or the given client has started another session.
            self.end(BackendUnavailable(SERVICE, "the session ended while it was opened"))
            return
        ttl, shared = self.ttl(), self._session_client.shared
        self.opened.resolve(
            SessionInfo(session_name(self.number), ttl, shared, beat_gap=BEAT_GAP * ttl)
        )


def in_doubt(answer: Promise[T]) -> Promise[T]:
    """The same, but `BackendUnavailable` for `SessionLost`: what was sent may have been done."""
    promise: Promise[T] = Promise()

    def answered(answer: Promise[T]) -> None:
        error = answer.exception()
        if isinstance(error, SessionLost):
            promise.fail(BackendUnavailable(SERVICE, error.reason))
        else:
            promise.follow(answer)

    answer.add_done_callback(answered)
    return promise
