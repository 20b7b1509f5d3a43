"""The fault proxy, with real sockets at both ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from coordlock.testing.connection import Connection
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually

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
