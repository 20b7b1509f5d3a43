"""Clients at work on a Redis that is killed, stands still and is replaced; and the verdict.

The server keeps no record that could be read, so the checkers judge by what clients saw.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from redis import ConnectionError

from coordlock.testing.faults.events import FaultBegan, FaultHealed, Reach
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisServer, Sentinel
from testbed.soak import run
from testbed.soak.judgement import Judgement
from testbed.soak.parties import Parties, at_work
from testbed.soak.plan import Plan
from testbed.systems.undisturbed import Undisturbed

pytestmark = [pytest.mark.redis, pytest.mark.faults]

BOUNDS: Final = replace(run.BOUNDS, signal=5_000_000_000, recovery=60_000_000_000)
SECONDS: Final = 15.0

Strike = Callable[[random.Random], None]


@contextmanager
def killed(directory: Path, *, persistent: bool) -> Iterator[tuple[Undisturbed, Strike]]:
    """A server that is killed and started again, with its file or without one."""
    with RedisServer(directory / "redis", persistent=persistent) as server:

        def strike(dice: random.Random) -> None:
            server.kill()
            time.sleep(dice.uniform(0.0, 1.0))
            server.start()

        yield Undisturbed("redis", server.url_for), strike


@contextmanager
def paused(directory: Path) -> Iterator[tuple[Undisturbed, Strike]]:
    """A server that stands still for less or more than a time-to-live."""
    with RedisServer(directory / "redis") as server:

        def strike(dice: random.Random) -> None:
            server.pause()
            time.sleep(dice.choice([0.5, 1.5, 4.0]))
            server.resume()

        yield Undisturbed("redis", server.url_for), strike


@contextmanager
def replaced(directory: Path) -> Iterator[tuple[Undisturbed, Strike]]:
    """A primary that is killed, and comes back as a replica of the one that Sentinel promotes."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(RedisServer(directory / name)) for name in "ab")
        two.follow(one)
        sentinel = stack.enter_context(Sentinel(directory / "sentinel", one))
        eventually(lambda: sentinel.knows()["num-slaves"] == "1")

        def strike(dice: random.Random) -> None:
            primary, other = (one, two) if sentinel.knows()["port"] == str(one.port) else (two, one)
            primary.kill()
            eventually(lambda: sentinel.knows()["port"] == str(other.port), within=60)
            primary.start()
            eventually(lambda: "slave" in role(primary), within=60)

        yield Undisturbed("redis", sentinel.url_for), strike


def role(server: RedisServer) -> str:
    """Empty while it changes, when a server closes its connections."""
    with suppress(ConnectionError), server.client(decode_responses=True) as admin:
        return str(admin.info("replication")["role"])
    return ""


SERVERS: Final = {
    "killed, with a file": lambda place: killed(place, persistent=True),
    "killed, without a file": lambda place: killed(place, persistent=False),
    "paused": paused,
    "replaced by Sentinel": replaced,
}


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
    plan = Plan("register", seed=1, seconds=SECONDS)
    with SERVERS[fault](tmp_path / "servers") as (subject, strike):
        # Nothing is granted before earlier grants have expired: this is what is tested.
        url = subject.url
        subject.url = lambda root, **options: url(root, **{"restart_delay": "auto"} | options)  # type: ignore[method-assign]
        with at_work(subject, plan, tmp_path / "run") as parties:
            strikes = disturb(parties, strike, plan.seed)
            parties.drain(within=BOUNDS.recovery / 1e9)
            parties.end()
    judgement = Judgement.of(tmp_path / "run", BOUNDS)
    print(f"{fault}: {strikes} strikes, {judgement.told()}")
    assert judgement.holds, str(judgement.verdict)
    assert judgement.summary.grants
    assert strikes
