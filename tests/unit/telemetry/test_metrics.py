"""The table of metrics, which is frozen, and what events change in them."""

from __future__ import annotations

import string
import uuid
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from coordlock.model.events import AcquireFailed, AcquireStarted, AcquireWaiting, Granted, Released
from coordlock.runtime.recorder import Event
from coordlock.telemetry import by_prefix, collapse_ids
from coordlock.telemetry.groups import MAX_GROUPS, Group
from coordlock.telemetry.metrics import BUCKETS, METRICS, Measurements, Metric
from coordlock.telemetry.prometheus import exposed_name
from coordlock.telemetry.survey import SERVICE_METRICS

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
        assert len(series(group, names)) == len(series(group, names[:1]))


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


def test_the_waiting_gauge_comes_back_to_zero_whatever_ends_the_wait() -> None:
    measurements, waiting = Measurements(), 0.0
    facts = 1, "etcd", 7, "lock", "EX", "a"
    ends: list[Event] = [
        Granted(*facts, 1.0, True, 3, 0.1),
        AcquireFailed(*facts, 1.0, True, "timeout", "AcquireTimeout"),
    ]
    for end in ends:
        for event in (AcquireStarted(*facts), AcquireWaiting(*facts, 1), end):
            for metric, value, _ in measurements.of(event):
                waiting += value if metric.name == "coordlock.acquire.waiting" else 0
        assert waiting == 0


def test_a_wait_that_began_before_somebody_listened_does_not_count_down() -> None:
    facts = 1, "etcd", 7, "lock", "EX", "a"
    changes = list(Measurements().of(Granted(*facts, 1.0, True, 3, 0.1)))
    assert not [metric for metric, _, _ in changes if metric.name == "coordlock.acquire.waiting"]


if __name__ == "__main__":
    SNAPSHOT.write_text(table())
