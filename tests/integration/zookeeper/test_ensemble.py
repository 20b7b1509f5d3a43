"""Three members: what only shows when the one that a client talks to is not the leader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeperEnsemble

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    # Half a tick is how old the leader's knowledge of a follower's sessions may be.
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"), tick=2000) as ensemble:
        yield ensemble


def await_heartbeat(grant: coordlock.Grant) -> None:
    """Return at once after a heartbeat was acknowledged."""
    last = grant.remaining()
    while (now := grant.remaining()) <= last:
        last = now
        time.sleep(0.001)


@pytest.mark.long  # `FaultContract` has the short one, with a holder that is cut off
def test_a_follower_that_dies_with_the_last_heartbeats_takes_no_time_away(
    ensemble: ZooKeeperEnsemble, root: str
) -> None:
    """The lock goes to another only after its holder's own deadline has passed."""
    leader = ensemble.leader()
    follower = next(member for member in ensemble.members if member is not leader)
    with (
        coordlock.connect(follower.url_for(root, ttl="9s")) as client,
        coordlock.connect(leader.url_for(root, ttl="9s")) as other,
        ThreadPoolExecutor() as pool,
    ):
        holding = client.lock("orders").acquire()
        states: list[coordlock.GrantState] = []

        def wait() -> None:
            grant = other.lock("orders").acquire(60)
            states.append(holding.state)
            grant.release()

        waiting = pool.submit(wait)
        for _ in range(3):
            await_heartbeat(holding)
        # The leader has not been told of the last one.
        follower.pause()
        try:
            waiting.result(90)
        finally:
            follower.resume()
        assert states == [coordlock.GrantState.LOST]


def test_a_client_moves_to_another_member_with_its_session(
    ensemble: ZooKeeperEnsemble, root: str
) -> None:
    with coordlock.connect(ensemble.url_for(root, ttl="12s")) as client:
        holding = client.lock("orders").acquire()
        for member in ensemble.members:
            member.restart()
            eventually(lambda: holding.state is coordlock.GrantState.HELD, within=60)
        assert holding.release()
        assert client.lock("orders").acquire(60).token > holding.token
