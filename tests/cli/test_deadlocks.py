"""``coordlock deadlocks``: the cycles that clients wait in."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import coordlock
from coordlock.kernel.deadlock_detector import DeadlockDetector
from coordlock.runtime.driver import Steps
from coordlock.testing.waiting import eventually
from tests.cli.command import Cli


def find_nothing(*_: object) -> Steps[None]:
    yield from ()


@pytest.fixture
def cycle(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads wait for each other. The fault: neither finds it."""
    monkeypatch.setattr(DeadlockDetector, "_look", find_nothing)
    both_hold = threading.Barrier(2)
    stop = coordlock.Cancellation()
    with (
        coordlock.connect(cli.url, deadlock_delay="100ms", label="worker") as client,
        ThreadPoolExecutor(2) as pool,
    ):

        def work(first: str, second: str) -> None:
            with client.lock(first):
                both_hold.wait(30)
                with suppress(coordlock.WaitCancelled):
                    client.lock(second).acquire(cancellation=stop).release()

        calls = [pool.submit(work, *pair) for pair in (("a", "b c"), ("b c", "a"))]
        eventually(lambda: client.admin.deadlocks() != ())
        yield
        stop.cancel()
        for call in calls:
            call.result(30)


def test_without_a_deadlock_it_says_so(cli: Cli) -> None:
    done = cli.run("deadlocks")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "coordlock: there is no deadlock\n"
    assert json.loads(cli.run("deadlocks", "--json").stdout) == []


@pytest.mark.usefixtures("cycle")
def test_a_deadlock_is_drawn_with_who_gives_up(cli: Cli) -> None:
    done = cli.run("deadlocks")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] in lines[-1]
    assert lines[-1].endswith("(gives up)")
    assert sorted(lines[1::2]) == ["  waits for 'a', held by", "  waits for 'b c', held by"]
    assert all("worker" in line for line in lines[::2])
    threads = {re.findall(r"in thread '(.+)'$", line)[0] for line in lines[:4:2]}
    assert len(threads) == 2


@pytest.mark.usefixtures("cycle")
def test_a_deadlock_is_told_as_json(cli: Cli) -> None:
    [deadlock] = json.loads(cli.run("deadlocks", "--json").stdout)
    assert {step["name"] for step in deadlock["steps"]} == {"a", "b c"}
    for step in deadlock["steps"]:
        assert step["holding"]
        assert step["waiter"]["token"] > step["blocker"]["token"]
        assert step["waiter"]["at"] != step["blocker"]["at"]


@pytest.mark.usefixtures("cycle")
def test_what_is_published_is_no_lock_in_use(cli: Cli) -> None:
    assert {one["name"] for one in json.loads(cli.run("ls", "--json").stdout)} == {"a", "b c"}
