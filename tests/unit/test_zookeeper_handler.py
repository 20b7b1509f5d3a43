"""The sockets under kazoo's client, without a server."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from coordlock_zookeeper.container import CreateContainer
from coordlock_zookeeper.handler import Handler
from kazoo.protocol.serialization import Create2
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from coordlock.testing.waiting import eventually


@pytest.fixture
def handler() -> Handler:
    return Handler(10.0, None, lambda: None)


def test_any_number_of_wakeups_fits(handler: Handler) -> None:
    read, write = handler.create_socket_pair()
    for _ in range(10_000):
        assert write.send(b"\0") == 1
    for _ in range(10_000):
        assert select.select([read], [], [], 0)[0]
        assert read.recv(1) == b"\0"
    assert not select.select([read], [], [], 0)[0]
    with pytest.raises(BlockingIOError):
        read.recv(1)
    read.close()
    write.close()
    with pytest.raises(OSError, match="closed"):
        write.send(b"\0")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_the_granted_timeout_is_read_along(handler: Handler, listener: socket.socket) -> None:
    tap = handler.create_connection(listener.getsockname(), "localhost", timeout=1, use_ssl=False)
    server, _ = listener.accept()
    with server, closing(tap):
        frame = struct.pack("!iiiq", 37, 0, 4321, 99) + struct.pack("!i", 16) + bytes(17)
        server.sendall(frame[:6])
        received = tap.recv(4) + tap.recv(100)
        assert handler.negotiated == 0
        server.sendall(frame[6:] + b"more")
        while len(received) < len(frame) + 4:
            received += tap.recv(100)
        assert received == frame + b"more"
        assert handler.negotiated == 4.321


def test_another_protocol_is_noticed_at_once(handler: Handler, listener: socket.socket) -> None:
    tap = handler.create_connection(listener.getsockname())
    server, _ = listener.accept()
    with server, closing(tap):
        server.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        with pytest.raises(ConnectionError, match="does not speak"):
            tap.recv(100)


def test_aborting_wakes_who_reads_and_refuses_who_connects(
    handler: Handler, listener: socket.socket
) -> None:
    tap = handler.create_connection(listener.getsockname())
    server, _ = listener.accept()
    received: list[bytes] = []
    reading = threading.Thread(target=lambda: received.append(tap.recv(1)))
    reading.start()
    handler.abort()
    eventually(lambda: received == [b""])
    reading.join()
    with server, closing(tap), pytest.raises(ConnectionAbortedError):
        handler.create_connection(listener.getsockname())


@pytest.mark.parametrize("acl", [OPEN_ACL_UNSAFE, CREATOR_ALL_ACL])
def test_a_container_is_asked_for_as_kazoo_asks_for_other_nodes(acl: list[object]) -> None:
    ours = CreateContainer("/a/größe", acl)
    assert ours.serialize() == bytes(Create2("/a/größe", b"", acl, 4).serialize())
    assert ours.type == 19
