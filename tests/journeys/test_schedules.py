"""A crontab on three hosts for a week, two beats for a day: on a service whose clock is moved."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import celery
import pytest
from celery.beat import Scheduler as Base
from celery.schedules import crontab, schedule

import coordlock
from coordlock import Cron, JobNotRun, LockLost
from coordlock.cli.job_health import health_of
from coordlock.errors import AlreadyFailed
from coordlock.integrations.celery import OncePerSlot, slot_of
from coordlock.jobs import job as job_module
from coordlock.jobs.schedule import latest
from coordlock.testing.lock_service import LockService

NIGHTLY = Cron("0 3 * * *", "Europe/Berlin")
#: Germany's clocks are set back in the third night.
NOON = datetime(2026, 10, 22, 12, tzinfo=UTC)
NIGHTS = list(itertools.islice(NIGHTLY.after(NOON), 7))
#: By how many seconds the clocks of the hosts are wrong.
CLOCKS = {"fast": 300.0, "right": 0.0, "slow": -7.0}


class Crontab:
    """Three hosts whose cron starts the job each night, as ``coordlock run nightly --cron ...``."""

    def __init__(self, service: LockService, **options: Any) -> None:
        self.now = NOON
        self.down: set[str] = set()
        #: Which host has begun which slot.
        self.begun: list[tuple[str, datetime]] = []
        self.refused: list[Exception] = []
        self.work: Callable[[coordlock.JobRun], None] = lambda run: None
        self._service = service
        service._service.time = lambda: self.now.timestamp()
        self._jobs = {
            host: service.connect(label=host, ttl="10m").job("nightly", schedule=NIGHTLY, **options)
            for host in CLOCKS
        }

    def pass_night(self, scheduled: datetime) -> str:
        """Let each host start the line by its own clock; the job's health in the morning."""
        for host, ahead in CLOCKS.items():
            self._advance(scheduled - timedelta(seconds=ahead - 0.02))
            if host not in self.down:
                clock = SimpleNamespace(time=lambda ahead=ahead: self.now.timestamp() + ahead)
                with patch.object(job_module, "time", clock):
                    self._start(host, clock.time())
        self._advance(scheduled + timedelta(hours=4))
        job = self._jobs["right"].info()
        return health_of(job, self.now, timedelta(hours=26)).state

    def _advance(self, instant: datetime) -> None:
        self._service.advance((instant - self.now).total_seconds())
        self.now = instant

    def _start(self, host: str, now: float) -> None:
        for slot in self._jobs[host].due() or [latest(NIGHTLY, now)]:
            assert isinstance(slot, datetime)
            try:
                with suppress(ArithmeticError, LockLost), self._jobs[host].run(slot) as run:
                    self.begun.append((host, slot))
                    self.work(run)
            except JobNotRun as refused:
                self.refused.append(refused)


@pytest.fixture
def service() -> Iterator[LockService]:
    with LockService() as service:
        yield service


def test_a_crontab_on_three_hosts_runs_each_night_of_a_week_once(service: LockService) -> None:
    cron = Crontab(service)
    health = []
    for number, night in enumerate(NIGHTS):
        cron.down = {"fast"} if number in (2, 3) else {"fast", "right"} if number > 4 else set()
        health.append(cron.pass_night(night))
    assert [slot for _, slot in cron.begun] == NIGHTS
    assert [host for host, _ in cron.begun] == [
        *("fast", "fast", "right", "right", "fast", "slow", "slow")
    ]
    assert health == ["ok"] * 7
    assert {night.hour for night in NIGHTS} == {1, 2}, "the clocks are not set back"


@pytest.mark.parametrize("policy", ["at-most-once", "at-least-once"])
def test_a_bad_night_is_made_up_for_or_seen_in_the_morning(
    service: LockService, policy: str
) -> None:
    """One fails, in one the host dies at work, and one finds all hosts down."""
    cron = Crontab(service, policy=policy, catch_up="all")

    def work(run: coordlock.JobRun) -> None:
        if run.slot == NIGHTS[1] and run.attempt == 1:
            raise ArithmeticError("no space left")
        if run.slot == NIGHTS[3] and run.attempt == 1:
            service._service.expire(run._ticket.contenders[0].session)
            run.lost.wait(30)

    cron.work = work
    health = []
    for number, night in enumerate(NIGHTS):
        cron.down = set(CLOCKS) if number == 5 else set()
        health.append(cron.pass_night(night))
    slots = [slot for _, slot in cron.begun]
    interrupted = [
        refused
        for refused in cron.refused
        if isinstance(refused, AlreadyFailed) and refused.state == "interrupted"
    ]
    if policy == "at-least-once":
        assert slots == sorted([*NIGHTS, NIGHTS[1], NIGHTS[3]])
        assert health == [*["ok"] * 5, "late", "ok"]
        assert interrupted == []
    else:
        assert slots == NIGHTS
        assert health == ["ok", "failed", "ok", "failed", "ok", "late", "ok"]
        assert [refused.is_news for refused in interrupted] == [True, False]


class Sender(Base):  # type: ignore[misc]  # Celery has no types
    """Counts what a beat sends."""

    sent: Counter[tuple[str, datetime]]
    max_interval: float

    def apply_async(self, entry: Any, *_: object, **__: object) -> None:
        patience = timedelta(seconds=self.max_interval)
        self.sent[entry.name, slot_of(entry.schedule, entry.last_run_at, patience)] += 1


class Beat(OncePerSlot, Sender):
    """A beat that sends nothing."""


def test_two_beats_send_each_slot_of_a_day_once_though_one_is_away_for_hours(
    service: LockService,
) -> None:
    """One's clock is two seconds fast. The other is killed in the morning, and starts again."""
    day, random = datetime(2026, 3, 1, tzinfo=UTC), Random(1)
    now, sent = day, Counter[tuple[str, datetime]]()
    service._service.time = lambda: now.timestamp()

    def beat(ahead: float) -> Beat:
        def clock() -> datetime:
            return now + timedelta(seconds=ahead)

        app = celery.Celery("journey", set_as_current=False)
        app.conf.update(coordlock=service.url + "?ttl=10m", broker_url="memory://", timezone="UTC")
        hourly = crontab(minute=0, nowfun=clock, app=app)
        app.conf.beat_schedule = {
            "often": {"task": "t", "schedule": schedule(300, nowfun=clock, app=app)},
            "hourly": {"task": "u", "schedule": hourly},
        }
        made = Beat(app)
        made.sent = sent
        for entry in made.schedule.values():
            entry.last_run_at = clock()
        return made

    beats: dict[str, Beat | None] = {"right": beat(0.0), "fast": beat(2.0)}
    ticks = dict.fromkeys(beats, day)
    while now < day + timedelta(days=1):
        name = min(ticks, key=lambda name: ticks[name])
        service.advance(max(0.0, (ticks[name] - now).total_seconds()))
        now = max(now, ticks[name])
        if name == "right" and 8 <= now.hour < 14:
            beats[name], ticks[name] = None, day + timedelta(hours=14, seconds=17)
            continue
        running = beats[name] = beats[name] or beat(0.0)
        wait = running.tick()
        ticks[name] = now + timedelta(seconds=max(wait, 0.0) + random.uniform(0.01, 0.1))
    assert set(sent.values()) == {1}
    for entry, every, least in (("often", 300, 286), ("hourly", 3600, 23)):
        slots = sorted(slot for name, slot in sent if name == entry)
        assert len(slots) >= least
        gaps = {(later - earlier).total_seconds() for earlier, later in itertools.pairwise(slots)}
        assert gaps == {every}
