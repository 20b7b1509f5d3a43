"""Faults of links: whom each of them strikes, and in which direction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from coordlock_faults.events import Reach
from coordlock_faults.journal import Journal

from testbed.nemesis import FAULTS, Clients, FaultMaker, Scene
from testbed.network.disturbance import Disturbance
from testbed.network.network import Network
from testbed.systems.system import System

NODES, CLIENTS = ("n1", "n2", "n3"), ("c1", "c2")
LEADER = "n2"
#: Who sends to whom.
LINKS = {
    (source, target)
    for source, target in permutations(NODES + CLIENTS, 2)
    if {source, target} & set(NODES)
}
LINK_FAULTS = [name for name, one in FAULTS.items() if one.reach is Reach.NETWORK and one.lasts]


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def scene(network: Network, tmp_path: Path) -> Iterator[Scene]:
    """Nodes and clients of which there is nothing but the names."""
    system: Any = SimpleNamespace(
        nodes=dict.fromkeys(NODES), network=network, leader=lambda: LEADER
    )
    clients: Any = SimpleNamespace(names=lambda: list(CLIENTS))
    with Journal(tmp_path / "nemesis.jsonl", "nemesis") as journal:
        yield Scene(cast(System, system), cast(Clients, clients), "/root", journal)


def struck(fault: FaultMaker) -> str:
    """Whom a fault has struck, who is to be what its name says."""
    [name] = fault.targets
    role = fault.name.partition("-")[2]
    assert (
        name
        in {
            "leader": {LEADER},
            "follower": set(NODES) - {LEADER},
            "client": set(CLIENTS),
        }[role]
    )
    return name


def directions(fault: str, name: str) -> set[tuple[str, str]]:
    """What ``name`` is not to send, or not to be sent, undisturbed."""
    sends = {(source, target) for source, target in LINKS if source == name}
    hears = {(source, target) for source, target in LINKS if target == name}
    to_nodes = {(source, target) for source, target in sends if target in NODES}
    from_nodes = {(source, target) for source, target in hears if source in NODES}
    return {
        "isolate": sends | hears,
        "slow": sends | hears,
        "lossy": sends | hears,
        "part": to_nodes | from_nodes,
        "mute": to_nodes,
        "deafen": from_nodes,
    }[fault.partition("-")[0]]


def is_what(fault: str, made: Disturbance) -> bool:
    """Whether a disturbance is what the fault's name says, and nothing else."""
    does = made.silent, made.delay > 0, made.weather is not None
    match fault.partition("-")[0]:
        case "slow":
            return does == (False, True, False)
        case "lossy":
            return does == (False, False, True)
    return does == (True, False, False)


@pytest.mark.parametrize("name", LINK_FAULTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_fault_disturbs_what_its_name_says_in_the_direction_that_it_says(
    name: str, seed: int, scene: Scene, network: Network
) -> None:
    fault = FAULTS[name](scene, Random(seed))
    fault.begin()
    made = network.disturbances()
    assert all(is_what(name, one) for one in made)
    touched = {link for link in LINKS if any(one.touches(*link) for one in made)}
    assert touched == directions(name, struck(fault))
    fault.end()
    assert not network.disturbances()


def test_every_fault_of_links_is_looked_at() -> None:
    kinds = {name.partition("-")[0] for name in LINK_FAULTS}
    assert kinds == {"isolate", "part", "mute", "deafen", "slow", "lossy"}
    assert {name for name, one in FAULTS.items() if one.reach is Reach.NETWORK} - {
        "reset-client"
    } == set(LINK_FAULTS)
