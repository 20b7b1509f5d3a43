"""The nemesis: what it plans, what it logs, and that it makes everything good again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from coordlock_faults.events import FOREVER, Reach
from coordlock_faults.history import History
from coordlock_faults.journal import Journal, read

import coordlock
from coordlock.testing.waiting import eventually
from testbed.nemesis import FAULTS, FaultMaker, Nemesis, Scene, schedule
from testbed.soak.crew import Crew
from testbed.systems import SYSTEMS
from testbed.systems.system import System

SERVICES = [
    pytest.param(
        name, marks=[getattr(pytest.mark, server), pytest.mark.xdist_group(f"faults-{name}")]
    )
    for name, server in (("etcd", "etcd"), ("postgresql", "postgres"), ("zookeeper", "zookeeper"))
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
        self.scene = Scene(system, crew, root, self.journal, compactable=lambda: 2)

    def nemesis(self, *faults: str, seed: int = 1) -> Nemesis:
        return Nemesis(self.system, self.crew, self.journal, seed, self.root, faults)

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
        for name, kind in FAULTS.items():
            if trial.system.name not in kind.systems:
                continue
            # For the operator, who needs somebody to be there.
            client.lock("a").acquire()
            fault = trial.fault(name)
            fault.begin()
            fault.end()
            begun.append(name)
            if kind.reach is not Reach.OPERATOR:
                eventually(trial.system.is_well, f"the system to be well after {name}", within=60)
            else:
                eventually(lambda: not trial.system.contenders(trial.root))
            for queue, keys in trial.system.queues(trial.root).items():
                trial.system.remove_queue(queue, keys)
    assert trial.kinds() == begun
    faults = list(trial.history().faults)
    assert all(fault.ends < FOREVER and fault.began.targets for fault in faults)
    assert len({fault.began.fault for fault in faults}) == len(faults)


# Healing


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


# Acts that take more than one try
