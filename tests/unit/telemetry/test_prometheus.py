"""The metrics of a process as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

import prometheus_client
import pytest

from coordlock.errors import StaleToken
from coordlock.fencing.marks import Marks
from coordlock.fencing.token import FencingToken
from coordlock.runtime.recorder import RECORDER
from coordlock.telemetry import by_prefix
from coordlock.telemetry.prometheus import instrument
from coordlock.testing.lock_service import LockService


@pytest.fixture
def registry() -> Iterator[prometheus_client.CollectorRegistry]:
    registry = prometheus_client.CollectorRegistry()
    stop = instrument(registry, group=by_prefix())
    yield registry
    stop()
    assert not list(registry.collect())


def test_a_day_of_locks_is_counted(
    locks: LockService, registry: prometheus_client.CollectorRegistry
) -> None:
    client = locks.connect()
    order = {"backend": "memory", "group": "order", "kind": "lock"}
    value = registry.get_sample_value
    for number in range(3):
        with client.lock(f"order/{number}"):
            assert value("coordlock_grant_active", {**order, "mode": "EX"}) == 1
    assert value("coordlock_grant_active", {**order, "mode": "EX"}) == 0
    granted = {**order, "mode": "EX", "outcome": "granted"}
    assert value("coordlock_acquire_duration_seconds_count", granted) == 3
    # An alert on the first loss needs the 0 before it.
    losses = {**order, "reason": "session"}
    assert value("coordlock_grant_losses_total", losses) == 0
    grant = client.lock("order/1").acquire()
    locks.lose("order/1")
    locks.advance(client.settings.ttl / 2)
    grant.lost.wait(60)
    assert value("coordlock_grant_losses_total", losses) == 1
    assert value("coordlock_grant_active", {**order, "mode": "EX"}) == 0


def test_the_age_of_the_heartbeat_is_read_at_each_scrape(
    locks: LockService, registry: prometheus_client.CollectorRegistry
) -> None:
    locks.connect(ttl=30)
    locks.advance(5)
    whose = {"backend": "memory"}
    age = registry.get_sample_value("coordlock_session_heartbeat_age_seconds", whose)
    assert age is not None
    assert age > 4  # or that of an older client in this process
    ttl = registry.get_sample_value("coordlock_session_ttl_seconds", whose)
    assert ttl is not None
    assert ttl > 0


def test_a_leader_shows_under_the_name_that_alerts_of_kubernetes_know(
    locks: LockService, registry: prometheus_client.CollectorRegistry
) -> None:
    election, name = locks.connect().election("scheduler"), {"name": "scheduler"}
    with election.campaign():
        assert registry.get_sample_value("leader_election_master_status", name) == 1
    assert registry.get_sample_value("leader_election_master_status", name) == 0


def test_a_refusal_of_a_fence_is_counted_from_zero(
    registry: prometheus_client.CollectorRegistry,
) -> None:
    assert registry.get_sample_value("coordlock_fence_refusals_total") == 0
    with pytest.raises(StaleToken):
        Marks(5, 0).raised("table", FencingToken(3))
    assert registry.get_sample_value("coordlock_fence_refusals_total") == 1


def test_a_registry_is_instrumented_once(registry: prometheus_client.CollectorRegistry) -> None:
    listeners = RECORDER.listeners
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        instrument(registry)
    assert RECORDER.listeners == listeners
