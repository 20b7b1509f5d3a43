"""The backend itself, without the kernel, on real servers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from coordlock_zookeeper import ZookeeperBackend, nodes

from coordlock.backend import SessionInfo
from coordlock.backend.config import configure
from coordlock.errors import BackendUnavailable
from coordlock.model.claim import AnyClaim, Claim, Mode
from coordlock.model.contender import Contender, Entry, Snapshot
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.promise import Promise
from coordlock.testing import backend_contract
from coordlock.testing.backend_contract import BOUND as BOUND
from coordlock.testing.backend_contract import OWNER as OWNER
from coordlock.testing.backend_contract import Listener
from coordlock.testing.connection import Connection
from coordlock.testing.frames import Message
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.zookeeper import ZooKeeper, ZooKeeperServer


class Party(backend_contract.Party):
    """A party whose session is opened later, and what the backend says of it."""

    backend: ZookeeperBackend

    def __init__(self, url: str, client: object | None = None) -> None:
        self.timers = SystemTimers("coordlock-test")
        self.backend = ZookeeperBackend.configure(configure(url), client, timers=self.timers)
        self.listener = Listener()
        self.events, self.lost = self.listener.events, self.listener.ended

    def opening(self) -> Promise[SessionInfo]:
        return self.backend.open(self.listener)

    def open(self) -> SessionInfo:
        self.lost.clear()
        return self.opening().result(BOUND)

    def enqueue(
        self, queue: str = "q", claim: AnyClaim = Mode.EX
    ) -> tuple[Entry, Contender, Snapshot]:
        return super().enqueue(queue, claim)

    def ids(self, queue: str = "q") -> list[str]:
        return super().ids(queue)

    def recovers(self) -> None:
        """Wait until requests are answered again."""
        failures: list[BaseException] = []

        def beats() -> bool:
            failure = self.backend.heartbeat().exception(BOUND)
            if failure is not None:
                failures.append(failure)
            return failure is None

        try:
            eventually(beats, "a heartbeat")
        except TimeoutError as late:
            raise AssertionError(f"{self.events}; heartbeats: {failures[-1]!r}") from late


def new_entry(queue: str = "q", claim: Claim = Mode.EX) -> Entry:
    return Entry(queue, uuid.uuid4().hex, claim, OWNER)


Parties = Callable[..., Party]


@pytest.fixture
def parties() -> Iterator[Parties]:
    """Makes backends, with an open session unless ``opened=False``, and closes them."""
    made: list[Party] = []

    def make(url: str, client: object | None = None, *, opened: bool = True) -> Party:
        party = Party(url, client)
        made.append(party)
        if opened:
            party.open()
        return party

    yield make
    for closing in [party.backend.close() for party in made]:
        closing.result(BOUND)
    for party in made:
        party.timers.close()  # as a client does; its thread would end seconds later


@pytest.fixture
def proxy(zookeeper: ZooKeeper) -> Iterator[FaultProxy]:
    with FaultProxy(zookeeper.host, zookeeper.port, ZooKeeperFrames) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: FaultProxy, root: str) -> str:
    """The URL of the run's ZooKeeper through the proxy."""
    return f"zookeeper://127.0.0.1:{proxy.port}{root}?ttl=20s"


@pytest.fixture
def kazoo(zookeeper: ZooKeeper) -> Iterator[Any]:
    with zookeeper.kazoo() as kazoo:
        yield kazoo


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server of the test's own, to stop, pause and restart."""
    with ZooKeeperServer(tmp_path / "server") as server:
        yield server


def lose_a_request(
    proxy: FaultProxy, party: Party, kazoo: Any, root: str
) -> tuple[Entry, Future[str]]:
    """Enqueue once in vain; the entry, and the path of its twin, to come.

    The fault: what was sent first is looked for in vain, and takes effect before what replaces it.
    """
    entry = new_entry()
    twin: Future[str] = Future()
    proxy.on_request("create2", Connection.reset)
    with pytest.raises(BackendUnavailable):
        party.backend.enqueue([entry]).result(BOUND)
    party.recovers()

    def arrive(connection: Connection, message: Message) -> None:
        name = f"{root}/q/{nodes.stem(entry.id, entry.claim)}"
        twin.set_result(kazoo.create(name, sequence=True, makepath=True))

    proxy.on_request("create2", arrive)
    return entry, twin
