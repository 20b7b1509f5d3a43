"""One watch stream: requests out of a queue, responses one by one."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Final

import grpc

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.connection import Connection
from coordlock_etcd.endpoints import Endpoint
from coordlock_etcd.errors import is_elsewhere, needs_login, translate
from coordlock_etcd.rpc import WATCH

__all__ = ["Stream"]


class Stream:
    """A stream on the endpoint in use, from `open` until it breaks or is cancelled."""

    def __init__(self, connection: Connection, endpoint: Endpoint, token: str | None) -> None:
        self.endpoint: Final = endpoint
        self._connection = connection
        self._token = token
        self._requests: SimpleQueue[pb.WatchRequest | None] = SimpleQueue()
        connection.check(takes_thread=True)
        self.channel: Final = endpoint.channel
        method = self.channel.stream_stream(WATCH.path, WATCH.encode, WATCH.decode)
        # None ends the iterator, and with it the thread in which gRPC waits for requests.
        self._call = method(iter(self._requests.get, None), metadata=connection.metadata(token))
        connection.follow(self._call)

    def send(self, request: pb.WatchRequest) -> None:
        """Send ``request``, in the order of the calls; never blocks."""
        self._requests.put(request)

    def cancel(self) -> None:
        """Break the stream; never blocks."""
        self._call.cancel()

    def responses(self) -> Iterator[pb.WatchResponse]:
        """The responses until the stream breaks, which raises an error of coordlock."""
        try:
            yield from self._call
        except grpc.RpcError:
            code, details = self._call.code(), self._call.details() or ""
            if needs_login(code, details):
                self._connection.forget(self._token)
            elif is_elsewhere(code, details):
                self._connection.leave(self.endpoint, self.channel, silent=False)
            raise translate(code, details, self.endpoint.host) from None

    def refuse_token(self) -> None:
        """Log in anew before the next stream."""
        self._connection.forget(self._token)

    def close(self) -> None:
        """Let go of what the broken stream has kept. Blocks no longer than gRPC's own cleanup."""
        self._call.cancel()
        self._requests.put(None)
        self._connection.forsake(self._call)
