"""Producers and consumers are killed and stopped at their work, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from coordlock.types import WorkQueueStats
from tests.integration.work import worker
from tests.integration.work.history import History

BOUND = 120.0
NOTHING = WorkQueueStats(0, 0, 0, 0)
#: A put is one write; so is to take, and to end an item.
STEPS = [f"{when}:{number}" for number in range(1, 7) for when in ("before", "after")]


def started(
    url: str, log: Path, *arguments: str, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    command = [sys.executable, worker.__file__, url, str(log), *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.Popen(command, env=environment, stdin=stdin)


@contextmanager
def ended(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def url(shared_url: str) -> str:
    return shared_url.replace("ttl=60", "ttl=2")


@pytest.mark.faults
@pytest.mark.long_on("zookeeper")
@pytest.mark.parametrize("step", STEPS[:6])
def test_a_producer_that_is_killed_at_any_step_has_put_what_it_said(
    url: str, tmp_path: Path, step: str
) -> None:
    log = tmp_path / "log"
    producer = started(url, log, "put", "4", step)
    assert producer.wait(BOUND) == -signal.SIGKILL
    assert started(url, log, "put", "2").wait(BOUND) == 0
    with coordlock.connect(url) as client:
        queue = client.work_queue(worker.QUEUE)
        found = [item.data.decode() for item in queue.items()]
    when, _, number = step.partition(":")
    # Nothing is put twice, none is left out, and one may have been put of which nobody was told.
    told = History(log).items("put")
    made = int(number) - (when == "before")
    assert len(found) == made + 2
    assert [item for item in found if item in told] == told
    assert len(found) - len(told) == (when == "after")


@pytest.mark.faults
@pytest.mark.long_on("zookeeper", *STEPS[1::2])  # one step's end is the next one's beginning
@pytest.mark.parametrize("step", STEPS)
def test_what_a_consumer_had_that_is_killed_at_any_step_is_done_by_another(
    url: str, tmp_path: Path, step: str
) -> None:
    log = tmp_path / "log"
    assert started(url, log, "put", "5").wait(BOUND) == 0
    assert started(url, log, "take", step).wait(BOUND) == -signal.SIGKILL
    second = started(url, log, "take")
    with ended([second]), coordlock.connect(url) as client:
        queue = client.work_queue(worker.QUEUE)
        eventually(lambda: queue.stats() == NOTHING, within=BOUND)
        queue.put(worker.STOP)
        assert second.wait(BOUND) == 0
    history = History(log)
    history.check(kills=1)
    order = history.items("put")
    ends = list(dict.fromkeys(history.items("ends")))
    # All in order, but for the item of the worker that died: it is found within about a second.
    assert any(without(one, ends) == without(one, order) for one in order), ends


def without(item: str, items: list[str]) -> list[str]:
    return [one for one in items if one != item]


@pytest.mark.faults
def test_a_worker_that_stood_still_for_too_long_is_refused(url: str, tmp_path: Path) -> None:
    if url.startswith("local:"):
        pytest.skip("local: a paused process is alive, and keeps its items by design")
    log = tmp_path / "log"
    holder = started(url, log, "hold", stdin=subprocess.PIPE)
    with ended([holder]), coordlock.connect(url) as client:
        queue = client.work_queue(worker.QUEUE)
        queue.put(b"one")
        eventually(lambda: log.exists() and History(log).items("begins"))
        with stopped(holder), queue.take(BOUND) as item:
            assert (item.data, item.deliveries) == (b"one", 2)
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait(BOUND) == 0
        assert queue.stats() == NOTHING
    assert History(log).items("late") == ["one"]


def crowd(url: str, log: Path, consumers: int, items: int, step: int) -> None:
    """Let consumers do the items, and kill or stop one of them after each ``step`` items."""
    chance = random.Random(7)
    log.touch()
    producers = [started(url, log, "put", str(items // 4)) for _ in range(4)]
    workers = [started(url, log, "take") for _ in range(consumers)]
    kills = 0
    with ended(producers + workers), coordlock.connect(url) as client:
        queue = client.work_queue(worker.QUEUE)
        for goal in range(step, items - step, step):
            eventually(partial(has_done, log, goal), f"{goal} done, {queue.stats()}", within=BOUND)
            place = chance.randrange(consumers)
            if chance.random() < 0.5:
                workers[place].kill()
                workers[place].wait()
                kills += 1
                workers[place] = started(url, log, "take")
            else:
                with stopped(workers[place]):
                    # Past its time-to-live, as far as others go on meanwhile.
                    time.sleep(chance.choice([0.1, 3.0]))
        for producer in producers:
            assert producer.wait(BOUND) == 0
        eventually(lambda: queue.stats() == NOTHING, str(queue.stats), within=BOUND)
        for _ in workers:
            queue.put(worker.STOP)
        for one in workers:
            assert one.wait(BOUND) == 0
        eventually(lambda: queue.stats() == NOTHING, within=BOUND)
    history = History(log)
    assert len(history.items("put")) == items
    assert kills > 0
    history.check(kills)


def has_done(log: Path, goal: int) -> bool:
    return log.read_bytes().count(b"\ndone ") >= goal


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.mark.faults
def test_of_a_crowd_that_is_killed_and_stopped_every_item_is_done_and_accepted_once(
    url: str, tmp_path: Path
) -> None:
    crowd(url, tmp_path / "log", consumers=4, items=120, step=15)


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_of_a_large_crowd_that_is_killed_and_stopped_every_item_is_done_and_accepted_once(
    url: str, tmp_path: Path
) -> None:
    # On two cores, twenty consumers and the service stand still for seconds by themselves.
    url = url.replace("ttl=2", "ttl=15&request_timeout=60")
    crowd(url, tmp_path / "log", consumers=20, items=10_000, step=100)
