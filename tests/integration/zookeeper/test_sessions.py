"""Sessions: how they open, what is told of them, how they end, and that nothing blocks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordlock.backend import Put
from coordlock.errors import BackendUnavailable, Evicted
from coordlock.model.contender import Owner
from coordlock.runtime.promise import Promise
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.ports import free_port
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperServer
from tests.integration.zookeeper.conftest import BOUND, Parties, Party, new_entry

pytestmark = pytest.mark.usefixtures("no_leaks")


def client_of(party: Party) -> Any:
    """The kazoo client under a backend."""
    assert party.backend._current is not None
    return party.backend._current.session.client


class ShortSessions(ZooKeeperServer):
    """A server that grants two seconds at most."""

    def _configuration(self) -> dict[str, object]:
        return super()._configuration() | {"maxSessionTimeout": 2000}


def test_the_time_to_live_is_what_the_server_grants(tmp_path: Path, parties: Parties) -> None:
    with ShortSessions(tmp_path / "short") as server:
        party = parties(server.url_for("/x", ttl="20s"), opened=False)
        assert party.open().ttl == 2
        assert party.backend.heartbeat().result(BOUND) <= 2


def test_a_server_that_never_answers_the_handshake_does_not_hold_up_the_next(
    proxy: FaultProxy, proxied: str, zookeeper: ZooKeeper, parties: Parties
) -> None:
    """A fault test: of two servers, one accepts connections and says nothing more."""
    url = proxied.replace("zookeeper://", f"zookeeper://{zookeeper.endpoint.hosts[0]},")
    party = parties(url.replace("ttl=20s", "ttl=60s&connect_timeout=8s"), opened=False)
    proxy.black_hole()
    started = time.monotonic()
    for _ in range(4):  # the first server is a matter of chance
        party.open()
    assert time.monotonic() - started < 4 * 8


def test_a_write_whose_guard_left_with_the_session_is_refused_for_certain(
    zookeeper: ZooKeeper, root: str, parties: Parties
) -> None:
    """Else its caller would repeat it, and could never tell that nothing was done."""
    party = parties(zookeeper.url_for(root))
    _, contender, _ = party.enqueue()
    with zookeeper.kazoo(client_id=client_of(party).client_id):
        pass  # takes the session over, and closes it
    assert party.lost.wait(BOUND)
    with pytest.raises(Evicted):
        party.backend.write([Put(f"{root}-data", b"late")], [contender]).result(BOUND)
    with pytest.raises(Evicted):
        party.backend.write((), [contender]).result(BOUND)


def test_requests_fail_when_the_session_ends(
    proxy: FaultProxy, proxied: str, parties: Parties
) -> None:
    party = parties(proxied)
    proxy.black_hole()
    answer = party.backend.snapshot("q")
    closed = party.backend.close()
    with pytest.raises(BackendUnavailable):
        answer.result(1)  # at once, long before the connection is given up
    closed.result(BOUND)


def test_giving_a_session_up_for_another_ends_it_on_the_server(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(root))
    _, contender, _ = party.enqueue()
    party.open()
    eventually(lambda: kazoo.exists(contender.key) is None)
    assert party.events == []


def test_closing_says_goodbye_to_the_server(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(root, ttl="60s"))
    _, contender, _ = party.enqueue()
    party.backend.close().result(BOUND)
    # kazoo before 2.11 does not wait for the answer.
    eventually(lambda: kazoo.exists(contender.key) is None)


def test_closing_ends_the_session_where_no_thread_can_be_started(
    zookeeper: ZooKeeper, root: str, parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the exit of Python 3.12."""
    url = zookeeper.url_for(root, ttl="60s")
    one, other = parties(url), parties(url)
    one.enqueue()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        one.backend.close().result(BOUND)
    assert other.ids() == []


