"""The systems under the nemesis: real clusters, each link of which goes through the network."""

from __future__ import annotations

import os
import re
import signal
import subprocess
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
from testbed.systems.system import System, Uncertain
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


def keys(client: coordlock.Client, lock: str) -> list[str]:
    """Its contenders, in order."""
    return [standing.contender.key for standing in client.admin.contenders(lock)]


def follower(system: System) -> str:
    leader = system.leader()
    return next(name for name in system.nodes if name != leader)


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


def test_a_system_that_has_started_is_well_and_led_by_one_node(system: System) -> None:
    assert system.is_well()
    assert system.leader() in system.nodes
    assert list(system.nodes) == ["n1", "n2", "n3"]
    [version] = system.versions().values()
    assert re.fullmatch(r"3\.\d+\.\d+", version)


def test_clients_go_through_the_network_and_observers_past_it(
    system: System, root: str, ttl: str
) -> None:
    system.network.know("c1", os.getpid())

    def dialled() -> set[tuple[str | None, str | None]]:
        return {pair for pair in system.network.connections() if pair[0] == "c1"}

    with coordlock.connect(system.url(root, ttl=ttl)) as client, client.lock("x"):
        assert dialled() <= {("c1", name) for name in system.nodes}
        assert dialled()
    eventually(lambda: not dialled())
    with coordlock.connect(system.direct_url(root, ttl=ttl)) as client, client.lock("x"):
        assert not dialled()
    system.network.forget("c1")


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


@pytest.mark.parametrize("ttl", ["4s"])
def test_a_client_whose_sending_is_cut_loses_its_session_by_its_own_deadline(
    system: System, client: coordlock.Client
) -> None:
    grant = client.lock("x").acquire()
    system.network.silence("c1", None)
    assert grant.lost.wait(30)


@pytest.mark.parametrize("state", ["killed", "paused"])
def test_a_system_with_a_node_that_does_not_answer_is_not_well(system: System, state: str) -> None:
    name = follower(system)
    if state == "killed":
        system.kill_node(name)
    else:
        system.nodes[name].pause()
    assert not system.is_well()
    if state == "killed":
        system.start_node(name)
    else:
        system.nodes[name].resume()
    eventually(system.is_well)


def test_a_paused_node_can_be_killed_and_started(system: System) -> None:
    leader = system.leader()
    assert leader
    system.nodes[leader].pause()
    system.kill_node(leader)
    system.start_node(leader)
    eventually(system.is_well)


def test_a_node_that_ended_by_itself_can_be_started(system: System) -> None:
    name = follower(system)
    os.kill(system.nodes[name].pid, signal.SIGKILL)
    eventually(lambda: not system.nodes[name].is_running)
    assert not system.is_well()
    system.start_node(name)
    eventually(system.is_well)


def test_data_survive_a_restart_of_all_nodes(
    system: System, client: coordlock.Client, root: str
) -> None:
    with client.lock("x"):
        before = system.contenders(root)
        assert len(before) == 1
        for name in system.nodes:
            system.kill_node(name)
        for name in system.nodes:
            system.start_node(name)
        eventually(system.is_well)
        assert system.contenders(root) == before


# The operator


def test_contenders_are_listed_by_queue(
    system: System, client: coordlock.Client, root: str
) -> None:
    assert system.queues(root) == {}
    with client.lock("a"), client.lock("b/c"):
        queues = system.queues(root)
        assert len(queues) == 2
        for queue, [key] in queues.items():
            assert key.startswith(queue)
        assert sorted(system.contenders(root)) == sorted(keys(client, "a") + keys(client, "b/c"))


def test_one_contender_is_removed_and_its_holder_told(
    system: System, client: coordlock.Client, root: str
) -> None:
    removed, kept = client.lock("a").acquire(), client.lock("b").acquire()
    system.remove(keys(client, "a"))
    assert removed.lost.wait(30)
    system.remove(keys(client, "a"))  # it is gone; that is no error
    kept.check()


def test_a_queue_is_removed(system: System, client: coordlock.Client, root: str) -> None:
    removed, kept = client.lock("a").acquire(), client.lock("b").acquire()
    [queue] = (queue for queue, there in system.queues(root).items() if there == keys(client, "a"))
    assert system.remove_queue(queue, keys(client, "a"))
    assert removed.lost.wait(30)
    assert queue not in system.queues(root)
    kept.check()


@pytest.mark.parametrize("system", SERVICES[1:], indirect=True)
def test_a_queue_that_somebody_has_come_into_is_not_removed(
    system: System, client: coordlock.Client, root: str
) -> None:
    with client.lock("a") as kept:
        [queue] = system.queues(root)
        assert not system.remove_queue(queue, [])
        kept.check()


@pytest.mark.parametrize("system", SERVICES[:1], indirect=True)
def test_a_lease_is_revoked_and_all_its_contenders_gone(
    system: EtcdSystem, client: coordlock.Client, root: str
) -> None:
    grants = client.lock("a").acquire(), client.lock("b").acquire()
    [session] = system.sessions(root)
    assert re.fullmatch("[0-9a-f]{16}", session)
    system.revoke(session)
    assert system.contenders(root) == []
    assert all(grant.lost.wait(30) for grant in grants)
    system.revoke(session)  # it is gone; that is no error


@pytest.mark.parametrize("system", SERVICES[:1], indirect=True)
def test_history_is_compacted_and_a_node_defragmented(
    system: EtcdSystem, client: coordlock.Client
) -> None:
    with client.lock("a") as grant:
        system.compact(grant.token)
        system.compact(grant.token)
        with pytest.raises(subprocess.CalledProcessError) as failed:
            system.nodes["n1"].etcdctl("get", "x", f"--rev={grant.token - 1}")
        assert "compacted" in failed.value.stderr
        system.defragment("n1")
        grant.check()


def test_without_a_majority_the_operator_gets_no_answer(system: System, root: str) -> None:
    for name in ("n1", "n2"):
        system.kill_node(name)
    with pytest.raises(Uncertain):
        system.contenders(root)


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
