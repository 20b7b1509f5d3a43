"""The checkers catch what coordlock might do wrong, and find nothing where it is right."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from coordlock_faults.bounds import Bounds

from testbed.servers.etcd import EtcdServer
from testbed.servers.zookeeper import ZooKeeperServer
from tests.faults.mutants import scenarios
from tests.faults.mutants.scenarios import Scenario
from tests.faults.mutants.stage import Server, Stage
from tests.mutants.catalogue import PLAYED
from tests.mutants.mutant import Mutant, Play

#: Nothing takes longer than the time-to-live of whoever is cut off.
BOUNDS: Final = Bounds(signal=250_000_000, notice=1_500_000_000, recovery=3_200_000_000)

#: What is played without a mutant: all that is played with one, on the same backends.
SCENES: Final = dict.fromkeys(
    (play.scenario, scheme) for _, play in PLAYED for scheme in play.backends
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Servers that these tests have for themselves, each started when it is needed."""
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        server.stop()


def stage_on(scheme: str, request: pytest.FixtureRequest, number: int = 0) -> Stage:
    """A stage on the server of that scheme, the ``number``-th of a test."""
    servers: dict[str, Server] = request.getfixturevalue("servers")
    request.getfixturevalue(scheme)  # so that --without leaves it out
    if scheme not in servers:
        kind = {"etcd": EtcdServer, "zookeeper": ZooKeeperServer}[scheme]
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        servers[scheme] = kind(factory.mktemp(scheme)).start()
    directory: Path = request.getfixturevalue("tmp_path") / str(number)
    directory.mkdir()
    return Stage(servers[scheme], f"{request.getfixturevalue('root')}-{number}", directory)


@pytest.mark.parametrize(
    ("mutant", "play", "scheme"),
    [
        pytest.param(mutant, play, scheme, id=f"{mutant.name}-{play.scenario.__name__}-{scheme}")
        for mutant, play in PLAYED
        for scheme in play.backends
    ],
)
def test_a_mutant_is_caught(
    mutant: Mutant, play: Play, scheme: str, request: pytest.FixtureRequest
) -> None:
    def is_caught(number: int) -> bool:
        with stage_on(scheme, request, number) as stage, mutant():
            play.scenario(stage)
            verdict = stage.verdict(BOUNDS)
        print(verdict)
        return play.violation in {type(one) for one in verdict.all()}

    # Twice: a machine that stands still may hide it once.
    assert is_caught(0) or is_caught(1), (
        f"a mutant that survives is a missing test: {mutant.breaks}"
    )


@pytest.mark.parametrize(
    ("scenario", "scheme"),
    [
        pytest.param(scenario, scheme, id=f"{scenario.__name__}-{scheme}")
        for scenario, scheme in SCENES
    ],
)
def test_nothing_is_found_without_a_mutant(
    scenario: Scenario, scheme: str, request: pytest.FixtureRequest
) -> None:
    with stage_on(scheme, request) as stage:
        scenario(stage)
        verdict = stage.verdict(BOUNDS)
    assert verdict.holds, str(verdict)


def test_every_scenario_is_played() -> None:
    played = {play.scenario for _, play in PLAYED}
    scenes = [
        one
        for one in vars(scenarios).values()
        if inspect.isfunction(one)
        and one.__module__ == scenarios.__name__
        and not one.__name__.startswith("_")
        and list(inspect.signature(one).parameters) == ["stage"]
    ]
    assert scenes
    assert all(one in played for one in scenes)
