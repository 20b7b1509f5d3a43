"""The sockets under kazoo's client, without a server."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from coordlock_zookeeper.access import Access
from coordlock_zookeeper.connection import Connection
from coordlock_zookeeper.handler import Handler
from coordlock_zookeeper.own_client import OwnClient
from kazoo.protocol.states import Callback

from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.log import flush
from coordlock.testing.waiting import eventually


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def connected(listener: socket.socket) -> Iterator[tuple[Connection, socket.socket]]:
    """A connection as kazoo has it after the handshake, and the server's end of it."""
    host, port = listener.getsockname()
    client = OwnClient(Access(f"{host}:{port}", ttl=10.0, connect_timeout=5.0), SYSTEM_CLOCK)
    connection = client.client._connection
    connection._read_sock, connection._write_sock = connection.handler.create_socket_pair()
    connection._socket = connection.handler.create_connection((host, port))
    connection._socket.setblocking(False)
    server, _ = listener.accept()
    with server, closing(connection._socket), closing(connection._read_sock):
        yield connection, server
    connection._write_sock.close()


def test_no_wakeup_is_missed(
    connected: tuple[Connection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, _ = connected
    connection._sending.acquire()  # as kazoo's loop begins
    monkeypatch.setattr(connection, "send_now", lambda *_: False)
    requests: deque[int] = connection.client._queue

    def ask() -> None:
        for number in range(2_000):
            requests.append(number)
            connection.announce()
            while len(requests) > 1:
                time.sleep(0)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        for number in range(2_000):
            assert connection.wait(30) == [connection._read_sock], number
            assert requests.popleft() == number
        asking.result(30)


def test_requests_do_not_keep_answers_waiting(
    connected: tuple[Connection, socket.socket],
) -> None:
    connection, server = connected
    connection.client._queue.append("one of very many")
    server.sendall(b"x")
    eventually(lambda: connection._socket in connection.wait(30))


def test_what_fails_for_an_event_does_not_end_the_io_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = Handler(10.0, None, SYSTEM_CLOCK)

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
    assert client._handler.patience * 2 * 6 <= 15.0
