"""APScheduler: two schedulers start each job once per slot."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED
from apscheduler.schedulers.background import BackgroundScheduler

import coordlock
from coordlock.integrations.apscheduler import OncePerSlot, current_run, slot_of
from coordlock.testing.waiting import eventually
from tests.unit.test_misuse import LAZY

BOUND = 120.0

SCHEDULER = """
import os, sys
from apscheduler.schedulers.blocking import BlockingScheduler
import coordlock
from coordlock.integrations.apscheduler import OncePerSlot, current_run

def note():
    with open("ledger", "a") as ledger:
        ledger.write(f"{current_run().slot.isoformat()} {os.getpid()}\\n")

client = coordlock.Client(sys.argv[1])
scheduler = BlockingScheduler(
    executors={"default": OncePerSlot(client)}, job_defaults={"misfire_grace_time": 60}
)
scheduler.add_job(note, "cron", second="*", id="note")
scheduler.start()
"""


def test_two_schedulers_run_each_slot_once_and_one_goes_on_when_the_other_is_killed(
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()

    def noted(pid: int = 0) -> list[str]:
        lines = [line.split() for line in ledger.read_text().splitlines()]
        return [slot for slot, by in lines if not pid or int(by) == pid]

    line = [sys.executable, "-c", SCHEDULER, f"local://{tmp_path}/locks"]
    schedulers = [subprocess.Popen(line, cwd=tmp_path) for _ in range(2)]
    first, second = (scheduler.pid for scheduler in schedulers)
    try:
        eventually(lambda: noted(first) and noted(second), within=BOUND)
        schedulers[0].kill()
        before = len(noted())
        eventually(lambda: len(noted()) >= before + 3, within=BOUND)
    finally:
        for scheduler in schedulers:
            scheduler.kill()
            scheduler.wait()
    assert len(noted()) == len(set(noted()))


@pytest.fixture
def client() -> Iterator[coordlock.Client]:
    with coordlock.connect("memory://scheduled") as client:
        yield client


@pytest.fixture
def scheduler(client: coordlock.Client) -> Iterator[Any]:
    scheduler = BackgroundScheduler(
        executors={"default": OncePerSlot(client), "other": OncePerSlot(client)},
        job_defaults={"misfire_grace_time": 60},
        timezone="UTC",
    )
    scheduler.start()
    yield scheduler
    scheduler.get_jobs()  # waits for its thread, which else may not find the job that it removes
    scheduler.shutdown()
    client.admin.delete("x", "job")


def states(client: coordlock.Client) -> list[str]:
    return [slot.state for slot in client.job("x").info().slots]


def test_a_job_knows_its_slot(client: coordlock.Client, scheduler: Any) -> None:
    found = []
    at = datetime.now(UTC)
    scheduler.add_job(lambda: found.append(current_run().slot), "date", run_date=at, id="x")
    eventually(lambda: states(client) == ["done"])
    assert found == [at]
    with pytest.raises(LookupError):
        current_run()


def test_a_job_that_fails_is_recorded_as_failed_and_told_to_listeners(
    client: coordlock.Client, scheduler: Any
) -> None:
    told = []
    scheduler.add_listener(lambda event: told.append(event.exception), EVENT_JOB_ERROR)
    scheduler.add_job(lambda: 1 // 0, "date", id="x")
    eventually(lambda: told)
    assert isinstance(told[0], ZeroDivisionError)
    assert states(client) == ["failed"]


def test_a_run_that_was_missed_leaves_the_slot_to_others(
    client: coordlock.Client, scheduler: Any
) -> None:
    at = datetime.now(UTC) - timedelta(hours=1)
    told: list[Any] = []
    scheduler.add_listener(told.append, EVENT_JOB_MISSED)
    scheduler.add_job(print, "date", run_date=at, id="x", misfire_grace_time=1)
    eventually(lambda: told)
    with client.job("x").run(at):
        pass  # nobody has begun it


def test_a_slot_of_an_interval_is_the_same_for_schedulers_that_began_at_other_times() -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    begun = datetime(2026, 3, 1, 12, 0, 7, tzinfo=UTC)
    one = scheduler.add_job(print, "interval", seconds=10, id="x", start_date=begun)
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    slots = [slot_of(one, midnight + timedelta(seconds=second)) for second in (0.5, 9.9, 10, 21)]
    assert slots == [midnight + timedelta(seconds=second) for second in (0, 0, 10, 20)]


def test_a_slot_that_cannot_be_begun_costs_no_other_its_run_or_its_event(
    client: coordlock.Client, scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, now = coordlock.Job.run, datetime.now(UTC).replace(microsecond=0)
    slots = [now - timedelta(seconds=seconds) for seconds in (3, 2, 1)]

    def run(job: coordlock.Job, slot: Any) -> Any:
        if slot == slots[1]:
            raise coordlock.BackendUnavailable("memory", "no answer")
        return begin(job, slot)

    monkeypatch.setattr(coordlock.Job, "run", run)
    told: list[Any] = []
    scheduler.add_listener(told.append, EVENT_JOB_ERROR | EVENT_JOB_EXECUTED)
    job = scheduler.add_job(print, "date", run_date=now + timedelta(days=1), id="x")
    scheduler._lookup_executor("default").submit_job(job, slots)
    eventually(lambda: len(told) == 3)
    assert [event.code for event in told] == [
        EVENT_JOB_EXECUTED,
        EVENT_JOB_ERROR,
        EVENT_JOB_EXECUTED,
    ]
    assert [event.scheduled_run_time for event in told] == slots
    assert isinstance(told[1].exception, coordlock.BackendUnavailable)
    assert states(client) == ["done", "done"]
    job.remove()


@pytest.mark.parametrize("function", LAZY)
def test_a_job_whose_body_would_run_too_late_is_refused_and_its_slot_is_free(
    client: coordlock.Client, scheduler: Any, caplog: pytest.LogCaptureFixture, function: Any
) -> None:
    at = datetime.now(UTC)
    with caplog.at_level(logging.ERROR, "apscheduler"):
        scheduler.add_job(function, "date", run_date=at, id="x", name="lazy")
        eventually(lambda: "whose body would run after its slot was recorded" in caplog.text)
    with client.job("x").run(at):
        pass  # nobody has begun it


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "job 'print' has no id, so each scheduler would run it"),
        ({"id": "x", "jitter": 5}, "job 'x' has jitter, so its times differ on each host"),
    ],
)
def test_a_job_on_whose_slots_hosts_would_not_agree_is_refused(
    client: coordlock.Client,
    scheduler: Any,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    told: str,
) -> None:
    with caplog.at_level(logging.ERROR, "apscheduler"):
        scheduler.add_job(print, "interval", seconds=1, next_run_time=datetime.now(UTC), **options)
        eventually(lambda: told in caplog.text)
    scheduler.remove_all_jobs()
    assert client.admin.jobs() == ()
