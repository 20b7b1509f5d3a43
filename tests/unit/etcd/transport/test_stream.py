"""The thread of a stream: what it says of a stream that broke."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from unittest.mock import Mock

from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.errors import WatchRefused
from coordlock_etcd.transport import stream
from coordlock_etcd.transport.stream import StreamHost

from coordlock.errors import CoordlockError


class User:
    """Watches two keys, of which it may read the first alone."""

    def __init__(self) -> None:
        connection = Mock(login=None)
        connection.cluster.current.channel.stream_stream.return_value = Refusing
        self.host: StreamHost[str] = StreamHost(connection, "stream", self)
        self.said: list[CoordlockError | None] = []
        self.has_said = Event()

    def needs_stream(self) -> bool:
        return True

    def opened(self) -> None:
        for key in (b"mine", b"theirs"):
            self.host.watch("target", key, b"")

    def received(self, response: pb.WatchResponse) -> None:
        pass

    def broke(self, error: CoordlockError | None) -> None:
        self.said.append(error)
        if len(self.said) == 3:
            self.has_said.set()


class Refusing:
    """A stream on which etcd files the first watch, and refuses the second."""

    def __init__(self, requests: Iterator[pb.WatchRequest], metadata: object) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[pb.WatchResponse]:
        for request, refused in zip(self._requests, (False, True), strict=False):
            id = request.create_request.watch_id
            yield pb.WatchResponse(watch_id=id, created=True, canceled=refused)

    def cancel(self) -> None:
        pass


def test_a_right_to_one_of_several_keys_that_is_gone_is_said_and_asked_for_ever_less_often() -> (
    None
):
    """The fault: the watch that was filed hid it, so it logged in anew ten times a second."""
    user = User()
    with user.host.lock:
        user.host.start()
    try:
        assert user.has_said.wait(30)
    finally:
        user.host.close()
        user.host.join(30)
    # A new login may mend the first; the others put the session in doubt.
    assert user.said[0] is None
    assert all(isinstance(error, WatchRefused) for error in user.said[1:])
    assert user.host._delay > 2 * stream._BACKOFF_S[0]
