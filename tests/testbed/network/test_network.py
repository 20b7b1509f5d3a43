"""The network under the nemesis: real sockets, dialled by real processes that are told apart."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from testbed.network.network import Network

TIMEOUT = 20.0

# Dials, and then passes on lines: from its input to the connection, and from there to its output.
CALLER = """
import socket, sys, threading
host, port = sys.argv[1], int(sys.argv[2])
line = socket.create_connection((host, port))
print("connected", flush=True)
def listen():
    for words in line.makefile("r"):
        print(words, end="", flush=True)
    print("ended", flush=True)
threading.Thread(target=listen, daemon=True).start()
for words in sys.stdin:
    line.sendall(words.encode())
"""


class Caller:
    """A process of its own that has dialled ``port``, and whom it has reached."""

    def __init__(self, port: int, server: socket.socket, host: str = "127.0.0.1") -> None:
        self._talk, theirs = socket.socketpair()
        self._talk.settimeout(TIMEOUT)
        self._lines = self._talk.makefile("r")
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CALLER, host, str(port)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
            )
        assert self.hears() == "connected"
        self.server, _ = server.accept()
        self.server.settimeout(TIMEOUT)

    def says(self, words: str) -> None:
        self._talk.sendall(f"{words}\n".encode())

    def hears(self) -> str:
        return self._lines.readline().strip()

    def server_says(self, words: str) -> None:
        self.server.sendall(f"{words}\n".encode())

    def server_hears(self) -> str:
        return self.server.recv(4096).decode().strip()

    def server_heard_nothing(self) -> bool:
        """A look, not a wait; meaningful after something else has come through."""
        self.server.setblocking(False)
        try:
            self.server.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.server.settimeout(TIMEOUT)
        return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self._lines, self._talk, self.server):
            end.close()


Call = Callable[..., Caller]


@pytest.fixture
def network(no_leaks: None) -> Iterator[Network]:
    with Network() as started:
        yield started


@pytest.fixture
def call(network: Network) -> Iterator[Call]:
    """Starts processes, known by name, that have dialled a node; each node is linked once."""
    with ExitStack() as stack:
        servers: dict[str, socket.socket] = {}
        ports: dict[str, int] = {}

        def call(name: str | None, target: str, host: str = "127.0.0.1") -> Caller:
            if target not in servers:
                server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                server.settimeout(TIMEOUT)
                servers[target] = server
                ports[target] = network.link(target, server.getsockname()[1])
            caller = Caller(ports[target], servers[target], host)
            stack.callback(caller.close)
            if name is not None:
                network.know(name, caller.process.pid)
            return caller

        yield call


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_connection_is_of_the_process_that_dialled_it(
    network: Network, call: Call, host: str
) -> None:
    call("n1", "n2", host)
    call("c1", "n2", host)
    call(None, "n2", host)
    assert sorted(network.connections(), key=str) == [("c1", "n2"), ("n1", "n2"), (None, "n2")]


def test_what_one_sends_is_cut_while_what_it_is_sent_arrives(network: Network, call: Call) -> None:
    caller, other = call("n1", "n2"), call("n3", "n2")
    network.silence("n1", "n2")
    caller.says("lost")
    caller.server_says("hello")
    assert caller.hears() == "hello"
    other.says("not silent")
    assert other.server_hears() == "not silent"
    assert caller.server_heard_nothing()


def test_connections_to_come_are_cut_as_those_that_are_there(network: Network, call: Call) -> None:
    call("c1", "n1")
    network.isolate("n1")
    caller = call("c2", "n1")
    caller.says("late")
    caller.server_says("late, too")
    other = call("c2", "n2")
    other.says("now")
    assert other.server_hears() == "now"
    assert caller.server_heard_nothing()
    network.heal()
    assert (caller.server_hears(), caller.hears()) == ("late", "late, too")


@pytest.mark.parametrize("name", ["c1", "n1"])
def test_all_connections_of_a_party_are_reset(network: Network, call: Call, name: str) -> None:
    mine, other = call("c1", "n1"), call("c2", "n2")
    network.reset(name)
    with pytest.raises(ConnectionResetError):
        mine.server_hears()
    other.says("hello")
    assert other.server_hears() == "hello"


# ZooKeeper's elections
