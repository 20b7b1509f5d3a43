"""The fault proxy, with real sockets at both ends, and its framers, with hand-made bytes."""

from __future__ import annotations

import socket
import struct
import threading
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

    def test_more_bytes_than_any_buffer_holds_arrive_in_order(self, ends: Ends) -> None:
        client, server = ends
        sent = b"".join(struct.pack(">I", number) for number in range(4_000_000))
        writer = threading.Thread(target=client.sendall, args=(sent,))
        writer.start()
        assert receive(server, len(sent)) == sent
        writer.join(TIMEOUT)
        assert not writer.is_alive()

    def test_an_orderly_end_of_one_direction_leaves_the_other_open(self, ends: Ends) -> None:
        client, server = ends
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert receive(server, 4) == b"last"
        assert server.recv(1) == b""
        server.sendall(b"reply")
        assert receive(client, 5) == b"reply"

    def test_a_reset_of_one_end_resets_the_other(self, ends: Ends) -> None:
        client, server = ends
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert was_reset(server)

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

    def test_a_black_hole_hides_that_the_other_end_is_gone(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        proxy.black_hole()
        client.sendall(b"last")
        client.close()
        eventually(lambda: proxy.counts().sent == 4)
        assert is_silent(server)
        proxy.heal()
        assert receive(server, 4) == b"last"
        assert server.recv(1) == b""

    def test_a_black_hole_covers_connections_that_come_later(
        self, server: Server, proxy: FaultProxy
    ) -> None:
        proxy.requests.black_hole()
        with connect(proxy) as client, server.accept() as accepted:
            client.sendall(b"one")
            eventually(lambda: proxy.counts().sent == 3)
            assert is_silent(accepted)

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

    def test_bytes_that_are_delayed_less_never_overtake(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        proxy.requests.delay(0.5)
        client.sendall(b"slow")
        eventually(lambda: proxy.counts().sent == 4)
        proxy.requests.delay(0)
        client.sendall(b"fast")
        assert receive(server, 8) == b"slowfast"

    def test_healing_delivers_what_a_delay_holds(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        proxy.delay(3600)
        client.sendall(b"one")
        eventually(lambda: proxy.counts().sent == 3)
        proxy.heal()
        assert receive(server, 3) == b"one"

    def test_a_cut_closes_both_ends_after_so_many_bytes(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        proxy.requests.cut_after(5)
        client.sendall(b"123")
        assert receive(server, 3) == b"123"
        client.sendall(b"45678")
        assert receive(server, 2) == b"45"
        assert server.recv(1) == b""
        assert client.recv(1) == b""

    def test_a_cut_spares_the_next_connection(
        self, server: Server, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, _ = ends
        proxy.requests.cut_after(0)
        client.sendall(b"1")
        assert client.recv(1) == b""
        with connect(proxy) as second, server.accept() as accepted:
            second.sendall(b"12345678")
            assert receive(accepted, 8) == b"12345678"

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

    def test_dropped_connections_may_end_in_order(self, proxy: FaultProxy, ends: Ends) -> None:
        proxy.drop_connections(reset=False)
        assert [end.recv(1) for end in ends] == [b"", b""]

    def test_losing_replies_lets_requests_arrive_and_then_resets(
        self, server: Server, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, accepted = ends
        with proxy.losing_replies():
            client.sendall(b"create")
            assert receive(accepted, 6) == b"create"
            accepted.sendall(b"done")
            eventually(lambda: proxy.counts().received == 4)
        assert was_reset(client)
        with connect(proxy) as second, server.accept() as other:
            other.sendall(b"hello")
            assert receive(second, 5) == b"hello"

    def test_a_stopped_proxy_resets_and_frees_its_port(self, server: Server) -> None:
        with FaultProxy("127.0.0.1", server.port) as proxy:
            client = connect(proxy)
            accepted = server.accept()
        with client, accepted:
            assert was_reset(client)
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        proxy.stop()


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

    def test_bytes_are_found_across_writes(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        trap = proxy.on_bytes(b"GUID", Connection.black_hole)
        client.sendall(b"my GU")
        assert receive(server, 5) == b"my GU"
        client.sendall(b"ID")
        trap.wait()
        assert is_silent(server)
        proxy.heal()
        assert receive(server, 2) == b"ID"

    def test_a_trap_springs_once_at_its_turn(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        found: list[bytes] = []
        trap = proxy.on_bytes(b"x", lambda _, message: found.append(message.payload), nth=2)
        for text in (b"x1", b"x2", b"x3"):
            client.sendall(text)
            assert receive(server, 2) == text
        assert trap.sprung
        assert found == [b"x2"]

    def test_a_healed_proxy_has_no_traps(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        trap = proxy.on_bytes(b"GUID", Connection.reset)
        proxy.heal()
        client.sendall(b"GUID")
        assert receive(server, 4) == b"GUID"
        assert not trap.sprung

    def test_an_action_may_set_faults_of_the_proxy(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        trap = proxy.on_bytes(b"GUID", lambda *_: proxy.black_hole())
        client.sendall(b"GUID")
        trap.wait()
        assert is_silent(server)

    def test_what_an_action_raises_is_raised_by_wait(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends

        def fail(*_: object) -> None:
            raise LookupError("mine")

        trap = proxy.on_bytes(b"GUID", fail)
        client.sendall(b"GUID")
        with pytest.raises(LookupError, match="mine"):
            trap.wait()
        assert receive(server, 4) == b"GUID"

    def test_waiting_for_what_never_comes_ends(self, proxy: FaultProxy) -> None:
        with pytest.raises(TimeoutError):
            proxy.on_bytes(b"GUID", Connection.reset).wait(timeout=0.01)

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

    def test_a_reply_is_left_out_once_and_the_connection_goes_on(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        trap = proxy.on_request("create*", Connection.omit_reply)
        requests = framed(b"session") + zookeeper_request(1, 15) + zookeeper_request(2, 12)
        client.sendall(requests)
        assert receive(server, len(requests)) == requests
        assert trap.wait().number == 1
        others = framed(b"session"), zookeeper_reply(2), zookeeper_reply(1)
        server.sendall(others[0] + zookeeper_reply(1) + others[1] + others[2])
        assert receive(client, len(b"".join(others))) == b"".join(others)

    def test_a_lost_request_is_lost_alone(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        proxy.on_request("delete", Connection.lose_request)
        client.sendall(framed(b"session") + zookeeper_request(1, 15))
        assert receive(server, 11 + 12) == framed(b"session") + zookeeper_request(1, 15)
        client.sendall(zookeeper_request(2, 2))
        assert was_reset(client)
        assert was_reset(server)

    def test_a_postponed_request_arrives_at_heal_and_its_reply_nowhere(
        self, proxy: FaultProxy, ends: Ends
    ) -> None:
        client, server = ends
        client.sendall(framed(b"session"))
        assert receive(server, 11) == framed(b"session")
        proxy.on_request("create2", Connection.postpone_request)
        client.sendall(zookeeper_request(1, 15, b"/late"))
        assert was_reset(client)
        # Read and dropped, as there is nobody to have it.
        server.sendall(framed(b"session") + zookeeper_reply(-1))
        eventually(lambda: proxy.counts().replies["event"] == 1)
        assert is_silent(server)
        proxy.heal()
        late = zookeeper_request(1, 15, b"/late")
        assert receive(server, len(late)) == late
        server.sendall(zookeeper_reply(1))
        assert was_reset(server)

    def test_an_event_can_be_trapped(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        proxy.on_reply("event", Connection.reset)
        server.sendall(framed(b"session"))
        assert receive(client, 11) == framed(b"session")
        server.sendall(zookeeper_reply(-1))
        assert was_reset(client)

    def test_requests_and_replies_are_counted_by_kind(self, proxy: FaultProxy, ends: Ends) -> None:
        client, server = ends
        with proxy.counting() as counts:
            client.sendall(framed(b"session") + zookeeper_request(1, 15))
            receive(server, 11 + 12)
            server.sendall(framed(b"session") + zookeeper_reply(1))
            receive(client, 11 + 20)
        assert counts.requests == {"connect": 1, "create2": 1}
        assert counts.replies == {"connect": 1, "create2": 1}
