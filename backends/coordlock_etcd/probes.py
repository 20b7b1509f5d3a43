"""Until when a stream has certainly delivered all changes.

Silence proves nothing: the connection may be cut off, or the member, or the member may lag. So now
and then the client probes the stream. It reads a key, linearizable, which brings the member that
answers up to date. Then it asks on the stream for progress. That same member reports it once all
watches of the stream have come as far. A probe without an answer breaks the stream.

Servers have reported progress a moment before the events that led to it (etcd #15220). So an answer
proves only that everything was delivered that had happened when the probe BEFORE it began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordlock.runtime.clock import Clock
from coordlock.runtime.promise import Promise
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.rpc import RANGE
from coordlock_etcd.transport import Connection, StreamHost

__all__ = ["Probes"]


@dataclass(eq=False, slots=True)
class _Probe:
    """When it began, the revision that its reading found, and whether progress reached that.

    The revision is 0 before the answer to the reading.
    """

    began: float
    revision: int = 0
    is_answered: bool = False


class Probes:
    """The probes of one client's stream.

    Args:
        interval: seconds between probes, and within which each is to be answered.

    Attributes:
        delivered_until: the streams have delivered all that had happened by this moment.
    """

    def __init__(
        self, connection: Connection, host: StreamHost[Any], clock: Clock, interval: float
    ) -> None:
        self.delivered_until = 0.0
        self._connection = connection
        self._host = host
        self._clock = clock
        self._interval = interval
        self._probe: _Probe | None = None
        #: When the last probe began that was answered on this stream; 0 before.
        self._answered = 0.0

    def restart(self) -> None:
        """Forget the probes of the stream before: another one is open."""
        with self._host.lock:
            self._probe, self._answered = None, 0.0

    def go_on(self, key: bytes) -> bool:
        """Begin a probe if it is time to, by reading ``key``; whether that is so. Never blocks.

        Called several times within the interval.
        """
        now = self._clock.now()
        with self._host.lock:
            probe = self._probe
            if probe is not None and now - probe.began < self._interval:
                if probe.revision and not probe.is_answered:
                    # A server reports no progress while a watch of the stream catches up.
                    self._host.send(_progress())
                return False
            if probe is not None and not probe.is_answered:
                self._host.restart()
                return False
            self._probe = probe = _Probe(now)
        self._begin(probe, key)
        return True

    def progressed(self, revision: int) -> None:
        """All watches of the stream have come as far as ``revision``."""
        with self._host.lock:
            probe = self._probe
            if probe is not None and not probe.is_answered and 0 < probe.revision <= revision:
                probe.is_answered = True
                self.delivered_until = max(self.delivered_until, self._answered)
                self._answered = probe.began

    def _begin(self, probe: _Probe, key: bytes) -> None:
        def seen(reply: pb.RangeResponse) -> None:
            with self._host.lock:
                if probe is self._probe:
                    probe.revision = reply.header.revision
                    self._host.send(_progress())

        def answered(answer: Promise[None]) -> None:
            with self._host.lock:
                if answer.exception() is not None and probe is self._probe:
                    self._host.restart()

        request = pb.RangeRequest(key=key, keys_only=True)
        timeout = min(self._connection.timeout, self._interval)
        answer = self._connection.call(RANGE, request, seen, timeout=timeout)
        answer.add_done_callback(answered)


def _progress() -> pb.WatchRequest:
    return pb.WatchRequest(progress_request=pb.WatchProgressRequest())
