"""Which connection the calls of a client use."""

from __future__ import annotations

from coordlock_etcd.transport.cluster import Cluster, Endpoint


def test_calls_that_fail_together_over_one_connection_replace_it_once() -> None:
    host = Endpoint("127.0.0.1:1")
    cluster, stuck = Cluster([host]), host.channel
    cluster.fail_over(host, stuck, is_stuck=True)
    replacement = host.channel
    cluster.fail_over(host, stuck, is_stuck=True)
    assert host.channel is replacement
    assert replacement is not stuck
    cluster.close()
