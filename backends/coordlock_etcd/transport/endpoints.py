"""The hosts of a cluster and the channels to them, one host in use at a time.

The hosts of the URL come first and are never left out. Behind them are those that the cluster has
told of: see `members`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import grpc

from coordlock_etcd.quiet import quiet
from coordlock_etcd.rpc import Method

__all__ = ["Endpoint", "Endpoints"]


def _channel_options(connect_within: float) -> list[tuple[str, int]]:
    return [
        # Not shared with other channels to the same host, in this process or across a fork.
        ("grpc.use_local_subchannel_pool", 1),
        # As etcd's own client: proxies are for the web.
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # In spite of its name also how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", max(100, int(connect_within * 1000))),
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
    """One host; its channel is made at first use, or was given."""

    def __init__(
        self,
        host: str,
        credentials: grpc.ChannelCredentials | None = None,
        connect_within: float = 5.0,
        given: grpc.Channel | None = None,
    ) -> None:
        self.host: Final = host
        #: Whether it has ever answered, and so is an etcd.
        self.has_answered = False
        self._credentials = credentials
        self._connect_within = connect_within
        self._given = given
        self._lock = threading.RLock()
        self._own: grpc.Channel | None = None
        # The stubs of that channel, by method: gRPC takes its time to make one.
        self._stubs: dict[str, Any] = {}
        self._retired: grpc.Channel | None = None
        self._closed = False

    @property
    def channel(self) -> grpc.Channel:
        """The channel; raises ValueError, as gRPC does, once it is closed."""
        with self._lock:
            return self._opened()

    def stub(self, method: Method[Any, Any]) -> tuple[grpc.Channel, Any]:
        """The channel, and the stub that calls ``method`` on it. Raises as `channel` does."""
        with self._lock:
            channel = self._opened()
            stub = self._stubs.get(method.path)
            if stub is None:
                stub = channel.unary_unary(method.path, method.encode, method.decode)
                self._stubs[method.path] = stub
            return channel, stub

    def renew(self, silent: grpc.Channel) -> bool:
        """Use a new connection instead of ``silent``; False if ``silent`` is not in use any more.

        A connection that a network forgot looks like a slow server for a long time. Its calls may
        still be answered, so it is closed only at the next renewal, a deadline later.
        """
        with self._lock:
            if self._own is not silent or self._closed:
                return False
            useless, self._retired, self._own = self._retired, self._own, None
        if useless is not None:
            _close_elsewhere(useless)
        return True

    @property
    def is_secure(self) -> bool:
        """Whether connections to it use TLS."""
        return self._credentials is not None

    def like(self, host: str) -> Endpoint:
        """Another ``host``, reached in the same way."""
        return Endpoint(host, self._credentials, self._connect_within)

    @property
    def is_given(self) -> bool:
        """Whether the channel is the application's."""
        return self._given is not None

    def close(self) -> None:
        """Close the channels, unless given; their calls end as cancelled.

        Blocks until the calls have ended, so never call it from a callback of gRPC.
        """
        with self._lock:
            self._closed = True
            channels = self._own, self._retired
            self._own = self._retired = None
        for channel in channels:
            if channel is not None:
                channel.close()

    def close_soon(self) -> None:
        """Do the same, without waiting for it."""
        _close_elsewhere(self)

    def _opened(self) -> grpc.Channel:
        if self._given is not None:
            return self._given
        if self._closed:
            raise ValueError("the channel is closed")
        if self._own is None:
            self._own, self._stubs = self._open(), {}
        return self._own

    def _open(self) -> grpc.Channel:
        # The scheme is spelled out: a host named "unix" is a host.
        target, options = f"dns:///{self.host}", _channel_options(self._connect_within)
        with quiet():
            if self._credentials is None:
                return grpc.insecure_channel(target, options)
            return grpc.secure_channel(target, self._credentials, options)


def _close_elsewhere(what: grpc.Channel | Endpoint) -> None:
    # Closing waits for the thread that may be calling us, so it needs another thread.
    with suppress(RuntimeError):  # at the interpreter's end
        threading.Thread(target=what.close, name="coordlock-etcd-renew", daemon=True).start()


class Endpoints:
    """Several endpoints of one cluster, used in turn: the next when one has failed.

    Attributes:
        configured: those of the URL.
        all: those, and then the ones that the client has learned of.
        current: the endpoint in use.
    """

    def __init__(self, configured: Sequence[Endpoint]) -> None:
        self.configured: Final = tuple(configured)
        self.all = self.configured
        self.current = self.all[0]
        #: All that may have channels.
        self._made = weakref.WeakSet(configured)
        self._lock = threading.RLock()
        self._closed = False

    def like(self, host: str) -> Endpoint:
        """An endpoint for ``host``, not in use yet: for `learn`, or else to be closed."""
        endpoint = self.configured[0].like(host)
        with self._lock:
            self._made.add(endpoint)
            if self._closed:
                endpoint.close()
        return endpoint

    def learn(self, found: Sequence[Endpoint]) -> bool:
        """Have those ``found`` behind the configured ones, and no others; whether it is a change.

        The endpoint in use stays.
        """
        with self._lock:
            before = self.all
            added = [endpoint for endpoint in found if endpoint not in self.configured]
            if self.current not in (*self.configured, *added):
                added.append(self.current)
            if self._closed or (*self.configured, *added) == before:
                return False
            self.all = (*self.configured, *added)
        for endpoint in before:
            if endpoint not in self.all:
                endpoint.close_soon()
        return True

    def fail_over(self, failed: Endpoint) -> bool:
        """Use the next endpoint instead of ``failed``; False if that changes nothing.

        Calls that fail together move on once.
        """
        with self._lock:
            if self.current is not failed or len(self.all) == 1:
                return False
            self.current = self.all[(self.all.index(failed) + 1) % len(self.all)]
            return True

    def close(self) -> None:
        """Close all channels that are ours. Blocks until their calls have ended."""
        with self._lock:
            self._closed = True
            made = list(self._made)
        for endpoint in made:
            endpoint.close()
