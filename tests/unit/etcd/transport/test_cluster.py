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


@pytest.mark.parametrize(("gap", "accepted"), [(1.0, True), (6.0, False)])
def test_older_answers_count_as_a_restored_store_only_if_nothing_else_comes_for_seconds(
    monkeypatch: pytest.MonkeyPatch, gap: float, accepted: bool
) -> None:
    now = [100.0]
    clock = SimpleNamespace(now=lambda: now[0])
    monkeypatch.setattr("coordlock_etcd.transport.cluster.SYSTEM_CLOCK", clock)
    cluster = Cluster([Endpoint("127.0.0.1:1")])
    cluster.saw(1000)
    for _ in range(7):
        cluster.saw_older(10)
        now[0] += gap
    assert cluster.revision == (10 if accepted else 1000)
    cluster.close()
