"""The nemesis: what it plans, what it logs, and that it makes everything good again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from coordlock_faults.events import FOREVER, Reach
from coordlock_faults.history import History
from coordlock_faults.journal import Journal, read
from kazoo.client import KazooClient

import coordlock
from coordlock.testing.waiting import eventually
from testbed.nemesis import FAULTS, FaultMaker, Nemesis, Scene, fitting, schedule
from testbed.soak.crew import Crew
from testbed.systems import SYSTEMS
from testbed.systems.etcd import EtcdSystem
from testbed.systems.redis import RedisSentinelSystem
from testbed.systems.system import System
from testbed.systems.zookeeper import ZooKeeperSystem

SERVERS = {
    "etcd": "etcd",
    "zookeeper": "zookeeper",
    "postgresql": "postgres",
    "redis": "redis",
    "redis-sentinel": "redis",
}
SERVICES = [
    pytest.param(
        name, marks=[getattr(pytest.mark, server), pytest.mark.xdist_group(f"faults-{name}")]
    )
    for name, server in SERVERS.items()
]
CLIENT = "import time; print('ready', flush=True); time.sleep(1000)"


def state(pid: int) -> str:
    """R, S, T and so on; see proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture(scope="module", params=SERVICES)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    with SYSTEMS[request.param](tmp_path_factory.mktemp(request.param)) as system:
        yield system


@pytest.fixture
def system(shared: System) -> System:
    eventually(shared.is_well, within=60)
    return shared


@pytest.fixture
def crew(system: System, tmp_path: Path) -> Iterator[Crew]:
    network = system.network
    with Crew(
        tmp_path, lambda *_: ["-c", CLIENT], lambda _: {}, network.know, network.forget
    ) as crew:
        crew.spawn()
        crew.spawn()
        crew.await_ready()
        yield crew


class Trial:
    """A nemesis on ``system``, and what it has logged."""

    def __init__(self, system: System, crew: Crew, file: Path, root: str) -> None:
        self.system, self.crew, self.root = system, crew, root
        self._file = file
        self.journal = Journal(file, "nemesis")
        self.scene = Scene(system, crew, root, self.journal, compactable=lambda: 1)

    def nemesis(self) -> Nemesis:
        return Nemesis(self.scene, 1, ())

    def fault(self, name: str) -> FaultMaker:
        return FAULTS[name](self.scene, Random(1))

    def history(self) -> History:
        return read([self._file])

    def kinds(self) -> list[str]:
        return [fault.began.kind for fault in self.history().faults]


@pytest.fixture
def trial(system: System, crew: Crew, tmp_path: Path, root: str) -> Iterator[Trial]:
    trial = Trial(system, crew, tmp_path / "nemesis.jsonl", root)
    yield trial
    trial.nemesis().heal()
    trial.journal.close()


# What is planned


@pytest.mark.parametrize("seed", range(10))
def test_every_fault_that_fits_comes_once_before_any_comes_again(seed: int) -> None:
    fitting = sorted(name for name, fault in FAULTS.items() if "etcd" in fault.systems)
    names = [
        p.name for episode in islice(schedule(seed, FAULTS, "etcd"), 200) for p in episode.faults
    ]
    for start in range(0, len(names) - len(fitting), len(fitting)):
        assert sorted(names[start : start + len(fitting)]) == fitting


# What is done


def test_every_fault_begins_and_ends_and_leaves_the_system_well(trial: Trial) -> None:
    begun: list[str] = []
    with coordlock.connect(trial.system.direct_url(trial.root, ttl="20s")) as client:
        for name in fitting(FAULTS, trial.system.name):
            is_operators = FAULTS[name].reach is Reach.OPERATOR
            if is_operators:  # who needs somebody to be there
                client.lock("a").acquire()
            fault = trial.fault(name)
            fault.begin()
            fault.end()
            begun.append(name)
            if is_operators:
                eventually(lambda: not trial.system.contenders(trial.root))
            else:
                eventually(trial.system.is_well, f"the system to be well after {name}", within=60)
    assert trial.kinds() == begun
    faults = list(trial.history().faults)
    assert all(fault.ends < FOREVER and fault.began.targets for fault in faults)
    assert len({fault.began.fault for fault in faults}) == len(faults)


def ports(pid: int) -> set[int]:
    """Of 127.0.0.1, those that the process has dialled or listens on."""
    numbers = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            numbers.add(os.readlink(descriptor))
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in numbers:
                found.update(int(end.rpartition(":")[2], 16) for end in (fields[1], fields[2]))
    return found


def node_ports(system: System, name: str) -> set[int]:
    """On which the node listens for others and for clients."""
    if isinstance(system, EtcdSystem):
        etcd = system.nodes[name]
        return {etcd.peer_port, etcd.port}
    assert isinstance(system, ZooKeeperSystem)
    zookeeper = system.nodes[name]
    return {*zookeeper.ports, zookeeper.port}


@pytest.mark.parametrize("shared", SERVICES[:2], indirect=True)
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
    assert not system.is_well()
    system.network.heal()
    for name in system.nodes:
        system.network.reset(name)
    eventually(system.is_well)
    eventually(lambda: len({frozenset(pair) for pair in links()}) == 3, "all are linked again")
    assert not direct()


@pytest.mark.parametrize("shared", SERVICES[1:2], indirect=True)
def test_a_servers_wall_clock_jumps_by_hours_and_sessions_live_on(
    system: System, root: str
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
        with (
            coordlock.connect(system.direct_url(root, ttl="40s")) as client,
            client.lock("a") as grant,
        ):
            for wrong in (0, 5, -30, 0):
                system.clocks.clock(leader).set(wrong * 3600)
                eventually(partial(is_wrong_by, wrong))
            assert system.leader() == leader
            grant.check()
    finally:
        system.clocks.heal()
        zookeeper.stop()
        zookeeper.close()


@pytest.mark.redis
def test_two_primaries_at_once_are_logged_as_lost_data(tmp_path: Path) -> None:
    with (
        RedisSentinelSystem(tmp_path / "system") as system,
        Journal(tmp_path / "servers.jsonl", "servers") as journal,
        system.watched(journal),
    ):
        system.nodes["n1"].pause()
        eventually(lambda: system.leader() == "n2", within=30)
        system.nodes["n1"].resume()
        eventually(system.is_well, within=60)
    [fault] = read([tmp_path / "servers.jsonl"]).faults
    assert fault.began.reach is Reach.DATA
    assert fault.ends < FOREVER


# Healing


@pytest.mark.parametrize("shared", SERVICES[:3], indirect=True)
def test_heal_gets_back_from_everything_at_once(trial: Trial) -> None:
    nemesis = trial.nemesis()
    begun = [
        trial.fault(name)
        for name in ("pause-leader", "isolate-client", "pause-client", "jump-client-clock")
    ]
    for fault in begun:
        nemesis._active.append(fault)
        fault.begin()
    [paused] = begun[0].targets
    for name in trial.system.nodes:
        if name != paused:
            trial.system.kill_node(name)
    trial.system.network.isolate("n1")
    nemesis.heal()
    assert trial.system.is_well()
    assert all(state(trial.crew.pid(name)) == "S" for name in trial.crew.names())
    assert all(fault.ends < FOREVER for fault in trial.history().faults)
