"""Redis under the nemesis: each fault leaves it well, and two primaries at once are logged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from coordlock_faults.events import FOREVER, Reach
from coordlock_faults.journal import Journal, read

from coordlock.testing.waiting import eventually
from testbed.nemesis import FAULTS, Scene, fitting
from testbed.soak.crew import Crew
from testbed.systems.redis import RedisSentinelSystem, RedisSystem
from tests.testbed.nemesis.test_nemesis import CLIENT

pytestmark = [pytest.mark.redis, pytest.mark.faults]


@pytest.fixture(params=[RedisSystem, RedisSentinelSystem], ids=lambda system: str(system.name))
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisSystem]:
    with request.param(tmp_path / "system") as system:
        yield system


@pytest.mark.long
def test_every_fault_begins_and_ends_and_leaves_the_system_well(
    system: RedisSystem, tmp_path: Path, root: str
) -> None:
    file, network = tmp_path / "nemesis.jsonl", system.network
    begun: list[str] = []
    with (
        Journal(file, "nemesis") as journal,
        Crew(
            tmp_path, lambda *_: ["-c", CLIENT], lambda _: {}, network.know, network.forget
        ) as crew,
    ):
        for _ in range(2):
            crew.spawn()
        crew.await_ready()
        scene = Scene(system, crew, root, journal)
        for name in fitting(FAULTS, system.name):
            fault = FAULTS[name](scene, Random(1))
            fault.begin()
            fault.end()
            begun.append(name)
            eventually(system.is_well, f"the system to be well after {name}", within=60)
    found = list(read([file]).faults)
    assert [one.began.kind for one in found] == begun
    assert all(one.ends < FOREVER and one.began.targets for one in found)


@pytest.mark.long
@pytest.mark.parametrize("system", [RedisSentinelSystem], indirect=True)
def test_two_primaries_at_once_are_logged_as_lost_data(
    system: RedisSentinelSystem, tmp_path: Path
) -> None:
    with Journal(tmp_path / "servers.jsonl", "servers") as journal, system.watched(journal):
        system.nodes["n1"].pause()
        eventually(lambda: system.leader() == "n2", within=30)
        system.nodes["n1"].resume()
        eventually(system.is_well, within=60)
    [fault] = read([tmp_path / "servers.jsonl"]).faults
    assert fault.began.reach is Reach.DATA
    assert fault.ends < FOREVER
