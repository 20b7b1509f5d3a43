"""One watch stream: requests out of a queue, responses one by one."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final

import grpc

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import SERVICE, WatchRefused, is_elsewhere, needs_login, translate
from coordlock_etcd.rpc import WATCH
from coordlock_etcd.transport.call import metadata
from coordlock_etcd.transport.cluster import Cluster
from coordlock_etcd.transport.login import Login

__all__ = ["Stream"]


class Stream:
    """A stream on the endpoint in use, until it breaks or is cancelled."""

    def __init__(self, cluster: Cluster, login: Login, token: str | None) -> None:
        self._cluster = cluster
        self._login = login
        self._token = token
        self._endpoint: Final = cluster.current
        self._requests: SimpleQueue[pb.WatchRequest | None] = SimpleQueue()
        cluster.admit(takes_thread=True)
        self._channel: Final = self._endpoint.channel
        method = self._channel.stream_stream(WATCH.path, WATCH.encode, WATCH.decode)
        # None ends the iterator, and with it the thread in which gRPC waits for requests.
        self._call = method(iter(self._requests.get, None), metadata=metadata(token))
        cluster.track(self._call)

    def is_current(self) -> bool:
        """Whether calls go over its channel, too."""
        return self._channel is self._cluster.current.channel

    def send(self, request: pb.WatchRequest) -> None:
        """Send ``request``, in the order of the calls; never blocks."""
        self._requests.put(request)

    def cancel(self) -> None:
        """Break the stream; never blocks."""
        self._call.cancel()

    def responses(self) -> Iterator[pb.WatchResponse]:
        """The responses until the stream breaks, which raises an error of coordlock.

        That is `WatchRefused` where etcd refuses a watch: another stream logs in anew.
        """
        try:
            for response in self._call:
                if response.created and response.canceled:
                    self._login.forget(self._token)
                    raise WatchRefused(SERVICE, response.cancel_reason or "the watch was refused")
                yield response
        except grpc.RpcError:
            code, details = self._call.code(), self._call.details() or ""
            if needs_login(code, details, had_token=self._token is not None):
                self._login.forget(self._token)
            elif is_elsewhere(code, details):
                self._cluster.fail_over(self._endpoint, self._channel, silent=False)
            has_answered = self._endpoint.has_answered
            raise translate(code, details, self._endpoint.host, has_answered=has_answered) from None

    def close(self) -> None:
        """Free what the broken stream holds. Blocks no longer than gRPC's own cleanup."""
        self._call.cancel()
        self._requests.put(None)
        self._cluster.untrack(self._call)
