"""How long ago all was certainly told on a stream.

Silence says nothing: the connection may be cut off, or the member, or it may lag. So now and then
the client looks. It reads a key, linearizable, which takes the member that answers to the present.
Then it asks on the stream for progress, which that same member tells when all watches of the stream
have come as far. A look that is not answered breaks the stream.

Servers have told progress a moment before the events that led to it (etcd #15220). So a look proves
that all was told that had happened by the look before.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.rpc import RANGE
from coordlock_etcd.transport import Connection, Stream

__all__ = ["Looks"]


@dataclass(eq=False, slots=True)
class _Look:
    """When it began, the revision that it found, 0 before, and whether all was told up to that."""

    began: float
    revision: int = 0
    is_done: bool = False


class Looks:
    """The looks of one client.

    Args:
        interval: seconds between looks, and within which each is to be answered.

    Attributes:
        told: a moment; what had happened by then has been told by the streams that were open.
    """

    def __init__(self, connection: Connection, interval: float) -> None:
        self.told = 0.0
        self._connection = connection
        self._interval = interval
        self._lock = threading.RLock()
        self._look: _Look | None = None
        #: When the last look began that is done.
        self._done = 0.0

    def restart(self) -> None:
        """Another stream is open: what was asked on the one before counts no more."""
        with self._lock:
            self._look, self._done = None, 0.0

    def go_on(self, stream: Stream, key: bytes) -> bool:
        """Look if it is time to, reading ``key``; whether that is so. Never blocks.

        Called several times within the interval.
        """
        now = SYSTEM_CLOCK.now()
        with self._lock:
            look = self._look
            if look is not None and now - look.began < self._interval:
                if look.revision and not look.is_done:
                    # A server tells nothing while a watch of the stream catches up.
                    stream.send(_progress())
                return False
            if look is not None and not look.is_done:
                stream.cancel()
                return False
            self._look = look = _Look(now)
        self._begin(look, stream, key)
        return True

    def progressed(self, revision: int) -> None:
        """All watches of the stream have come as far as ``revision``."""
        with self._lock:
            look = self._look
            if look is not None and not look.is_done and 0 < look.revision <= revision:
                look.is_done = True
                self.told, self._done = max(self.told, self._done), look.began

    def _begin(self, look: _Look, stream: Stream, key: bytes) -> None:
        def seen(reply: pb.RangeResponse) -> None:
            with self._lock:
                if look is self._look:
                    look.revision = reply.header.revision
                    stream.send(_progress())

        def answered(answer: Promise[None]) -> None:
            if answer.exception() is not None:
                stream.cancel()

        request = pb.RangeRequest(key=key, keys_only=True)
        timeout = min(self._connection.timeout, self._interval)
        answer = self._connection.call(RANGE, request, seen, timeout=timeout)
        answer.add_done_callback(answered)


def _progress() -> pb.WatchRequest:
    return pb.WatchRequest(progress_request=pb.WatchProgressRequest())
