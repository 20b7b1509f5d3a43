"""A watch stream until it breaks, and then the next one."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from random import uniform
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc

from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.log import Log
from coordlock.runtime.process import THREAD
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd import requests
from coordlock_etcd.errors import SERVICE, WatchRefused, is_elsewhere, needs_login, translate
from coordlock_etcd.rpc import WATCH
from coordlock_etcd.transport.call import metadata
from coordlock_etcd.transport.cluster import can_start_threads, check_threads
from coordlock_etcd.transport.connection import Connection

__all__ = ["StreamHost", "StreamUser"]

log = Log("coordlock")

T = TypeVar("T")

#: Seconds between attempts to open a stream: the first doubles up to the last, while streams break
#: sooner than that.
_BACKOFF_S: Final = (0.1, 2.0)


class StreamUser(Protocol):
    """What a `StreamHost` works for. It calls all but the first without its lock."""

    def needs_stream(self) -> bool:
        """Whether there is something to watch."""

    def opened(self) -> None:
        """A stream is open, and watches nothing yet."""

    def received(self, response: pb.WatchResponse) -> None:
        """A response of etcd has come on the stream."""

    def broke(self, error: CoordlockError | None) -> None:
        """There is no stream any more, or none could be opened; another attempt follows.

        ``error`` is None where a new login is expected to mend it.
        """


class StreamHost(Generic[T]):
    """Keeps a watch stream open, from the first time on that its user needs one.

    One stream carries many watches. Each has an id on the current stream, and belongs to one of the
    user's targets. A broken stream ends all of them.

    Attributes:
        lock: of the host and its user. Held by the caller of what says so.
        newest_id: of all watches so far. etcd files those of a stream in the order of their ids.
    """

    def __init__(self, connection: Connection, name: str, user: StreamUser) -> None:
        self._connection = connection
        self._name = name
        self._user = user
        # Entered by the plain lock: Ctrl-C in `Condition.__enter__` would leave it taken.
        self.lock: Final = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._targets: dict[int, T] = {}
        self.newest_id = 0
        #: The stream, and what is to be sent on it.
        self._call: Any = None
        self._requests: SimpleQueue[pb.WatchRequest | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._delay = _BACKOFF_S[0]
        #: Whether etcd has refused a watch, and not yet filed those that the next stream began
        #: with. A stream's token ends: then etcd refuses each new watch.
        self._is_refused = False
        self.closed = False

    # With the lock held

    @property
    def is_open(self) -> bool:
        """Whether there is a stream."""
        return self._call is not None

    def start(self) -> None:
        """The user may need a stream by now."""
        self._changed.notify()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread  # only now: without the thread nothing is watched

    def send(self, request: pb.WatchRequest) -> None:
        """Send ``request`` on the stream, if there is one, in the order of the calls."""
        if self._call is not None:
            self._requests.put(request)

    def watch(self, target: T, key: bytes, end: bytes, *, puts: bool = False) -> int:
        """Send `requests.watch`; its id. What comes of it is for ``target``."""
        self.newest_id += 1
        self._targets[self.newest_id] = target
        self.send(requests.watch(self.newest_id, key, end, puts=puts))
        return self.newest_id

    def unwatch(self, id: int) -> None:
        """End the watch ``id``, if it is one of the stream's."""
        if self._targets.pop(id, None) is not None:
            self.send(requests.unwatch(id))

    def target(self, id: int) -> T | None:
        """Whose the watch ``id`` is; None where it has ended."""
        return self._targets.get(id)

    # Without it

    def restart(self) -> None:
        """Open a new stream, on the endpoint that is now in use. Never blocks."""
        with self.lock:
            if self._call is not None:
                self._call.cancel()

    def close(self) -> None:
        """Let the thread end. Never blocks."""
        with self.lock:
            self.closed = True
            self._changed.notify()
        self.restart()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end, up to ``timeout`` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    # The thread of the stream

    def _run(self) -> None:
        THREAD.must_not_wait = True
        with self.lock:
            if self._thread is None:  # Ctrl-C came inside of `start`
                self._thread = threading.current_thread()
            elif self._thread is not threading.current_thread():
                return
        while self._is_needed():
            began = SYSTEM_CLOCK.now()
            self._serve()
            with self.lock:
                if SYSTEM_CLOCK.now() - began > _BACKOFF_S[1]:
                    self._delay = _BACKOFF_S[0]
                # Not all clients at once, when a server is back.
                delay = self._delay * uniform(0.5, 1.0)
                self._changed.wait_for(lambda: self.closed, delay)
                self._delay = min(2 * self._delay, _BACKOFF_S[1])

    def _is_needed(self) -> bool:
        with self.lock:
            self._changed.wait_for(lambda: self.closed or self._user.needs_stream())
            return not self.closed

    def _serve(self) -> None:
        """Open a stream, and follow it until it breaks.

        The user depends on this thread, so it goes on after any error.
        """
        error: CoordlockError | None = None
        try:
            self._follow()
        except CoordlockError as broken:
            error = broken
        except Exception as unexpected:
            if not self.closed and can_start_threads():
                log.exception("etcd: a watch stream failed")
            error = BackendUnavailable(SERVICE, repr(unexpected))
        was_refused, self._is_refused = self._is_refused, isinstance(error, WatchRefused)
        try:
            self._user.broke(None if self._is_refused and not was_refused else error)
        except Exception:
            log.exception("etcd: a watch stream failed")

    def _follow(self) -> None:
        """Open a stream, and take its responses until it breaks, which raises an error."""
        cluster, login = self._connection.cluster, self._connection.login
        token = None if login is None else login.token().result()
        with self.lock:  # so that `restart` finds it
            if self.closed:
                return
            check_threads()
            endpoint = cluster.current
            method = endpoint.channel.stream_stream(WATCH.path, WATCH.encode, WATCH.decode)
            sent: SimpleQueue[pb.WatchRequest | None] = SimpleQueue()
            self._requests = sent
            # None ends the iterator, and with it the thread in which gRPC waits for requests.
            self._call = call = method(iter(sent.get, None), metadata=metadata(token))
        refusal: str | None = None
        try:
            self._user.opened()
            newest = self.newest_id
            for response in call:
                if response.created and response.canceled:
                    refusal = response.cancel_reason or "the watch was refused"
                    break
                if response.created and response.watch_id >= newest:
                    self._is_refused = False  # all that it began with is filed
                self._take(response)
        except grpc.RpcError:
            code, details = call.code(), call.details() or ""
            if needs_login(code, details, had_token=token is not None):
                refusal = details
            else:
                if is_elsewhere(code, details):
                    cluster.fail_over(endpoint, is_stuck=False)
                host, has_answered = endpoint.host, endpoint.has_answered
                raise translate(code, details, host, has_answered=has_answered) from None
        finally:
            with self.lock:
                self._call = None
                self._targets.clear()
            call.cancel()
            sent.put(None)
        if refusal is None:
            raise BackendUnavailable(SERVICE, "the server ended the watch stream")
        if login is not None:
            login.forget(token)
        raise WatchRefused(SERVICE, refusal)

    def _take(self, response: pb.WatchResponse) -> None:
        if response.events:
            self._connection.cluster.saw(response.events[-1].kv.mod_revision)
        self._user.received(response)
