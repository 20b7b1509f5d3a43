"""The fault proxy, with real sockets at both ends, and its framers, with hand-made bytes."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import hpack
import pytest

from coordlock.testing.connection import Connection
from coordlock.testing.frames import Frame, Framer, Message
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames

TIMEOUT = 30.0


class Server:
    """Accepts connections for a test to read from and write to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT)
        self.port = int(self._listener.getsockname()[1])

    def accept(self) -> socket.socket:
        connection, _ = self._listener.accept()
        connection.settimeout(TIMEOUT)
        return connection

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as started:
        yield started


@pytest.fixture
def proxy(server: Server, no_leaks: None) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", server.port) as started:
        yield started


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT)


@pytest.fixture
def ends(server: Server, proxy: FaultProxy) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's end of one connection through the proxy, and the server's."""
    with connect(proxy) as client, server.accept() as accepted:
        yield client, accepted


Ends = tuple[socket.socket, socket.socket]


def receive(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = end.recv(size - len(data))
        if not chunk:
            raise EOFError(f"the stream ended after {data!r}")
        data += chunk
    return data


def is_silent(end: socket.socket) -> bool:
    """Whether nothing has arrived, not even an end; a look, not a wait."""
    end.setblocking(False)
    try:
        end.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        end.settimeout(TIMEOUT)
    return False


def was_reset(end: socket.socket) -> bool:
    try:
        end.recv(1)
    except ConnectionResetError:
        return True
    return False


class TestForwarding:
    def test_bytes_pass_in_both_directions_and_are_counted(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        with proxy.counting() as counts:
            client.sendall(b"question")
            assert receive(server, 8) == b"question"
            server.sendall(b"answer")
            assert receive(client, 6) == b"answer"
        assert (counts.connections, counts.sent, counts.received) == (0, 8, 6)
        assert proxy.counts().connections == 1

    def test_a_server_that_is_down_resets_the_client(self, server: Server) -> None:
        server.close()
        with (
            FaultProxy("127.0.0.1", server.port) as proxy,
            pytest.raises(ConnectionResetError),  # perhaps already while it connects
            connect(proxy) as client,
        ):
            client.recv(1)


class TestFaults:
    def test_a_black_hole_holds_everything_until_the_proxy_heals(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        proxy.black_hole()
        client.sendall(b"one")
        server.sendall(b"two")
        eventually(lambda: (proxy.counts().sent, proxy.counts().received) == (3, 3))
        assert is_silent(server)
        assert is_silent(client)
        proxy.heal()
        assert receive(server, 3) == b"one"
        assert receive(client, 3) == b"two"

    def test_a_black_hole_of_replies_lets_requests_arrive(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        proxy.replies.black_hole()
        client.sendall(b"question")
        assert receive(server, 8) == b"question"
        server.sendall(b"answer")
        eventually(lambda: proxy.counts().received == 6)
        assert is_silent(client)

    def test_a_delay_is_latency_and_not_bandwidth(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        proxy.requests.delay(0.5)
        started = time.monotonic()
        for number in range(20):
            with proxy.counting() as counts:
                client.sendall(bytes([number]))
                eventually(lambda: proxy.counts().sent > number)  # noqa: B023 - called at once
            assert counts.sent == 1
        assert receive(server, 20) == bytes(range(20))
        waited = time.monotonic() - started
        assert 0.5 <= waited < 20 * 0.5
        server.sendall(b"answer")  # replies are not delayed
        assert receive(client, 6) == b"answer"

    def test_refusing_spares_open_connections_and_ends_by_healing(
        self, server: Server, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, accepted = ends
        port = proxy.port
        proxy.refuse()
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        client.sendall(b"one")
        assert receive(accepted, 3) == b"one"
        proxy.heal()
        assert proxy.port == port
        with connect(proxy) as second, server.accept() as other:
            second.sendall(b"two")
            assert receive(other, 3) == b"two"

    def test_dropped_connections_are_reset_at_both_ends(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        proxy.drop_connections()
        assert all(was_reset(end) for end in ends)


class TestTraps:
    """Traps on bytes; those on messages are further down, with protocols."""

    def test_a_lost_reply_is_lost_after_the_server_answered(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        trap = proxy.on_bytes(b"GUID", Connection.lose_reply)
        client.sendall(b"other")
        assert receive(server, 5) == b"other"
        assert not trap.sprung
        client.sendall(b"my GUID")
        assert receive(server, 7) == b"my GUID"
        assert trap.wait().payload == b"my GUID"
        assert is_silent(client)
        server.sendall(b"done")
        assert was_reset(client)

    def test_a_lost_request_never_arrives(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        proxy.on_bytes(b"GUID", Connection.lose_request)
        client.sendall(b"my GUID")
        assert was_reset(client)
        assert was_reset(server)

    def test_a_postponed_request_arrives_when_its_sender_is_gone(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        proxy.on_bytes(b"GUID", Connection.postpone_request)
        client.sendall(b"my GUID")
        assert was_reset(client)
        assert is_silent(server)
        proxy.heal()
        assert receive(server, 7) == b"my GUID"

    def test_a_trap_springs_once_at_its_turn(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        found: list[bytes] = []
        trap = proxy.on_bytes(b"x", lambda _, message: found.append(message.payload), nth=2)
        for text in (b"x1", b"x2", b"x3"):
            client.sendall(text)
            assert receive(server, 2) == text
        assert trap.sprung
        assert found == [b"x2"]

    def test_what_an_action_raises_is_raised_by_wait(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends

        def fail(*_: object) -> None:
            raise LookupError("mine")

        trap = proxy.on_bytes(b"GUID", fail)
        client.sendall(b"GUID")
        with pytest.raises(LookupError, match="mine"):
            trap.wait()
        assert receive(server, 4) == b"GUID"

    def test_a_failing_framer_ends_its_connection_and_is_reported(self, server: Server) -> None:
        class Broken(ZooKeeperFrames):
            def requests(self, data: bytes) -> Iterator[Frame]:
                raise LookupError("mine")

        proxy = FaultProxy("127.0.0.1", server.port, Broken).start()
        with connect(proxy) as client:
            client.sendall(b"1")
            assert was_reset(client)
        with pytest.raises(LookupError, match="mine"):
            proxy.stop()


def zookeeper_request(xid: int, operation: int, payload: bytes = b"") -> bytes:
    return framed(struct.pack(">ii", xid, operation) + payload)


def zookeeper_reply(xid: int, payload: bytes = b"") -> bytes:
    return framed(struct.pack(">iqi", xid, 7, 0) + payload)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def http2(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


def grpc(payload: bytes) -> bytes:
    return b"\0" + len(payload).to_bytes(4) + payload


def messages(cut: Callable[[bytes], Iterator[Frame]], data: bytes, step: int) -> list[Message]:
    """What a framer finds in ``data``, given ``step`` bytes at a time; no byte may get lost."""
    frames = [frame for at in range(0, len(data), step) for frame in cut(data[at : at + step])]
    assert b"".join(frame.data for frame in frames) == data
    return [message for frame in frames for message in frame.messages]


@pytest.mark.parametrize("step", [1, 3, 1000])
class TestFramers:
    def test_zookeeper_messages_are_named_and_replies_belong_to_requests(self, step: int) -> None:
        framer = ZooKeeperFrames()
        asked = messages(
            framer.requests,
            framed(b"session")
            + zookeeper_request(1, 15, b"/path")
            + zookeeper_request(2, 12)
            + zookeeper_request(-2, 11)
            + zookeeper_request(3, 999),
            step,
        )
        assert asked == [
            Message("connect", None, b"session"),
            Message("create2", 1, b"/path"),
            Message("getChildren2", 2, b""),
            Message("ping", -2, b""),
            Message("operation999", 3, b""),
        ]
        answers = messages(
            framer.replies,
            framed(b"session")
            + zookeeper_reply(1, b"stat")
            + zookeeper_reply(-1, b"deleted")
            + zookeeper_reply(-2)
            + zookeeper_reply(2),
            step,
        )
        assert answers == [
            Message("connect", None, b"session"),
            Message("create2", 1, b"stat"),
            Message("event", -1, b"deleted"),
            Message("ping", -2, b""),
            Message("getChildren2", 2, b""),
        ]

    @pytest.mark.parametrize("foreign", [b"ruok", b"\x16\x03\x01\x02\x00 TLS", b"GET / HTTP/1.1"])
    @pytest.mark.parametrize("framer", [ZooKeeperFrames, GrpcFrames])
    def test_another_protocol_passes_unnamed(
        self, framer: Callable[[], Framer], foreign: bytes, step: int
    ) -> None:
        follower = framer()
        assert messages(follower.requests, foreign, step) == []
        assert messages(follower.replies, foreign, step) == []

    def test_grpc_messages_are_named_by_their_method(self, step: int) -> None:
        framer = GrpcFrames()
        encoder = hpack.Encoder()

        def path(name: str) -> bytes:
            return encoder.encode([(":method", "POST"), (":path", f"/etcdserverpb.{name}")])

        watch, txn = path("Watch/Watch"), path("KV/Txn")
        asked = messages(
            framer.requests,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + http2(4, 0, 0)
            + http2(1, 0, 1, watch[:3])  # continued
            + http2(9, 4, 1, watch[3:])
            + http2(0, 0, 1, grpc(b"one") + grpc(b"two"))
            + http2(1, 4 | 8 | 0x20, 3, b"\x02" + b"\0\0\0\0\1" + txn + b"\0\0")  # padded
            + http2(0, 0, 3, grpc(b"transaction")[:7])
            + http2(0, 1 | 8, 3, b"\x01" + grpc(b"transaction")[7:] + b"\0")
            + http2(1, 4, 5, path("Watch/Watch"))  # now from the decoder's table
            + http2(0, 0, 5, grpc(b"three")),
            step,
        )
        assert asked == [
            Message("Watch", 1, b"one"),
            Message("Watch", 1, b"two"),
            Message("Txn", 3, b"transaction"),
            Message("Watch", 5, b"three"),
        ]
        answers = messages(
            framer.replies,
            http2(4, 0, 0)
            + http2(1, 4, 3, b"\x88")
            + http2(0, 0, 3, grpc(b"result"))
            + http2(1, 5, 3, b"\x88")  # trailers after a message say nothing new
            + http2(0, 0, 1, grpc(b"event"))
            + http2(1, 5, 5, b"\x88"),  # an error: trailers only
            step,
        )
        assert answers == [
            Message("Txn", 3, b"result"),
            Message("Watch", 1, b"event"),
            Message("Watch", 5, b""),
        ]


class TestZooKeeperTraps:
    @pytest.fixture
    def proxy(self, server: Server, no_leaks: None) -> Iterator[FaultProxy]:
        with FaultProxy("127.0.0.1", server.port, ZooKeeperFrames) as started:
            yield started

    def test_only_the_reply_of_the_trapped_request_is_lost(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        trap = proxy.on_request("create*", Connection.lose_reply, containing=b"GUID")
        requests = framed(b"session") + zookeeper_request(1, 15, b"/a")
        requests += zookeeper_request(2, 15, b"/GUID") + zookeeper_request(3, 12)
        client.sendall(requests)
        assert receive(server, len(requests)) == requests
        assert trap.wait() == Message("create2", 2, b"/GUID")
        earlier = framed(b"session") + zookeeper_reply(-1) + zookeeper_reply(1)
        server.sendall(earlier)
        assert receive(client, len(earlier)) == earlier
        server.sendall(zookeeper_reply(2) + zookeeper_reply(3))
        assert was_reset(client)

    def test_an_event_can_be_trapped(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        proxy.on_reply("event", Connection.reset)
        server.sendall(framed(b"session"))
        assert receive(client, 11) == framed(b"session")
        server.sendall(zookeeper_reply(-1))
        assert was_reset(client)
