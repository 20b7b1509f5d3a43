"""The table of metrics, which is frozen, and what events change in them."""

from __future__ import annotations

import itertools
import os
import string
import threading
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

import prometheus_client
import pytest

import coordlock
from coordlock.errors import AcquireTimeout
from coordlock.model.events import AcquireStarted, Granted, Released
from coordlock.runtime.recorder import Event
from coordlock.telemetry import by_prefix, collapse_ids, prometheus
from coordlock.telemetry.groups import MAX_GROUPS, Group
from coordlock.telemetry.metrics import (
    ACQUIRE_WAITING,
    BUCKETS,
    GRANT_ACTIVE,
    LEADER,
    METRICS,
    SESSION_STATE,
    Measurements,
    Metric,
)
from coordlock.telemetry.prometheus import exposed_name
from coordlock.telemetry.survey import SERVICE_METRICS
from coordlock.testing.lock_service import LockService
from coordlock.testing.waiting import eventually
from tests.unit.signals import struck

SNAPSHOT: Final = Path(__file__).with_name("metrics.txt")


def table() -> str:
    """All metrics, a line each, and the buckets."""
    lines = [f"buckets {' '.join(f'{bound:g}' for bound in BUCKETS)}"]
    for where, metrics in (("process", METRICS), ("service", SERVICE_METRICS)):
        lines += [
            f"{where} {one.name} {one.kind} {one.unit or '-'} {','.join(one.attributes) or '-'} "
            f"{exposed_name(one)}"
            for one in metrics
        ]
    return "\n".join(lines) + "\n"


def series(group: Group | None, names: list[str]) -> Counter[tuple[Metric, tuple[str, ...]]]:
    """How much each series has counted after an acquire of each of ``names``."""
    measurements, found = Measurements(group), Counter[tuple[Metric, tuple[str, ...]]]()
    for number, name in enumerate(names):
        facts = 1, "etcd", number, "lock", "EX", name
        events: list[Event] = [AcquireStarted(*facts), Granted(*facts, 0.1, False, number, None)]
        for event in [*events, Released(*facts, number, 1.0)]:
            for metric, value, attributes in measurements.of(event):
                found[metric, attributes] += int(value) if metric.kind == "counter" else 1
    return found


def test_the_metrics_are_those_that_dashboards_of_users_know() -> None:
    """To change it: ``python -m tests.unit.telemetry.test_metrics``."""
    assert table() == SNAPSHOT.read_text()


def test_names_follow_the_conventions() -> None:
    for metric in (*METRICS, *SERVICE_METRICS):
        assert "_total" not in metric.name
        if metric.name.endswith(".duration"):
            assert (metric.unit, metric.kind in ("histogram", "gauge")) == ("s", True)
    names = [metric.name for metric in (*METRICS, *SERVICE_METRICS)]
    assert len(set(names)) == len(names)


def test_a_hundred_thousand_names_make_as_many_series_as_one() -> None:
    names = [f"order/{uuid.uuid4()}/{number}" for number in range(100_000)]
    assert len(series(None, names)) == len(series(None, names[:1]))
    for group in (by_prefix(), collapse_ids()):
        assert len(series(group, names[:1000])) == len(series(group, names[:1]))


def test_a_function_that_groups_badly_makes_a_hundred_groups_and_the_rest() -> None:
    names = [f"n{number}" for number in range(1000)]
    groups = {attributes[1] for _, attributes in series(str, names)}
    assert len(groups) == MAX_GROUPS + 1
    assert "other" in groups


def test_a_function_that_raises_gives_the_rest() -> None:
    def broken(_: str) -> str:
        raise LookupError

    assert {attributes[1] for _, attributes in series(broken, ["a"])} == {"other"}


@pytest.mark.parametrize(
    ("group", "name", "expected"),
    [
        (by_prefix(), "order/17", "order"),
        (by_prefix(), "nightly", "nightly"),
        (by_prefix("."), "a.b/c", "a"),
        (collapse_ids(), "order/17/lines", "order/*/lines"),
        (collapse_ids(), "user-42", "user-*"),
        (collapse_ids(), "job:0f8fad5b-d9cb-469f-a165-70867728950e", "job:*"),
        (collapse_ids(), "sha/deadbeef99", "sha/*"),
        (collapse_ids(), "deadbeef", "deadbeef"),
        (collapse_ids(), "v2ray", "v2ray"),
        (collapse_ids(), "", ""),
    ],
)
def test_groups_of_names(group: Group, name: str, expected: str) -> None:
    assert group(name) == expected


