"""A failover to a replica that lags: how often two hold, and what the fence does.

So also where the replica's clock is behind the tokens that the primary has given.

``python -m tests.integration.redis.test_lagging_failover 10`` counts it over so many rounds.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import coordlock
from coordlock.errors import StaleToken, WaitUnavailable
from coordlock.fencing import MemoryFence
from coordlock.testing.waiting import eventually
from testbed.servers.redis import RedisServer, Sentinel
from testbed.systems.wall_clocks import WallClock

pytestmark = [pytest.mark.redis, pytest.mark.faults]

BEHIND: Final = "restart_delay=0, and the replica's clock an hour behind"
#: What clients are configured with, by what it is called.
OPTIONS: Final = {
    "restart_delay=0": {"restart_delay": "0"},
    "the default": {"restart_delay": "auto"},
    "restart_delay=0, wait_replicas=1": {"restart_delay": "0", "wait_replicas": "1"},
    BEHIND: {"restart_delay": "0"},
}


@dataclass
class Outcome:
    """What a round showed.

    Attributes:
        granted: whether the first client was granted what the replica does not have.
        together: whether it still held when the second one was granted.
        refused: whether a fence that had seen the second one refused the first.
        newer_refused: whether a fence that had seen the first one refused the second.
    """

    granted: bool = False
    together: bool = False
    refused: bool = False
    newer_refused: bool = False


def play(directory: Path, name: str) -> Outcome:
    """A holds what the replica does not have, and Sentinel replaces a primary that stands still."""
    outcome, options = Outcome(), OPTIONS[name]
    clock = WallClock(directory / "clock")
    clock.set(-3600 if name == BEHIND else 0)
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer(directory / "primary"))
        replica = stack.enter_context(
            RedisServer(directory / "replica", environment=clock.environment_for_redis)
        )
        replica.follow(primary)
        sentinel = stack.enter_context(Sentinel(directory / "sentinel", primary))
        eventually(lambda: sentinel.knows()["num-slaves"] == "1")
        url = sentinel.url_for("/lag", ttl="16s", request_timeout="4s", **options)
        one, two = (stack.enter_context(coordlock.connect(url)) for _ in range(2))
        # Both have a session that the replica has, too.
        one.lock("warm").acquire(timeout=20).release()
        two.lock("warm").acquire(timeout=20).release()
        replica.pause()
        with primary.client() as admin:  # else it would read what was sent while it stood still
            admin.execute_command("CLIENT", "KILL", "TYPE", "replica")
        try:
            first = one.lock("a").acquire(timeout=3)
            outcome.granted = True
        except WaitUnavailable:
            first = None
        primary.pause()
        replica.resume()
        if first is None:  # nothing is granted before the earlier primary is a replica
            eventually(lambda: sentinel.knows()["port"] == str(replica.port))
            primary.resume()
        second = two.lock("a").acquire(timeout=60)
        if first is not None:
            outcome.together = first.state.name in ("HELD", "SUSPECT")
            outcome.refused = is_refused(first.token, after=second.token)
            outcome.newer_refused = is_refused(second.token, after=first.token)
        primary.resume()
    return outcome


def is_refused(token: int, *, after: int) -> bool:
    """Whether a fence that has seen the token ``after`` refuses this one."""
    fence = MemoryFence()
    fence.check("data", after)
    try:
        fence.check("data", token)
    except StaleToken:
        return True
    return False


@pytest.mark.parametrize("options", OPTIONS)
def test_two_hold_only_without_the_pause_and_the_fence_refuses_the_late_one(
    tmp_path: Path, options: str
) -> None:
    """Unless the new primary's clock is behind: then it refuses the new one."""
    outcome = play(tmp_path, options)
    assert outcome.granted is ("wait_replicas" not in OPTIONS[options])
    assert outcome.together is (options in ("restart_delay=0", BEHIND))
    assert outcome.refused is (outcome.granted and options != BEHIND)
    assert outcome.newer_refused is (options == BEHIND)


if __name__ == "__main__":
    rounds = int(sys.argv[1])
    for name in OPTIONS:
        outcomes = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as place:
                outcomes.append(play(Path(place), name))
        counts = {
            what: sum(getattr(one, what) for one in outcomes)
            for what in ("granted", "together", "refused", "newer_refused")
        }
        print(name, counts)
