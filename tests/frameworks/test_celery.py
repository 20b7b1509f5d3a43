"""Celery: workers that run one task at a time per key, and beats that send each slot once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import celery
import pytest
from celery.beat import Scheduler as Base
from celery.exceptions import Retry, SoftTimeLimitExceeded
from celery.schedules import BaseSchedule, crontab, schedule
from coordlock_memory import MemoryBackend

import coordlock
from coordlock.errors import Evicted
from coordlock.integrations import celery as integration
from coordlock.integrations.celery import (
    LockedTask,
    OncePerSlot,
    Scheduler,
    get_client,
    slot_of,
)
from coordlock.integrations.slots import multiple_of
from coordlock.testing.waiting import eventually
from testbed.servers.redis import Redis
from tests.unit.test_misuse import BARE

BOUND = 120.0
APP = "tests.frameworks.apps.locked_tasks"


class Fleet:
    """Workers and beats of one application, on a Redis of their own as far as they know."""

    def __init__(self, redis: Redis, prefix: str, directory: Path, url: str) -> None:
        self.redis, self.prefix, self.directory, self.url = redis, prefix, directory, url
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "LOCKED_DIRECTORY": str(directory),
            "LOCKED_BROKER": redis.url,
            "LOCKED_OPTIONS": json.dumps({"global_keyprefix": prefix}),
            "LOCKED_URL": url,
        }

    def start(self, *command: str, under: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        with open(self.directory / "output", "ab") as output:
            line = [*under, sys.executable, "-m", "celery", "-A", APP, *command]
            process = subprocess.Popen(line, env=self.environment, stdout=output, stderr=output)
        self.started.append(process)
        return process

    def worker(self, pool: str = "prefork", concurrency: int = 2) -> subprocess.Popen[bytes]:
        return self.start(
            *("worker", f"--pool={pool}", f"--concurrency={concurrency}", "--loglevel=info"),
            *("--without-mingle", "--without-gossip", f"--hostname=w{len(self.started)}@%h"),
        )

    def beat(self) -> subprocess.Popen[bytes]:
        return self.start(
            *("beat", "-S", "coordlock.integrations.celery:Scheduler", "--loglevel=info"),
            *("--pidfile=", "-s", str(self.directory / f"schedule{len(self.started)}")),
        )

    def send(self, *calls: tuple[Any, ...], **options: Any) -> None:
        with celery.Celery(broker=self.redis.url) as app:
            app.conf.broker_transport_options = {"global_keyprefix": self.prefix}
            for name, *arguments in calls:
                app.send_task(name, arguments, **options)

    def lines(self, word: str) -> list[str]:
        """The lines of the ledger that begin with ``word``."""
        file = self.directory / "ledger"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(word)]

    def output(self) -> str:
        return (self.directory / "output").read_text()

    def wait_for(self, word: str, count: int = 1) -> None:
        try:
            eventually(lambda: len(self.lines(word)) >= count, within=BOUND)
        except TimeoutError:
            pytest.fail(self.output())

    def go_on(self) -> None:
        (self.directory / "go-on").touch()

    def close(self) -> None:
        for process in self.started:
            pids = children_of(process.pid)
            process.kill()
            process.wait()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def children_of(pid: int) -> list[int]:
    file = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in file.read_text().split()] if file.exists() else []


@pytest.fixture
def make_fleet(redis: Redis, tmp_path: Path) -> Iterator[Callable[[str], Fleet]]:
    made: list[Fleet] = []
    with redis.keyspace() as prefix:

        def make(url: str) -> Fleet:
            made.append(Fleet(redis, prefix, tmp_path, url))
            return made[-1]

        yield make
        for fleet in made:
            fleet.close()


@pytest.fixture
def fleet(make_fleet: Callable[[str], Fleet], tmp_path: Path) -> Fleet:
    """Locked on this machine: a lock is free as soon as its process is gone."""
    return make_fleet(f"local://{tmp_path}/locks")


@pytest.fixture
def client(fleet: Fleet) -> Iterator[coordlock.Client]:
    with coordlock.connect(fleet.url) as client:
        yield client


# Tasks


@pytest.mark.long_on("gevent")
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_one_task_runs_at_a_time_per_key(fleet: Fleet, pool: str) -> None:
    for _ in range(2):
        fleet.worker(pool, 3)
    calls = [("book", account, number) for number in range(10) for account in ("a", "b")]
    fleet.send(*calls)
    fleet.wait_for("booked", 20)
    for account in ("a", "b"):
        numbers = (fleet.directory / account).read_text().split()
        assert sorted(map(int, numbers)) == list(range(10))


def test_a_busy_task_is_dropped_or_sent_again_without_counting_as_a_retry(
    fleet: Fleet, client: coordlock.Client
) -> None:
    fleet.go_on()
    with client.lock("account/a"):
        fleet.worker(concurrency=1)
        fleet.send(("hold", "a"), ("drop", "a"), ("mark", "one"))
        fleet.wait_for("one")
        eventually(lambda: fleet.output().count("Retry in 0.1s") >= 2, within=BOUND)
    fleet.wait_for("end")
    assert [line.split()[2] for line in fleet.lines("begin")] == ["0"]
    assert fleet.lines("dropped") == []


@pytest.mark.long_on("threads")
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_task_whose_process_is_killed_leaves_the_lock_to_the_next(
    fleet: Fleet, pool: str
) -> None:
    fleet.worker(pool)
    fleet.send(("hold", "a"))
    fleet.wait_for("begin")
    os.kill(int(fleet.lines("begin")[0].split()[1]), signal.SIGKILL)
    fleet.worker(pool)
    # Before that, Redis may give the task to the connection of the one that was killed.
    eventually(lambda: fleet.output().count(" ready.") == 2, within=BOUND)
    fleet.send(("hold", "a"))
    fleet.wait_for("begin", 2)
    fleet.go_on()
    fleet.wait_for("end")


@pytest.mark.long_on("threads", "gevent")
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_warm_shutdown_lets_the_task_end_and_releases(
    make_fleet: Callable[[str], Fleet], redis: Redis, root: str, pool: str
) -> None:
    fleet = make_fleet(redis.url_for(root, ttl=60))
    with coordlock.connect(fleet.url) as client:
        worker = fleet.worker(pool)
        fleet.send(("hold", "a"))
        fleet.wait_for("begin")
        worker.terminate()
        eventually(lambda: "Warm shutdown" in fleet.output(), within=BOUND)
        assert len(client.admin.contenders("account/a")) == 1
        fleet.go_on()
        assert worker.wait(BOUND) == 0
        assert fleet.lines("end") == ["end"]
        eventually(lambda: client.admin.contenders("account/a") == ())


def test_no_task_imports_the_backend(fleet: Fleet) -> None:
    """A soft time limit shorter than the import would strike in there, each time anew."""
    fleet.worker()
    fleet.send(("loaded", "coordlock_local"))
    fleet.wait_for("loaded")
    assert fleet.lines("loaded") == ["loaded True"]


class Local:
    """An application in this process."""

    def __init__(self, url: str) -> None:
        self.app = celery.Celery("local", set_as_current=False)
        self.app.conf.coordlock = url


def test_a_task_that_is_called_directly_or_eagerly_waits_for_the_lock() -> None:
    app = Local("memory://directly?timeout=60").app

    def name(self: Any, account: str, *, more: int = 1) -> str:
        assert self.grant.state is coordlock.GrantState.HELD
        return str(self.grant.name)

    owner = app.task(name, base=LockedTask, bind=True, lock="account/{account}")
    assert owner("a") == "account/a"
    assert owner.apply(("b",), {"more": 2}).get() == "account/b"
    assert get_client(app).admin.contenders("account/a") == ()
    with pytest.raises(LookupError):
        _ = owner.grant

    def report() -> None:
        assert len(get_client(app).admin.contenders("shop.report")) == 1

    app.task(report, base=LockedTask, name="shop.report")()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lock": "account/{acount}"}, "'acount' is no parameter of the task; it has: account"),
        ({"lock": "account/{}"}, "'' is no parameter"),
        ({"on_busy": "wait"}, "on_busy must be 'retry' or 'drop', not 'wait'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, str], told: str) -> None:
    def charge(account: str) -> None: ...

    with pytest.raises(ValueError, match=told):
        Local("memory://options").app.task(
            charge, base=LockedTask, lazy=False, shared=False, **options
        )


@pytest.mark.parametrize("function", BARE)
def test_a_task_whose_body_would_run_without_the_lock_is_refused(function: Any) -> None:
    app = Local("memory://lazy").app
    with pytest.raises(TypeError, match=r"makes a (coroutine|generator), whose body would run wit"):
        app.task(function, base=LockedTask, name="lazy", lazy=False, shared=False)


@pytest.mark.parametrize("end", [coordlock.SessionLost("local", "silent"), Evicted("x")])
def test_a_task_whose_wait_ends_without_the_lock_is_sent_again(
    end: coordlock.WaitError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: the process is stopped between the enqueue and the grant."""
    app = Local("memory://ends").app
    app.conf.broker_url = "memory://"

    def work() -> None:
        pass

    task = app.task(work, base=LockedTask, name=f"ended-{type(end).__name__}")

    def acquire(_: coordlock.Lock) -> coordlock.Grant:
        raise end

    monkeypatch.setattr(coordlock.Lock, "acquire", acquire)
    task.push_request(id="ended", called_directly=False, is_eager=False, args=(), kwargs={})
    with pytest.raises(Retry):
        task()
    monkeypatch.setattr(task, "on_busy", "drop")
    with pytest.raises(type(end)):
        task()
    task.pop_request()


