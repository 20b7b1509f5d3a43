"""The sockets under kazoo's client, without a server."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from coordlock_zookeeper.access import Access
from coordlock_zookeeper.buffered_socket import BufferedSocket
from coordlock_zookeeper.handler import Handler
from coordlock_zookeeper.io_thread import Wakeups
from coordlock_zookeeper.own_client import OwnClient
from kazoo.protocol.states import Callback

from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.log import flush
from coordlock.testing.waiting import eventually


@pytest.fixture
def handler() -> Handler:
    return Handler(10.0, None, set(), SYSTEM_CLOCK)


def is_woken(read: Wakeups) -> bool:
    return bool(select.select([read], [], [], 0)[0])


def test_any_number_of_wakeups_fits(handler: Handler) -> None:
    requests: deque[int] = deque()
    handler.requests = lambda: requests
    read, write = handler.create_socket_pair()
    assert read.falls_asleep()
    for number in range(100_000):
        requests.append(number)
        assert write.send(b"\0") == 1
    assert is_woken(read)
    read.awakes(True)
    requests.append(0)
    write.send(b"\0")
    assert not is_woken(read)
    while requests:
        assert not read.falls_asleep()
        requests.popleft()
        assert read.recv(1) == b"\0"
    assert read.falls_asleep()
    read.close()
    write.close()
    with pytest.raises(OSError, match="closed"):
        write.send(b"\0")


def test_a_request_whose_wakeup_was_interrupted_is_sent_with_the_next_one(handler: Handler) -> None:
    requests: deque[str] = deque()
    handler.requests = lambda: requests
    read, write = handler.create_socket_pair()
    assert read.falls_asleep()
    requests.append("interrupted")
    assert not is_woken(read)
    requests.append("next")
    write.send(b"\0")
    assert is_woken(read)
    read.awakes(True)
    while requests:
        assert handler.select([read], [], [], 0)[0] == [read]
        requests.popleft()
    assert handler.select([read], [], [], 0)[0] == []
    read.close()


def test_no_wakeup_is_missed(handler: Handler) -> None:
    requests: deque[int] = deque()
    handler.requests = lambda: requests
    read, write = handler.create_socket_pair()

    def ask() -> None:
        for number in range(2_000):
            requests.append(number)
            write.send(b"\0")
            while len(requests) > 1:
                time.sleep(0)

    with closing(read), ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        for number in range(2_000):
            assert handler.select([read], [], [], 30)[0] == [read], number
            while not requests:  # woken for one that was sent before it slept
                assert handler.select([read], [], [], 30)[0] == [read], number
            assert requests.popleft() == number
        asking.result(30)


def test_who_stops_a_client_second_waits_until_it_has_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        access = Access(f"127.0.0.1:{taken.getsockname()[1]}", ttl=10.0, connect_timeout=5.0)
    connection = OwnClient(access, SYSTEM_CLOCK)
    failed = threading.Event()
    connection.start(lambda: None, lambda _: failed.set())
    assert failed.wait(10)
    with ThreadPoolExecutor(2) as pool:
        for stopped in [pool.submit(connection.stop) for _ in range(2)]:
            stopped.result(30)
    assert flush(30)
    assert not caplog.records


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_the_granted_timeout_is_read_along(handler: Handler, listener: socket.socket) -> None:
    connection = handler.create_connection(
        listener.getsockname(), "localhost", timeout=1, use_ssl=False
    )
    server, _ = listener.accept()
    with server, closing(connection):
        frame = struct.pack("!iiiq", 37, 0, 4321, 99) + struct.pack("!i", 16) + bytes(17)
        server.sendall(frame[:6])
        received = connection.recv(4) + connection.recv(100)
        assert handler.negotiated == 0
        server.sendall(frame[6:] + b"more")
        while len(received) < len(frame) + 4:
            received += connection.recv(100)
        assert received == frame + b"more"
        assert handler.negotiated == 4.321


def test_another_protocol_is_noticed_at_once(handler: Handler, listener: socket.socket) -> None:
    connection = handler.create_connection(listener.getsockname())
    server, _ = listener.accept()
    with server, closing(connection):
        server.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        with pytest.raises(ConnectionError, match="does not speak"):
            connection.recv(100)


def test_aborting_wakes_who_reads_and_refuses_who_connects(
    handler: Handler, listener: socket.socket
) -> None:
    connection = handler.create_connection(listener.getsockname())
    server, _ = listener.accept()
    received: list[bytes] = []
    reading = threading.Thread(target=lambda: received.append(connection.recv(1)))
    reading.start()
    handler.abort()
    eventually(lambda: received == [b""])
    reading.join()
    with server, closing(connection), pytest.raises(ConnectionAbortedError):
        handler.create_connection(listener.getsockname())


@pytest.fixture
def pair(
    handler: Handler, listener: socket.socket
) -> Iterator[tuple[BufferedSocket, socket.socket]]:
    """A connection that has shaken hands, as kazoo has it, and the server's end of it."""
    connection = handler.create_connection(listener.getsockname())
    server, _ = listener.accept()
    with server, closing(connection):
        server.sendall(struct.pack("!iii", 37, 0, 4321))
        connection.recv(12)
        connection.setblocking(False)
        yield connection, server


