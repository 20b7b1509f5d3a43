"""The sockets under kazoo's client, without a server."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from coordlock_zookeeper.access import Access
from coordlock_zookeeper.buffered_socket import BufferedSocket
from coordlock_zookeeper.handler import Handler
from coordlock_zookeeper.own_client import OwnClient
from kazoo.protocol.states import Callback

from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.log import flush
from coordlock.testing.waiting import eventually


@pytest.fixture
def handler() -> Handler:
    return Handler(10.0, None, set(), SYSTEM_CLOCK)


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