@pytest.mark.parametrize("strike", range(40))
def test_a_soft_time_limit_leaves_no_lock_behind_wherever_it_strikes(strike: int) -> None:
    """A trace function raises at each line of `LockedTask` in turn, as the signal does."""
    app = Local("memory://strikes").app

    def work(word: str) -> str:
        return word

    task = app.task(work, base=LockedTask, name=f"struck-{strike}", lock="struck", on_busy="drop")
    task.push_request(id="struck", called_directly=False, is_eager=False)
    left = strike

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != integration.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise SoftTimeLimitExceeded
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(SoftTimeLimitExceeded):
            task("x")
    finally:
        sys.settrace(before)
        task.pop_request()
    eventually(lambda: get_client(app).admin.contenders("struck") == ())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "app.conf.coordlock is not set: write app.conf.coordlock = "),
        ({"ttl": 20}, "app.conf.coordlock: neither 'url' nor 'backend' is given, but ttl"),
    ],
)
def test_settings_that_name_no_backend_are_refused(given: Any, told: str) -> None:
    app = Local(given).app
    with pytest.raises(coordlock.ConfigurationError, match=told):
        Scheduler(app)


# Beat


def test_two_beats_send_each_slot_once_and_one_goes_on_when_the_other_is_killed(
    fleet: Fleet, client: coordlock.Client
) -> None:
    def slots() -> list[str]:
        return [slot.state for job in client.admin.jobs() for slot in job.slots]

    beats = [fleet.beat(), fleet.beat()]
    eventually(lambda: fleet.output().count("beat: Starting") == 2, within=BOUND)
    eventually(lambda: len(slots()) >= 4 and "not sent: job" in fleet.output(), within=BOUND)
    beats[0].kill()
    before = len(slots())
    eventually(lambda: len(slots()) >= before + 3, within=BOUND)
    beats[1].terminate()
    beats[1].wait(BOUND)
    with fleet.redis.client() as redis:
        sent = redis.llen(f"{fleet.prefix}celery")
    # The one that was killed may have been at it.
    assert slots().count("done") <= sent <= len(slots())


