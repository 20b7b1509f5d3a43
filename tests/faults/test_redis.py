"""Clients at work on a Redis Cluster whose slots move and whose members fail; and the verdict.

The servers keep no record that could be read, so the checkers judge by what clients saw. A single
server, and one with a replica and Sentinel, are in `test_runs`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from coordlock_faults.events import FaultBegan, FaultHealed, Reach

from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisCluster, RedisServer
from testbed.soak import run
from testbed.soak.judgement import Judgement
from testbed.soak.parties import Parties, at_work
from testbed.soak.plan import Plan
from testbed.systems.undisturbed import Undisturbed

pytestmark = [pytest.mark.redis, pytest.mark.faults]

BOUNDS: Final = replace(run.BOUNDS, signal=5_000_000_000, recovery=60_000_000_000)
SECONDS: Final = 15.0
PLAN: Final = Plan("register", seed=1, seconds=SECONDS)
#: A key of the clients' root, all of which are in one slot.
KEY: Final = f"{{/{PLAN.name}}}:state"

Strike = Callable[[random.Random], None]


@contextmanager
def moved(directory: Path) -> Iterator[tuple[Undisturbed, Strike]]:
    """A cluster in which the slot of the clients moves from one member to another."""
    with RedisCluster(directory) as cluster:

        def strike(dice: random.Random) -> None:
            others = [one for one in cluster.members if one is not cluster.owner(KEY)]
            for _ in cluster.move(KEY, dice.choice(others)):
                time.sleep(dice.uniform(0.0, 0.3))

        yield Undisturbed("redis", cluster.url_for), strike


@contextmanager
def replaced(directory: Path) -> Iterator[tuple[Undisturbed, Strike]]:
    """A cluster of which a member is killed, and comes back as a replica of its own replica."""
    with (
        RedisCluster(directory / "cluster") as cluster,
        RedisServer(directory / "replica", clustered=True) as replica,
    ):
        cluster.replicate(KEY, replica)
        pair = [cluster.owner(KEY), replica]

        def strike(dice: random.Random) -> None:
            primary, other = pair
            pair.reverse()
            primary.kill()
            time.sleep(dice.uniform(0.0, 0.5))
            with other.client() as admin:
                admin.execute_command("CLUSTER FAILOVER", "TAKEOVER")
            primary.start()
            with primary.client(decode_responses=True) as admin:
                eventually(
                    lambda: admin.info("replication").get("master_link_status") == "up", within=60
                )

        try:
            yield Undisturbed("redis", cluster.url_for), strike
        finally:
            replica.kill()


SERVERS: Final = {"a slot moves": moved, "a member is replaced": replaced}


def disturb(parties: Parties, strike: Strike, seed: int) -> int:
    """Strike again and again; how often."""
    dice, count = random.Random(seed), 0
    end = time.monotonic() + SECONDS
    journal = parties.journal("nemesis")
    while time.monotonic() < end:
        time.sleep(dice.uniform(1.0, 4.0))
        count += 1
        journal.log(FaultBegan, f"strike-{count}", "strike", Reach.SERVERS, ("redis",))
        strike(dice)
        journal.log(FaultHealed, f"strike-{count}")
    return count


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", SERVERS)
def test_no_two_hold_and_all_go_on(fault: str, tmp_path: Path) -> None:
    with SERVERS[fault](tmp_path / "servers") as (subject, strike):
        # Nothing is granted before earlier grants have expired: this is what is tested.
        url = subject.url
        subject.url = lambda root, **options: url(root, **{"restart_delay": "auto"} | options)  # type: ignore[method-assign]
        with at_work(subject, PLAN, tmp_path / "run") as parties:
            strikes = disturb(parties, strike, PLAN.seed)
            parties.drain(within=BOUNDS.recovery / 1e9)
            parties.end()
    judgement = Judgement.of(tmp_path / "run", BOUNDS)
    print(f"{fault}: {strikes} strikes, {judgement}")
    assert judgement.holds, str(judgement.verdict)
    assert judgement.counts["grants"]
    assert strikes
