"""A failover to a replica that lags: how often two hold, and what the fence does.

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

pytestmark = [pytest.mark.redis, pytest.mark.faults]

#: What clients are configured with, by what it is called.
OPTIONS: Final = {
    "restart_delay=0": {"restart_delay": "0"},
    "the default": {"restart_delay": "auto"},
    "restart_delay=0, wait_replicas=1": {"restart_delay": "0", "wait_replicas": "1"},
}


@dataclass
class Outcome:
    """What a round showed.

    Attributes:
        granted: whether the first client was granted what the replica does not have.
        together: whether it still held when the second one was granted.
        refused: whether a fence that had seen the second one refused the first.
    """

    granted: bool = False
    together: bool = False
    refused: bool = False


def play(directory: Path, options: dict[str, str]) -> Outcome:
    """A holds what the replica does not have, and Sentinel replaces a primary that stands still."""
    outcome = Outcome()
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer(directory / "primary"))
        replica = stack.enter_context(RedisServer(directory / "replica"))
        replica.follow(primary)
        sentinel = stack.enter_context(Sentinel(directory / "sentinel", primary))
        eventually(lambda: sentinel.knows()["num-slaves"] == "1")
        url = sentinel.url_for("/lag", ttl="8s", request_timeout="4s", **options)
        one, two = (stack.enter_context(coordlock.connect(url)) for _ in range(2))
        # Both have a session that the replica has, too.
        one.lock("warm").acquire(timeout=20).release()
        two.lock("warm").acquire(timeout=20).release()
        replica.pause()
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
            fence = MemoryFence()
            fence.check("data", second.token)
            try:
                fence.check("data", first.token)
            except StaleToken:
                outcome.refused = True
        primary.resume()
    return outcome


@pytest.mark.parametrize("options", OPTIONS)
def test_two_hold_only_without_the_pause_and_the_fence_refuses_the_late_one(
    tmp_path: Path, options: str
) -> None:
    outcome = play(tmp_path, OPTIONS[options])
    assert outcome.granted is ("wait_replicas" not in OPTIONS[options])
    assert outcome.together is (options == "restart_delay=0")
    assert outcome.refused is outcome.granted


if __name__ == "__main__":
    rounds = int(sys.argv[1])
    for name, given in OPTIONS.items():
        outcomes = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as place:
                outcomes.append(play(Path(place), given))
        counts = {
            what: sum(getattr(one, what) for one in outcomes)
            for what in ("granted", "together", "refused")
        }
        print(name, counts)