def test_names_with_any_characters_are_grouped() -> None:
    names = [f"{sign}\n{number}\0" for number, sign in enumerate(string.printable * 100)]
    assert len({attributes[1] for _, attributes in series(str, names)}) <= MAX_GROUPS + 1


def counted(measurements: Measurements) -> dict[str, float]:
    """What waits, is held and leads in this process, by the metric's name; without zeros."""
    found = Counter[str]()
    for metric, value, _ in measurements.gauges():
        if metric in (ACQUIRE_WAITING, GRANT_ACTIVE, LEADER):
            found[metric.name.removeprefix("coordlock.")] += int(value)
    return {name: value for name, value in found.items() if value}


@pytest.mark.parametrize("timeout", [None, 0.2], ids=["the grant", "the timeout"])
def test_what_waits_counts_until_the_wait_ends_with(
    locks: LockService, timeout: float | None
) -> None:
    client, measurements = locks.connect(), Measurements()

    def wait() -> None:
        with suppress(AcquireTimeout):
            client.lock("a").acquire(timeout).release()

    waiter = threading.Thread(target=wait)
    with locks.held("a"):
        waiter.start()
        eventually(lambda: counted(measurements).get("acquire.waiting") == 1)
        assert client.lock("a").try_acquire() is None
        if timeout is not None:
            waiter.join()
    waiter.join()
    eventually(lambda: counted(measurements) == {})


def test_what_is_held_counts_until_it_is_released_or_lost(locks: LockService) -> None:
    client, measurements = locks.connect(), Measurements()
    grants = [client.lock("a").acquire(), client.semaphore("b", permits=2).acquire()]
    term = client.election("c").campaign()
    assert counted(measurements) == {"grant.active": 3, "leader": 1}
    grants[0].release()
    term.resign()
    assert counted(measurements) == {"grant.active": 1}
    locks.lose("b")
    locks.advance(client.settings.ttl / 2)
    assert grants[1].lost.wait(60)
    assert counted(measurements) == {}


def test_sessions_count_by_their_states(locks: LockService) -> None:
    def states() -> dict[str, float]:
        found = Measurements().gauges()
        return {of[1]: value for metric, value, of in found if metric is SESSION_STATE}

    locks.connect(ttl=10)
    assert states()["connected"] >= 1
    with locks.silent():
        for seconds, state in ((7, "in doubt"), (5, "lost")):
            locks.advance(seconds)
            assert states()[state] >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_shows_nothing_of_its_parents(locks: LockService) -> None:
    measurements = Measurements()
    with locks.connect().lock("a"):
        child = os.fork()
        if not child:
            os._exit(len(counted(measurements)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert counted(measurements) == {"grant.active": 1}


@pytest.mark.filterwarnings("ignore:.* was dropped while it was held:ResourceWarning")
@pytest.mark.usefixtures("generators_end_unheard", "sweeps_often")
@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.long)])
def test_wherever_a_signal_handler_raises_gauges_come_back_to_zero_and_counters_go_on(
    every: int,
) -> None:
    """At each line, or ``every`` so many, of an acquire that waits, an upgrade and a release."""

    class Alarm(Exception):
        pass

    registry = prometheus_client.CollectorRegistry()
    stop = prometheus.instrument(registry)
    facts = {"backend": "memory", "group": "all", "kind": "lock", "mode": "EX"}

    def releases() -> float:
        of = {**facts, "end": "released"}
        return registry.get_sample_value("coordlock_grant_duration_seconds_count", of) or 0

    def use() -> None:
        with suppress(coordlock.WaitError):
            client.lock("q").acquire(timeout=0.01)
        with suppress(coordlock.WaitError), client.upgradeable_lock("r") as grant:
            grant.upgrade(0)

    try:
        url = "memory:///struck?request_timeout=500ms"
        with coordlock.connect(url) as client, client.lock("q"):
            for number in itertools.count(1, every):
                place = struck(use, number, Alarm)
                eventually(lambda: counted(Measurements()) == {"grant.active": 1}, place)
                before = releases()
                client.lock("s").acquire().release()
                eventually(lambda: releases() > before, place)  # noqa: B023
                if not place:
                    break
            assert number > 200
        assert counted(Measurements()) == {}
    finally:
        stop()


if __name__ == "__main__":
    SNAPSHOT.write_text(table())