class TestUnreachable:
    """Opening fails with the reason, and closing is quick."""

    @pytest.fixture
    def fails(self, parties: Parties) -> Callable[[str, str], None]:
        def check(hosts: str, reason: str) -> None:
            party = parties(f"zookeeper://{hosts}/x?connect_timeout=5s", opened=False)
            with pytest.raises(BackendUnavailable, match=reason):
                party.opening().result(BOUND)
            party.backend.close().result(15)

        return check

    def test_nobody_listens(self, fails: Callable[[str, str], None]) -> None:
        port = free_port()
        fails(f"127.0.0.1:{port}", f"127.0.0.1:{port}: Connection refused")

    def test_the_name_does_not_exist(self, fails: Callable[[str, str], None]) -> None:
        fails("no-such-host.invalid", "no host name could be resolved")

    def test_another_protocol_answers(self, fails: Callable[[str, str], None]) -> None:
        with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
            fails(f"127.0.0.1:{port}", "does not answer as ZooKeeper does")

    def test_it_works_when_a_later_attempt_finds_a_server(
        self, server: ZooKeeperServer, parties: Parties
    ) -> None:
        server.stop()
        party = parties(server.url_for("/x"), opened=False)
        with pytest.raises(BackendUnavailable):
            party.opening().result(BOUND)
        server.start()
        assert party.open().id

    def test_the_next_server_is_tried(
        self, zookeeper: ZooKeeper, root: str, parties: Parties
    ) -> None:
        party = parties(
            f"zookeeper://127.0.0.1:{free_port()},{zookeeper.endpoint.hosts[0]}{root}",
            opened=False,
        )
        assert party.open().id

    def test_closing_ends_an_attempt_to_connect(self, parties: Parties) -> None:
        """A server that accepts and never answers."""
        with answering(b"") as port:
            party = parties(f"zookeeper://127.0.0.1:{port}/x?ttl=60s", opened=False)
            opening = party.opening()
            party.backend.close().result(15)
            with pytest.raises(BackendUnavailable):
                opening.result(1)

    def test_closing_does_not_wait_for_a_session_that_never_opens(
        self, parties: Parties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A fault test: another thread closes the client while it makes the session."""
        party = parties(f"zookeeper://127.0.0.1:{free_port()}/x", opened=False)
        make, closing = party.backend._new_session, list[Promise[None]]()

        def make_and_close(listener: Any) -> Any:
            session = make(listener)
            closing.append(party.backend.close())
            return session

        monkeypatch.setattr(party.backend, "_new_session", make_and_close)
        assert isinstance(party.opening().exception(BOUND), BackendUnavailable)
        closing[0].result(BOUND)


class answering:  # noqa: N801
    """A server that answers whatever comes with some bytes and is done, or never answers."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._connections: list[socket.socket] = []

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            if self._answer:
                connection.recv(1000)
                connection.sendall(self._answer)
                connection.shutdown(socket.SHUT_WR)

    def __enter__(self) -> int:
        self._thread.start()
        port: int = self._socket.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for connection in self._connections:
            connection.close()


class TestNothingBlocks:
    """The contract: whatever the state of the connection, every call returns at once."""

    COUNT = 800

    def test_a_server_that_hangs(self, server: ZooKeeperServer, parties: Parties) -> None:
        """Requests fill the network's buffers, and then wait to be sent."""
        party = parties(server.url_for("/x", ttl="60s"))
        owner = Owner("host", 1, "x" * 20_000)
        server.pause()
        answers = self.ask(lambda: party.backend.enqueue([replace(new_entry(), owner=owner)]))
        assert not any(answer.done() for answer in answers)
        server.resume()
        for answer in answers:
            assert answer.exception(BOUND) is None

    def test_no_connection(self, proxy: FaultProxy, proxied: str, parties: Parties) -> None:
        party = parties(proxied)
        proxy.refuse()
        proxy.drop_connections()
        eventually(lambda: party.events, "to be told")
        for answer in self.ask(lambda: party.backend.snapshot("q")):
            assert isinstance(answer.exception(0), BackendUnavailable)

    def ask(self, request: Callable[[], Promise[Any]]) -> list[Promise[Any]]:
        answers: list[Promise[Any]] = []

        def ask() -> None:
            answers.extend(request() for _ in range(self.COUNT))

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(BOUND)
        assert not asking.is_alive(), f"blocked after {len(answers)} requests"
        return answers


def test_no_request_of_a_live_session_is_left_pending_after_reconnecting(
    proxy: FaultProxy, proxied: str, parties: Parties
) -> None:
    """A fault test: the connection breaks again and again under load."""
    party = parties(proxied)
    answers: list[Promise[Any]] = []
    for _ in range(10):
        for _ in range(20):
            answers.append(party.backend.enqueue([new_entry()]))
            answers.append(party.backend.snapshot("q"))
        proxy.drop_connections()
        party.recovers()
    for answer in answers:
        error = answer.exception(BOUND)
        assert error is None or isinstance(error, BackendUnavailable)