def test_a_slot_of_an_interval_is_the_same_on_all_hosts() -> None:
    def at(second: float) -> datetime:
        return datetime(2026, 3, 1, 12, 0, tzinfo=UTC) + timedelta(seconds=second)

    def slot(now: float, last: float) -> datetime:
        return slot_of(schedule(10, nowfun=lambda: at(now)), at(last), timedelta(minutes=1))

    assert slot(12.5, 2.0) == slot(19.9, -200.0) == slot(19.9, 9999.0) == at(10)
    assert slot(12.5, 10.0) == slot(79.0, 12.5) == at(20)
    assert slot(99.0, 12.5) == at(90)


class Month:
    """A beat of intervals in a simulated month, on a clock that goes on whenever it is read."""

    def __init__(self, options: str = "", **intervals: float) -> None:
        self.now = datetime(2001, 1, 1, 0, 0, 0, 900_000, tzinfo=UTC)
        self.begun = self.now
        self.random = Random(1)
        self.sent = dict.fromkeys(intervals, 0)
        month = self

        class Sender(Base):  # type: ignore[misc]  # Celery has no types
            def apply_async(self, entry: Any, *_: object, **__: object) -> None:
                month.sent[entry.name] += 1

        class Beat(OncePerSlot, Sender):
            """Sends nothing, and counts that."""

        self.app = Local(f"memory://{uuid4()}{options}").app
        self.app.conf.broker_url = "memory://"
        self.app.conf.beat_schedule = {
            name: {"task": "t", "schedule": schedule(every, nowfun=self.read, app=self.app)}
            for name, every in intervals.items()
        }
        self.beat = Beat(self.app)
        for entry in self.beat.schedule.values():
            entry.last_run_at = self.now

    def read(self) -> datetime:
        self.now += timedelta(seconds=self.random.uniform(0, 0.002))
        return self.now

    def tick(self, lateness: float) -> None:
        wait = self.beat.tick()
        self.now += timedelta(seconds=max(wait, 0.0) + self.random.uniform(0, lateness))

    def check(self, **intervals: float) -> None:
        """Each slot from the beginning until now was sent, as often as there were slots."""
        while self.beat.tick() == 0.0:
            continue
        jobs = {job.name: job.slots for job in get_client(self.app).admin.jobs()}
        for name, seconds in intervals.items():
            every = timedelta(seconds=seconds)
            assert jobs[f"beat/{name}"][-1].slot == (newest := multiple_of(every, self.now))
            assert self.sent[name] == (newest - multiple_of(every, self.begun)) // every


