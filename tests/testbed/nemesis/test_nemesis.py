"""The nemesis: what it plans, what it logs, and that it makes everything good again."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import cast

import pytest
from coordlock_faults.events import FOREVER, Reach
from coordlock_faults.history import History
from coordlock_faults.journal import Journal, read

import coordlock
from coordlock.testing.waiting import eventually
from testbed.nemesis import FAULTS, FaultMaker, Nemesis, Scene, schedule
from testbed.nemesis.operators import RemoveQueue
from testbed.soak.crew import Crew
from testbed.systems import SYSTEMS
from testbed.systems.system import System, Uncertain

SERVICES = [
    pytest.param(
        name, marks=[getattr(pytest.mark, name), pytest.mark.xdist_group(f"faults-{name}")]
    )
    for name in ("etcd", "zookeeper")
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


@pytest.mark.parametrize("service", SYSTEMS)
def test_the_plan_is_decided_by_the_seed(service: str) -> None:
    def plan(seed: int) -> list[object]:
        return list(islice(schedule(seed, FAULTS, service), 50))

    assert plan(1) == plan(1) != plan(2)


@pytest.mark.parametrize("seed", range(10))
def test_every_fault_that_fits_comes_once_before_any_comes_again(seed: int) -> None:
    fitting = sorted(name for name, fault in FAULTS.items() if "etcd" in fault.systems)
    names = [
        p.name for episode in islice(schedule(seed, FAULTS, "etcd"), 200) for p in episode.faults
    ]
    for start in range(0, len(names) - len(fitting), len(fitting)):
        assert sorted(names[start : start + len(fitting)]) == fitting


@pytest.mark.parametrize("seed", range(10))
def test_two_at_once_never_strike_the_same(seed: int) -> None:
    episodes = list(islice(schedule(seed, FAULTS, "zookeeper"), 200))
    pairs = [episode.faults for episode in episodes if len(episode.faults) > 1]
    assert pairs
    for first, second in pairs:
        assert FAULTS[first.name].area is not FAULTS[second.name].area
        assert second.after <= first.seconds
    assert all(episode.calm > 0 for episode in episodes)


def test_faults_of_other_services_are_left_out() -> None:
    assert list(schedule(1, ["compact"], "zookeeper")) == []
    assert next(schedule(1, ["compact", "kill-client"], "zookeeper")).faults[0].name == (
        "kill-client"
    )


def test_pauses_and_partitions_are_sometimes_shorter_and_sometimes_longer_than_a_lease() -> None:
    planned = [
        one
        for episode in islice(schedule(1, ["pause-client", "isolate-leader"], "etcd"), 100)
        for one in episode.faults
    ]
    for name in ("pause-client", "isolate-leader"):
        times = [one.seconds for one in planned if one.name == name]
        assert min(times) < 2
        assert max(times) > 4


def test_the_catalogue_touches_all_that_may_be_touched() -> None:
    assert {fault.reach for fault in FAULTS.values()} == set(Reach)
    assert all(name == fault.name for name, fault in FAULTS.items())


def test_a_fault_that_does_not_exist_is_an_error_that_names_those_that_do(trial: Trial) -> None:
    with pytest.raises(ValueError, match=r"no such fault: meteor.*kill-leader"):
        trial.nemesis("meteor")


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


def test_a_run_begins_and_ends_what_was_planned(trial: Trial) -> None:
    nemesis = trial.nemesis("reset-client", "slow-follower", "pause-client")
    planned = [
        one.name
        for episode in islice(
            schedule(1, ["reset-client", "slow-follower", "pause-client"], trial.system.name), 20
        )
        for one in episode.faults
    ]
    nemesis.run(4)
    kinds = trial.kinds()
    assert kinds
    assert kinds == planned[: len(kinds)]
    assert all(fault.ends < FOREVER for fault in trial.history().faults)
    assert [state(trial.crew.pid(name)) for name in trial.crew.names()] == ["S", "S"]


def test_without_faults_a_run_is_calm(trial: Trial) -> None:
    trial.nemesis().run(0.1)
    assert trial.kinds() == []


def test_no_fault_begins_before_the_system_is_well_again(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    nemesis = trial.nemesis("reset-client")
    with monkeypatch.context() as patch:
        patch.setattr(trial.system, "is_well", lambda: False)
        nemesis.run(0.3)
        assert trial.kinds() == []

    def begins() -> list[str]:
        nemesis.run(0.3)
        return trial.kinds()

    eventually(begins)
    assert set(trial.kinds()) == {"reset-client"}


@pytest.mark.parametrize("how", ["leader", "follower"])
def test_a_paused_node_stands_still_until_the_fault_ends(trial: Trial, how: str) -> None:
    fault = trial.fault(f"pause-{how}")
    fault.begin()
    [name] = fault.targets
    eventually(lambda: state(trial.system.nodes[name].pid) == "T")
    assert not trial.system.is_well()
    fault.end()
    eventually(trial.system.is_well)


def test_roles_are_those_at_the_time(trial: Trial) -> None:
    leader = trial.system.leader()
    one, other = trial.fault("kill-leader"), trial.fault("kill-follower")
    assert one.choose() == (leader,)
    assert other.choose() != (leader,)


def test_a_killed_client_is_replaced_by_one_with_another_name(trial: Trial) -> None:
    fault = trial.fault("kill-client")
    fault.begin()
    [killed] = fault.targets
    assert len(trial.crew.names()) == 2
    assert killed not in trial.crew.names()
    assert "c3" in trial.crew.names()
    [logged] = trial.history().faults
    assert (logged.began.reach, logged.began.targets) == (Reach.KILLED, (killed,))


def test_nobody_to_strike_is_no_fault(trial: Trial) -> None:
    trial.fault("remove-contender").begin()
    assert trial.kinds() == []


def test_a_removed_contender_is_named_and_no_other(trial: Trial) -> None:
    with coordlock.connect(trial.system.direct_url(trial.root, ttl="20s")) as client:
        client.lock("a").acquire()
        client.lock("b").acquire()
        before = trial.system.contenders(trial.root)
        trial.fault("remove-contender").begin()
        [left] = trial.system.contenders(trial.root)
        [fault] = trial.history().faults
        assert (*fault.began.targets, left) in (tuple(before), tuple(reversed(before)))
        assert fault.began.reach is Reach.OPERATOR


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


def test_heal_gets_back_from_a_run_that_was_interrupted(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    nemesis = trial.nemesis("kill-leader")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FAULTS["kill-leader"], "undo", interrupt)
    with pytest.raises(KeyboardInterrupt):
        nemesis.run(10)
    nemesis.heal()
    assert trial.system.is_well()
    assert trial.kinds() == ["kill-leader"]
    assert all(fault.ends < FOREVER for fault in trial.history().faults)


def test_a_paused_process_that_was_killed_is_restarted(trial: Trial) -> None:
    nemesis = trial.nemesis()
    fault = trial.fault("pause-leader")
    nemesis._active.append(fault)
    fault.begin()
    os.kill(trial.system.nodes[fault.targets[0]].pid, signal.SIGKILL)
    eventually(lambda: not trial.system.nodes[fault.targets[0]].is_running)
    fault.end()
    nemesis.heal()
    assert trial.system.is_well()


def test_a_node_that_ended_by_itself_is_restarted_and_in_the_history(trial: Trial) -> None:
    os.kill(trial.system.nodes["n2"].pid, signal.SIGKILL)
    eventually(lambda: not trial.system.nodes["n2"].is_running)
    trial.nemesis().heal()
    assert trial.system.is_well()
    [fault] = trial.history().faults
    assert (fault.began.kind, fault.began.targets) == ("ended-by-itself", ("n2",))


def test_an_act_without_an_answer_is_over_when_everything_is_healed(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gives_no_answer(*_: object) -> None:
        raise Uncertain("as when the leader is paused")

    monkeypatch.setattr(trial.system, "remove", gives_no_answer)
    with coordlock.connect(trial.system.direct_url(trial.root, ttl="20s")) as client:
        client.lock("a").acquire()
        nemesis = trial.nemesis("remove-contender")
        nemesis.run(0.5)
        assert {fault.ends for fault in trial.history().faults} == {FOREVER}
        nemesis.heal()
        assert all(fault.ends < FOREVER for fault in trial.history().faults)


# Acts that take more than one try


class BusyQueue:
    """A queue into which somebody comes whenever it was emptied, for some times."""

    def __init__(self, comers: list[str]) -> None:
        self.there = ["first", "second"]
        self.comers = comers
        self.deleted: list[str] = []

    def queues(self, _root: str) -> dict[str, list[str]]:
        return {"/q": list(self.there)} if self.there else {}

    def remove(self, keys: Collection[str]) -> None:
        self.deleted += keys
        self.there = [key for key in self.there if key not in keys]

    def remove_queue(self, _queue: str, keys: Collection[str]) -> bool:
        self.deleted += keys
        self.there = [self.comers.pop(0)] if self.comers else []
        return not self.there


def test_a_queue_is_removed_in_as_many_acts_as_it_takes_each_of_which_names_its_own(
    tmp_path: Path,
) -> None:
    queue = BusyQueue(["third", "fourth"])
    file = tmp_path / "nemesis.jsonl"
    with Journal(file, "nemesis") as journal:
        scene = Scene(cast(System, queue), cast(Crew, None), "/r", journal)
        RemoveQueue(scene, Random(1)).begin()
    assert queue.deleted == ["first", "second", "third", "fourth"]
    faults = list(read([file]).faults)
    assert [fault.began.targets for fault in faults] == [
        ("first", "second"),
        ("third",),
        ("fourth",),
    ]
    assert all(fault.ends < FOREVER for fault in faults)


def test_a_long_queue_is_removed_by_acts_that_fit_into_a_line_each(tmp_path: Path) -> None:
    queue = BusyQueue([])
    queue.there = [f"/q/{'x' * 100}-{number}" for number in range(60)]
    expected = list(queue.there)
    file = tmp_path / "nemesis.jsonl"
    with Journal(file, "nemesis") as journal:
        RemoveQueue(Scene(cast(System, queue), cast(Crew, None), "/r", journal), Random(1)).begin()
    assert queue.deleted == expected
    named = [target for fault in read([file]).faults for target in fault.began.targets]
    assert named == expected
