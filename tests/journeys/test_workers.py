"""Workers of a queue, and a CronJob, on real services: outages, deploys, poison, failing pods."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

import coordlock
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.types import WorkQueueStats
from tests.cli.command import Cli

pytestmark = pytest.mark.faults

BOUND = 120.0
TTL = 2.0
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md"


@pytest.fixture(
    params=[
        pytest.param(name, marks=getattr(pytest.mark, name.removesuffix("ql")))
        for name in ("etcd", "postgresql", "redis", "zookeeper")
    ]
)
def url(request: pytest.FixtureRequest, root: str) -> str:
    url: str = request.getfixturevalue(request.param).url_for(root, ttl=f"{TTL:g}s")
    return url


@pytest.fixture
def client(url: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(url) as client:
        yield client


@pytest.fixture
def cli(url: str, tmp_path: Path) -> Cli:
    return Cli(url, tmp_path)


@pytest.mark.long
def test_a_worker_does_every_item_through_three_outages_and_poison_hurts_no_other(
    url: str, client: coordlock.Client
) -> None:
    parts = urlsplit(url)
    queue = client.work_queue("q", max_failures=3)
    begun, done, tried = Counter[bytes](), Counter[bytes](), Counter[bytes]()
    stop = coordlock.Cancellation()

    def handle(item: coordlock.Item) -> None:
        if item.data.startswith(b"poison"):
            tried[item.data] += 1
            raise ValueError("it can't be done")
        begun[item.data] += 1
        item.lost.wait(0.3)
        item.check()
        done[item.data] += 1

    def work(place: str) -> int:
        with coordlock.connect(place) as worker:
            failing = worker.work_queue("q", max_failures=3, retry_delay=0.1)
            return failing.run(handle, concurrency=4, cancellation=stop)

    good = {b"%d.%d" % (day, number) for day in range(3) for number in range(20)}
    poison = {b"poison %d" % day for day in range(3)}
    with (
        FaultProxy(str(parts.hostname), int(parts.port or 0)) as proxy,
        ThreadPoolExecutor() as pool,
    ):
        place = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{proxy.port}")
        working = pool.submit(work, place)
        for day in range(3):
            for number in range(20):
                queue.put(b"%d.%d" % (day, number))
            queue.put(b"poison %d" % day)
            today = [b"%d.%d" % (day, number) for number in range(20)]
            eventually(lambda today=today: any(data in begun for data in today), within=BOUND)  # type: ignore[misc]  # bound per day
            proxy.refuse()
            proxy.drop_connections()
            time.sleep(3 * TTL)
            proxy.heal()
            left = WorkQueueStats(waiting=0, taken=0, delayed=0, dead=day + 1)
            eventually(lambda left=left: queue.stats() == left, within=BOUND)  # type: ignore[misc]
            assert not working.done()
        stop.cancel()
        assert working.result(BOUND) == len(good)
    assert done.keys() == good
    # An item that was at work as the session ended is done again, and no other.
    assert sum(done.values()) <= len(good) + 3 * 4
    assert {item.data for item in queue.dead()} == tried.keys() == poison
    # An outage may cost one more try, because nobody knows that it was given back.
    assert all(3 <= number <= 4 for number in tried.values())


@pytest.mark.long
def test_a_rolling_deploy_of_ten_workers_that_end_gracefully_costs_no_item(
    cli: Cli, client: coordlock.Client
) -> None:
    """Each command ends with 0 on SIGTERM, in the middle of its work."""
    queue, log = client.work_queue("q"), cli.directory / "log"
    command = 'trap "exit 0" TERM; read item; sleep 0.3 & wait; echo $item >> log'
    words = ("queue", "work", "q", "--", "sh", "-c", command)
    put = [str(number) for number in range(100)]
    ended = {128 + signal.SIGTERM, -signal.SIGTERM}  # the latter while Python starts
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda item: queue.put(item.encode() + b"\n"), put))
    with ExitStack() as fleet:
        workers = [fleet.enter_context(cli.started(*words)) for _ in range(10)]
        eventually(log.exists, within=BOUND)
        for old in workers[:]:
            workers.append(fleet.enter_context(cli.started(*words)))
            old.send_signal(signal.SIGTERM)
            assert old.wait(BOUND) in ended
        nothing = WorkQueueStats(waiting=0, taken=0, delayed=0, dead=0)
        eventually(lambda: queue.stats() == nothing, within=BOUND)
        for new in workers[10:]:
            new.send_signal(signal.SIGTERM)
        assert {new.wait(BOUND) for new in workers[10:]} <= ended
    done = log.read_text().split()
    assert set(done) == set(put)
    # One that had just written its line as the signal came is done again.
    assert len(done) <= len(put) + 10


#: Takes item after item, and notes what it does; until it is killed.
CONSUMER = """
import os, sys, coordlock
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
queue = coordlock.connect(sys.argv[1]).work_queue("q")
def note(what, item):
    os.write(log, f"{what} {item.data.decode()} {os.getpid()}\\n".encode())