def test_slots_of_an_interval_are_sent_after_an_outage_of_the_lock_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    month = Month("?request_timeout=0.1&connect_timeout=0.1", often=10, seldom=120)
    backend = get_client(month.app)._engine.backend
    assert isinstance(backend, MemoryBackend)

    def pause(_: float) -> None:
        month.now += timedelta(minutes=1)
        if month.now.minute == 3:
            backend.faults.heal()

    monkeypatch.setattr(integration, "sleep", pause)
    backend.faults.partition()
    while month.now.minute < 5:
        month.tick(lateness=0.1)
    month.check(often=10, seldom=120)


def test_a_slot_of_a_crontab_is_the_same_on_all_hosts() -> None:
    def slot(line: str, now: str, last: str, zone: str = "UTC") -> str:
        app = Local("memory://slots").app
        app.conf.timezone = zone
        tz = ZoneInfo(zone)
        at = datetime.fromisoformat(now).replace(tzinfo=tz)
        due = crontab.from_string(line)
        due.nowfun, due.app = (lambda: at), app
        found = slot_of(due, datetime.fromisoformat(last).replace(tzinfo=tz), timedelta())
        return found.astimezone(UTC).isoformat()

    on_time = slot("0 3 * * *", "2026-03-02 03:00:00.020", "2026-03-01 03:00:00.031")
    late = slot("0 3 * * *", "2026-03-02 21:07:13", "2026-02-20 11:11:11")
    assert on_time == late == "2026-03-02T03:00:00+00:00"
    berlin = slot("30 9 * * mon", "2026-03-30 10:00", "2026-03-20 10:00", "Europe/Berlin")
    assert berlin == "2026-03-30T07:30:00+00:00"  # a day after the clocks went forward


def test_other_schedules_have_no_slots() -> None:
    with pytest.raises(TypeError, match="an interval or a crontab"):
        slot_of(BaseSchedule(), datetime.now(UTC), timedelta())
