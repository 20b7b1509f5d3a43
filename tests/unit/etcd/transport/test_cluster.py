"""Which connection the calls of a client use."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from coordlock_etcd.transport.cluster import Cluster, Endpoint


def test_calls_that_fail_together_over_one_connection_replace_it_once() -> None:
    host = Endpoint("127.0.0.1:1")
    cluster = Cluster([host])
    cluster.fail_over(host, is_stuck=True)
    replacement = cluster.current
    cluster.fail_over(host, is_stuck=True)
    assert cluster.current is replacement
    assert replacement.channel is not host.channel
    cluster.close()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    clock = SimpleNamespace(now=lambda: now[0])
    monkeypatch.setattr("coordlock_etcd.transport.cluster.SYSTEM_CLOCK", clock)
    return now


@pytest.mark.parametrize("gap", [1.0, 20.0])
def test_a_client_accepts_a_restored_store_however_rarely_it_asks(
    now: list[float], gap: float
) -> None:
    cluster = Cluster([Endpoint("127.0.0.1:1")])
    cluster.saw(1000)
    cluster.saw_older(10)
    assert cluster.revision == 1000
    for _ in range(5):
        now[0] += gap
        cluster.saw_older(10)
    assert cluster.revision == 10
    cluster.close()


def test_a_heartbeat_between_two_old_answers_shows_that_nothing_was_restored(
    now: list[float],
) -> None:
    host = Endpoint("127.0.0.1:1")
    cluster = Cluster([host])
    cluster.saw(1000)
    for _ in range(3):
        cluster.saw_older(10)
        now[0] += 20
        heartbeat = SimpleNamespace(header=SimpleNamespace(revision=1000))
        cluster.answered(host, heartbeat, seen=0)
    assert cluster.revision == 1000
    cluster.close()
