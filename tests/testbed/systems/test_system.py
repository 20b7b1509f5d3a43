"""The systems under the nemesis: real clusters, each link of which goes through the network."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import coordlock
from coordlock.testing.waiting import eventually
from testbed.systems import SYSTEMS
from testbed.systems.etcd import EtcdSystem
from testbed.systems.system import System
from testbed.systems.zookeeper import ZooKeeperSystem

SERVICES = [
    pytest.param(
        name, marks=[getattr(pytest.mark, name), pytest.mark.xdist_group(f"faults-{name}")]
    )
    for name in ("etcd", "zookeeper")
]


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, System]]:
    """Those that run already."""
    running: dict[str, System] = {}
    try:
        yield running
    finally:
        for system in running.values():
            system.__exit__()


@pytest.fixture(params=SERVICES)
def system(
    request: pytest.FixtureRequest,
    systems: dict[str, System],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[System]:
    """One that is well, and gets well again."""
    name: str = request.param
    if name not in systems:
        systems[name] = SYSTEMS[name](tmp_path_factory.mktemp(name)).__enter__()
    system = systems[name]
    eventually(system.is_well, within=60)
    yield system
    system.network.heal()
    system.clocks.heal()
    for name, node in system.nodes.items():
        if node.is_running:
            node.resume()
        else:
            system.start_node(name)


@pytest.fixture
def ttl() -> str:
    """Longer than a cluster takes to restart on a busy machine."""
    return "40s"


@pytest.fixture
def client(system: System, root: str, ttl: str) -> Iterator[coordlock.Client]:
    """One that goes through the network, as c1."""
    system.network.know("c1", os.getpid())
    with coordlock.connect(system.url(root, ttl=ttl)) as client:
        yield client
    system.network.forget("c1")


def ports(pid: int) -> set[int]:
    """Of 127.0.0.1, those that the process has dialled or listens on."""
    numbers = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            numbers.add(os.readlink(descriptor))
        except OSError:
            continue
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in numbers:
                found.update(int(end.rpartition(":")[2], 16) for end in (fields[1], fields[2]))
    return found


def test_nodes_reach_each_other_through_the_network_only(system: System) -> None:
    def links() -> set[tuple[str | None, str | None]]:
        return {pair for pair in system.network.connections() if pair[0] in system.nodes}

    def direct() -> set[tuple[str, str]]:
        """Who has a connection to a port on which another one listens."""
        listening = {name: node_ports(system, name) for name in system.nodes}
        return {
            (name, other)
            for name, node in system.nodes.items()
            for other in system.nodes
            if other != name and ports(node.pid) & listening[other]
        }

    assert links()
    assert not direct()
    # And when they have elected another leader, and have been without connections.
    leader = system.leader()
    assert leader
    system.network.isolate(leader)
    eventually(lambda: system.leader() not in (leader, None), "another leader")
    system.network.heal()
    for name in system.nodes:
        system.network.reset(name)
    eventually(system.is_well)
    eventually(lambda: len({frozenset(pair) for pair in links()}) == 3, "all are linked again")
    assert not direct()


def node_ports(system: System, name: str) -> set[int]:
    """On which the node listens for others and for clients."""
    if isinstance(system, EtcdSystem):
        etcd = system.nodes[name]
        return {etcd.peer_port, etcd.port}
    assert isinstance(system, ZooKeeperSystem)
    zookeeper = system.nodes[name]
    return {*zookeeper.ports, zookeeper.port}


@pytest.mark.parametrize("way", ["both ways", "what it sends", "what it is sent"])
def test_a_leader_that_is_cut_off_is_followed_by_another(system: System, way: str) -> None:
    leader = system.leader()
    assert leader
    for name in system.nodes:
        if way != "what it is sent":
            system.network.silence(leader, name)
        if way != "what it sends":
            system.network.silence(name, leader)
    eventually(lambda: system.leader() not in (leader, None), "another leader")
    assert not system.is_well()
    system.network.heal()
    eventually(system.is_well)


# The operator


# Wall clocks


@pytest.mark.parametrize("system", SERVICES[1:], indirect=True)
def test_a_servers_wall_clock_jumps_by_hours_and_sessions_live_on(
    system: System, client: coordlock.Client, root: str
) -> None:
    zookeeper = KazooClient(system.direct_url("").partition("//")[2])
    zookeeper.start()
    leader = system.leader()
    assert leader

    def is_wrong_by(hours: int) -> bool:
        """Whether the leader is wrong by that: transactions bear the time that it has."""
        path, stat = zookeeper.create("/time-", ephemeral=True, sequence=True, include_data=True)
        now = time.time()
        zookeeper.delete(path)
        return round((float(stat.ctime) / 1000 - now) / 3600) == hours

    try:
        with client.lock("a") as grant:
            for wrong in (0, 5, -30, 0):
                system.clocks.clock(leader).set(wrong * 3600)
                eventually(partial(is_wrong_by, wrong))
            assert system.leader() == leader
            grant.check()
    finally:
        zookeeper.stop()
        zookeeper.close()