def readable(handler: Handler, connection: BufferedSocket, timeout: float = 30.0) -> bool:
    return handler.select([connection], [], [], timeout)[0] == [connection]


def test_what_was_read_ahead_is_had_in_parts(
    handler: Handler, pair: tuple[BufferedSocket, socket.socket]
) -> None:
    connection, server = pair
    assert connection.pending() == 0
    server.sendall(b"0123456789")
    assert readable(handler, connection)
    eventually(lambda: connection.pending() == 10)
    server.sendall(b"abc")
    assert readable(handler, connection, 0.0)
    assert [connection.recv(4), connection.recv(4), connection.recv(4), connection.pending()] == [
        b"0123",
        b"4567",
        b"89",
        0,
    ]
    assert readable(handler, connection)
    assert connection.recv(100) == b"abc"
    assert not readable(handler, connection, 0.0)


def test_the_end_of_a_connection_comes_after_what_was_sent_before(
    handler: Handler, pair: tuple[BufferedSocket, socket.socket]
) -> None:
    connection, server = pair
    server.sendall(b"last")
    server.shutdown(socket.SHUT_WR)
    assert readable(handler, connection)
    assert connection.recv(100) == b"last"
    for _ in range(2):
        assert readable(handler, connection)
        assert connection.recv(100) == b""


def test_a_connection_that_was_reset_is_readable_and_says_so(
    handler: Handler, pair: tuple[BufferedSocket, socket.socket]
) -> None:
    connection, server = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    assert readable(handler, connection)
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            connection.recv(100)


def test_a_full_connection_is_not_writable_until_there_is_room(
    handler: Handler, pair: tuple[BufferedSocket, socket.socket]
) -> None:
    connection, server = pair
    assert handler.select([], [connection], [], 0)[1] == [connection]
    with suppress(BlockingIOError):
        while True:
            connection.send(bytes(65536))
    assert handler.select([], [connection], [], 0)[1] == []

    def there_is_room() -> bool:
        server.recv(1 << 20)
        return handler.select([], [connection], [], 0)[1] == [connection]

    eventually(there_is_room)


def test_what_is_sent_before_and_after_waking_is_waited_for(
    handler: Handler, pair: tuple[BufferedSocket, socket.socket]
) -> None:
    connection, server = pair
    requests = deque(["before"])
    handler.requests = lambda: requests
    read, write = handler.create_socket_pair()
    with closing(read):
        assert handler.select([connection, read], [], [], 30)[0] == [read]
        requests.popleft()

        def ask() -> None:
            requests.append("after")
            write.send(b"\0")

        waking = threading.Timer(0.01, ask)
        waking.start()
        assert handler.select([connection, read], [], [], 30)[0] == [read]
        waking.join()
        server.sendall(b"x")
        assert readable(handler, connection)
        assert handler.select([connection, read], [], [], 30)[0] == [connection, read]


def test_requests_do_not_keep_answers_waiting(
    handler: Handler, pair: tuple[BufferedSocket, socket.socket]
) -> None:
    connection, server = pair
    requests = deque(["one of very many"])
    handler.requests = lambda: requests
    read, _ = handler.create_socket_pair()
    with closing(read):
        server.sendall(b"x")
        eventually(lambda: connection in handler.select([connection, read], [], [], 30)[0])


def test_a_frame_is_taken_when_all_of_it_is_there(
    handler: Handler, pair: tuple[BufferedSocket, socket.socket]
) -> None:
    connection, server = pair
    frame = struct.pack("!i", 5) + b"whole"
    server.sendall(frame + frame[:6])
    assert readable(handler, connection)
    eventually(lambda: connection.pending() == 15)
    assert connection.frame() == b"whole"
    assert connection.frame() is None
    assert connection.recv(100) == frame[:6]


def test_what_fails_for_an_event_does_not_end_the_io_thread(
    handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(reason: str) -> None:
        raise ZeroDivisionError(reason)

    handler.dispatch_callback(Callback("watch", fails, ("by zero",)))
    assert flush(30)
    assert "by zero" in caplog.text


def test_a_round_of_attempts_at_all_addresses_of_a_name_ends_before_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = [(0, 0, 0, "", (f"10.0.0.{number}", 2181)) for number in range(6)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: addresses)
    client = OwnClient(Access("one.name:2181", ttl=15.0, connect_timeout=30.0), SYSTEM_CLOCK)
    assert len(client.client._connection._expand_client_hosts()) == 6
    assert client._handler._timeout * 2 * 6 <= 15.0
