"""The hosts of a cluster and their channels, one host in use at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakSet

import grpc

from coordlock.errors import BackendUnavailable
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.log import Log
from coordlock_etcd.errors import SERVICE
from coordlock_etcd.quiet import quiet
from coordlock_etcd.rpc import Method

__all__ = ["Cluster", "Endpoint", "can_start_threads", "check_threads"]

log = Log("coordlock")

#: The scheme is spelled out: a host named "unix" is a host.
_TARGET: Final = "dns:///"
#: Seconds of nothing but older answers after which etcd counts as restored from a backup.
_RESTORED_S: Final = 5.0


def can_start_threads() -> bool:
    """Whether a thread can be started: from Python 3.12 on, not after the main thread has ended.

    gRPC starts threads for calls. A call that gets no thread stays in its channel, whose
    deallocation then waits for ever. So such a call must not be tried.
    """
    if threading.main_thread().is_alive():
        return True
    try:
        threading.Thread(target=bool, name="coordlock-etcd-probe", daemon=True).start()
    except RuntimeError:
        return False
    return True


def check_threads() -> None:
    """Raise ValueError, as gRPC does on a closed channel, if no thread can be started."""
    if not can_start_threads():
        raise ValueError("the interpreter ends and starts no threads")


def _channel_options(connect_within: float) -> list[tuple[str, int]]:
    return [
        # Not shared with other channels to the same host, in this process or across a fork.
        ("grpc.use_local_subchannel_pool", 1),
        # As etcd's own client: proxies are for the web.
        ("grpc.enable_http_proxy", 0),
        # `kernel.retry` decides when to try again; each try connects.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 100),
        # In spite of its name also how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", max(100, int(connect_within * 1000))),
        # After a failed connection gRPC asks for the host's address again, by default only 30 s
        # after the last time: a name that points elsewhere by then would cost the session.
        ("grpc.dns_min_time_between_resolutions_ms", 1_000),
        # etcd drops clients that ping more often than every 5 s, or while they have no call.
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 0),
        # A queue of 10,000 contenders takes a few megabytes.
        ("grpc.max_receive_message_length", -1),
    ]


class Endpoint:
    """A connection to one host. Its first use makes the channel."""

    def __init__(
        self,
        host: str,
        credentials: grpc.ChannelCredentials | None = None,
        connect_within: float = 5.0,
    ) -> None:
        self.host: Final = host
        #: Whether the host has ever answered, and so is an etcd.
        self.has_answered = False
        self._credentials = credentials
        self._connect_within = connect_within
        self._lock = threading.RLock()
        self._channel: grpc.Channel | None = None
        # By method: gRPC takes its time to make one.
        self._stubs: dict[str, Any] = {}
        self._closed = False

    @property
    def channel(self) -> grpc.Channel:
        """The channel; raises ValueError, as gRPC does, once it is closed."""
        with self._lock:
            if self._closed:
                raise ValueError("the client is closed")
            if self._channel is None:
                self._channel = self._open()
            return self._channel

    def stub(self, method: Method[Any, Any]) -> Any:
        """What calls ``method``. Raises as `channel` does."""
        channel, stub = self.channel, self._stubs.get(method.path)
        if stub is None:
            stub = channel.unary_unary(method.path, method.encode, method.decode)
            self._stubs[method.path] = stub
        return stub

    def renewed(self) -> Endpoint:
        """Another connection to the same host.

        A connection that a network forgot looks like a slow server for a long time. Its calls may
        still be answered, so it ends with the last of them.
        """
        renewed = Endpoint(self.host, self._credentials, self._connect_within)
        renewed.has_answered = self.has_answered
        return renewed

    def close(self) -> None:
        """Close the channel; its calls end as cancelled.

        Blocks until the calls have ended, so never call it from a callback of gRPC.
        """
        with self._lock:
            self._closed = True
            channel = self._channel
        if channel is not None:
            channel.close()

    def _open(self) -> grpc.Channel:
        target, options = _TARGET + self.host, _channel_options(self._connect_within)
        with quiet():
            if self._credentials is None:
                return grpc.insecure_channel(target, options)
            return grpc.secure_channel(target, self._credentials, options)


class Cluster:
    """The endpoints, and the newest state of the store.

    Attributes:
        current: the endpoint in use; the next one when it has failed.
        moved: called after another endpoint has come into use, from any thread.
        revision: the newest state of the store that any answer or event has shown.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)
        self.current = self.endpoints[0]
        self.moved: Callable[[], None] = lambda: None
        self.revision = 0
        self.closed = False
        self._lock = threading.RLock()
        #: With those that were replaced, while calls go on over them.
        self._all: WeakSet[Endpoint] = WeakSet(endpoints)
        #: How many attempts in a row had no answer, and when the last of them ended.
        self._silences = 0
        self._silent_at = 0.0
        #: Since when each answer has been older than what was seen; None while the last was not.
        self._older_since: float | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the last two attempts had no answer."""
        return self._silences > 1

    def silent(self, sent: float) -> None:
        """An attempt of the time ``sent`` had no answer.

        Attempts that wait for their answers together count as one: a server that is slow for a
        moment must not have to open everybody's connections and watches again.
        """
        with self._lock:
            if sent >= self._silent_at:
                self._silent_at = SYSTEM_CLOCK.now()
                self._silences += 1

    def answered(self, endpoint: Endpoint, reply: Any, seen: int) -> None:
        """An attempt was answered. Raises `BackendUnavailable` if ``reply`` does not count.

        It may not be older than what was ``seen``.
        """
        endpoint.has_answered, self._silences = True, 0
        if reply is None:  # for gRPC that is a success, too
            reason = f"{endpoint.host}: the answer came without its message"
            raise BackendUnavailable(SERVICE, reason)
        if (revision := reply.header.revision) < seen:
            # Servers before 3.4.42, 3.5.28 and 3.6.9 may show the past after a pause.
            self.saw_older(revision)
            raise BackendUnavailable(SERVICE, "the answer is older than what was seen before")
        self.saw(revision)

    def saw(self, revision: int) -> None:
        """An answer or event shows the store at ``revision``; later answers may not be older."""
        if revision >= self.revision:
            with self._lock:
                self.revision = max(self.revision, revision)
                self._older_since = None

    def saw_older(self, revision: int) -> None:
        """An answer was refused because it is older than what was seen.

        After some seconds of nothing else, etcd has lost its data, or was restored. Heartbeats show
        the revision, too, so no paused member makes this of two old answers that lie far apart.
        """
        now = SYSTEM_CLOCK.now()
        with self._lock:
            if self._older_since is None:
                self._older_since = now
            if now - self._older_since >= _RESTORED_S and revision < self.revision:
                self.revision, self._older_since = revision, None

    def fail_over(self, failed: Endpoint, *, is_stuck: bool) -> None:
        """Use another endpoint instead of ``failed``. Calls that fail together move on once.

        If ``failed`` ``is_stuck``, its connection is not used any more, even for the same host.
        """
        with self._lock:
            if self.closed or failed not in self.endpoints:
                return
            endpoints, at = list(self.endpoints), self.endpoints.index(failed)
            if is_stuck:
                endpoints[at] = failed.renewed()
                self._all.add(endpoints[at])
                self.endpoints = tuple(endpoints)
            following = endpoints[(at + 1) % len(endpoints)]
            if self.current is not failed or following is failed:
                return
            self.current = following
        if following.host != failed.host:
            log.info("etcd: %s failed, using %s", failed.host, following.host)
        self.moved()

    def close(self) -> None:
        """End all calls and close the channels. Blocks; idempotent."""
        self.closed = True
        for endpoint in list(self._all):
            endpoint.close()
