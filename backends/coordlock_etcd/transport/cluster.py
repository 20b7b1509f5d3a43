"""What the calls to one cluster share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import grpc

from coordlock.runtime.log import Log
from coordlock_etcd.transport.endpoints import Endpoint, Endpoints
from coordlock_etcd.transport.lookout import Lookout
from coordlock_etcd.transport.shutdown import can_start_threads
from coordlock_etcd.transport.threads import CallThreads

__all__ = ["Cluster"]

log = Log("coordlock")


class Cluster:
    """The endpoint in use, the calls under way, and what is known of the store."""

    def __init__(self, endpoints: Endpoints, lookout: Lookout) -> None:
        self.endpoints: Final = endpoints
        self.lookout: Final = lookout
        self.threads: Final = CallThreads()
        #: Called after another endpoint or connection has come into use, from any thread.
        self.moved: Callable[[], None] = lambda: None
        #: The newest state of the store that any answer or event has shown.
        self.revision = 0
        self._lock = threading.RLock()
        self._calls: set[grpc.RpcContext] = set()
        self._closed = False

    def saw(self, revision: int) -> None:
        """An answer or event shows the store at ``revision``; later answers may not be older."""
        if revision > self.revision:
            with self._lock:
                self.revision = max(self.revision, revision)

    def fail_over(self, endpoint: Endpoint, channel: grpc.Channel, *, silent: bool) -> None:
        """Use another endpoint, because ``endpoint`` has failed.

        If it was ``silent``, also use another connection than ``channel``, even to the same host.
        """
        if self._closed:
            return
        renewed = silent and endpoint.renew(channel)
        if self.endpoints.fail_over(endpoint):
            log.info("etcd: %s failed, using %s", endpoint.host, self.endpoints.current.host)
            self.moved()
        elif renewed:
            self.moved()

    def admit(self, *, takes_thread: bool = False) -> None:
        """Raise ValueError where a call must not be started: after `close`, or without threads.

        One gRPC thread serves all calls of a channel as long as there are any. A call that
        ``takes_thread`` needs its own thread, too.
        """
        with self._lock:
            serves = bool(self._calls) and not takes_thread
        if self._closed:
            raise ValueError("the client is closed")
        if not serves and not can_start_threads():
            raise ValueError("the interpreter ends and starts no threads")

    def track(self, call: grpc.RpcContext) -> None:
        """Let `close` end ``call``, on channels that are not ours too."""
        with self._lock:
            if not self._closed:
                self._calls.add(call)
                return
        call.cancel()

    def untrack(self, call: grpc.RpcContext) -> None:
        """``call`` has ended."""
        with self._lock:
            self._calls.discard(call)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def cancel(self) -> None:
        """End all calls and admit no more. Never blocks."""
        with self._lock:
            self._closed = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def close(self) -> None:
        """End all calls and close the channels that are ours. Blocks; idempotent."""
        self.cancel()
        self.threads.close()
        self.lookout.close()
        self.endpoints.close()