while True:
    item = queue.take(None)
    note("begins", item)
    item.lost.wait(0.05)
    try:
        item.ack()
    except coordlock.LockLost:
        note("late", item)
    else:
        note("done", item)
"""


@pytest.mark.long_on("etcd", "postgresql", "zookeeper")
def test_a_crowd_of_killed_and_stopped_consumers_loses_nothing_and_ends_no_item_twice(
    url: str, client: coordlock.Client, tmp_path: Path
) -> None:
    queue, log = client.work_queue("q"), tmp_path / "log"
    log.touch()

    def lines(what: str, of: str = "") -> list[list[str]]:
        words = map(str.split, log.read_text().splitlines())
        return [line for line in words if line[0] == what and line[2].startswith(of)]

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", CONSUMER, url, str(log)])

    def killed(consumer: subprocess.Popen[bytes]) -> None:
        consumer.kill()
        consumer.wait()

    put = {str(number) for number in range(120)}
    queue.put_many(sorted(item.encode() for item in put))
    crowd = [started() for _ in range(4)]
    with ExitStack() as stack:
        stack.callback(lambda: list(map(killed, crowd)))
        for kills in range(1, 5):
            eventually(lambda goal=15 * kills: len(lines("done")) >= goal, within=BOUND)  # type: ignore[misc]
            killed(crowd[0])
            crowd = [*crowd[1:], started()]
        stopped, pid = crowd[0], str(crowd[0].pid)
        eventually(lambda: lines("begins", pid), within=BOUND)
        stopped.send_signal(signal.SIGSTOP)
        nothing = WorkQueueStats(waiting=0, taken=0, delayed=0, dead=0)
        eventually(
            lambda: queue.stats() == nothing, within=BOUND
        )  # without its item: others did it
        ended = len(lines("done", pid)) + len(lines("late", pid))
        stopped.send_signal(signal.SIGCONT)
        if ended < len(lines("begins", pid)):
            eventually(lambda: len(lines("done", pid) + lines("late", pid)) > ended, within=BOUND)
    begun, done = (
        Counter(item for _, item, _ in lines("begins")),
        [line[1] for line in lines("done")],
    )
    assert begun.keys() == put
    assert len(set(done)) == len(done)
    # One may have been killed as its item had been acknowledged, before it noted that.
    assert len(put - set(done)) <= 5
    assert sum(begun.values()) <= len(put) + 5


def command_of_the_page(*options: str) -> list[str]:
    """The words of the page's CronJob behind coordlock, up to its command."""
    [manifest] = [
        block.split("```")[0]
        for block in PAGE.read_text("utf-8").split("```yaml\n")
        if "kind: CronJob" in block
    ]
    pod = yaml.safe_load(manifest)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [_, *words] = pod["containers"][0]["command"]
    return [*words[: words.index("--")], *options, "--"]


def last_slot(cli: Cli) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli.run("jobs", "show", "report", "--json").stdout)
    return dict(found["slots"][-1])


@pytest.mark.long_on("postgresql", "redis", "zookeeper")
def test_a_cronjob_whose_pod_fails_fails_until_an_operator_lets_it_run_again(cli: Cli) -> None:
    words = command_of_the_page("--keep-stderr")
    failing = ("sh", "-c", "echo disk full >&2; exit 3")
    pods = [cli.run(*words, *failing).returncode for _ in range(3)]
    assert pods == [3, 70, 70]
    check = cli.run("jobs", "check", "report", "--max-age", "25h")
    assert (check.returncode, check.stdout.rstrip()[-11:]) == (2, ": disk full")
    assert cli.run("jobs", "retry", "report", last_slot(cli)["slot"]).returncode == 0
    again = cli.run(*words, "echo", "works")
    assert (again.returncode, again.stdout) == (0, "works\n")
    assert cli.run("jobs", "check", "report", "--max-age", "25h").returncode == 0
    assert cli.run(*words, "echo", "never").stdout == ""


@pytest.mark.long
def test_a_cronjob_that_runs_at_least_once_does_its_work_in_the_second_pod(cli: Cli) -> None:
    """The first one fails, and its successor waits; the first one of the next Job is killed."""
    words = command_of_the_page("--policy", "at-least-once")
    assert cli.run(*words, "false").returncode == 1
    began = time.monotonic()
    second = cli.run(*words, "sh", "-c", "echo $COORDLOCK_ATTEMPT")
    assert (second.returncode, second.stdout) == (0, "2\n")
    assert 8 < time.monotonic() - began < 60
    cli.run("delete", "report", "--yes")
    with cli.started(*words, "sh", "-c", "echo >> log; exec sleep 60") as killed:
        eventually((cli.directory / "log").exists, within=BOUND)
        killed.kill()
        killed.wait(BOUND)
    third = cli.run(*words, "sh", "-c", "echo $COORDLOCK_ATTEMPT")
    assert (third.returncode, third.stdout) == (0, "2\n")
