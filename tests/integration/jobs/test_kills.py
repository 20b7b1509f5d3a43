"""Processes that run a job are killed and stopped at their work, and the policy is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

import coordlock
from coordlock.jobs.view import queue_of
from coordlock.testing.waiting import eventually
from tests.integration.jobs.worker import JOB

pytestmark = [pytest.mark.faults, pytest.mark.long_on("redis", "zookeeper")]

BOUND = 120.0
HERE = Path(__file__).parents[3]


@contextmanager
def started(
    url: str, log: Path, *arguments: str, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.integration.jobs.worker", url, str(log), *arguments]
    with subprocess.Popen(command, cwd=HERE, stdin=stdin) as process:
        try:
            yield process
        finally:
            process.kill()


def run_once_more(url: str, log: Path, policy: str) -> None:
    with started(url, log, policy) as process:
        assert process.wait(BOUND) == 0


@pytest.fixture
def url(shared_url: str) -> str:
    return shared_url.replace("ttl=60", "ttl=2")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def state(url: str) -> str:
    with coordlock.connect(url) as client:
        [slot] = client.job(JOB).info().slots
        return slot.state


@pytest.mark.parametrize(
    ("step", "policy", "wanted"),
    [
        ("before:1", "at-most-once", ["begins 1", "ends"]),
        ("before:1", "at-least-once", ["begins 1", "ends"]),
        ("after:1", "at-most-once", ["refused"]),
        ("after:1", "at-least-once", ["begins 2", "ends"]),
        ("before:2", "at-most-once", ["begins 1", "refused"]),
        ("before:2", "at-least-once", ["begins 1", "begins 2", "ends"]),
        ("after:2", "at-most-once", ["begins 1", "refused"]),
        ("after:2", "at-least-once", ["begins 1", "refused"]),
    ],
)
def test_a_run_that_is_killed_at_any_step_is_made_up_for_as_the_policy_says(
    url: str, log: Path, step: str, policy: str, wanted: list[str]
) -> None:
    with started(url, log, policy, step) as killed:
        assert killed.wait(BOUND) == -signal.SIGKILL
    run_once_more(url, log, policy)
    assert log.read_text().splitlines() == wanted
    was_begun = policy == "at-most-once" and step in ("after:1", "before:2")
    if was_begun:  # and the service keeps it for the lock's time-to-live
        eventually(lambda: state(url) == "interrupted", within=BOUND)
    else:
        assert state(url) == "done"


@pytest.mark.parametrize("policy", ["at-most-once", "at-least-once"])
def test_a_run_that_stood_still_for_too_long_records_nothing(
    url: str, log: Path, policy: str
) -> None:
    if url.startswith("local:"):
        # The kernel decides who lives, without a lease: the case can't be.
        pytest.skip("local: a paused process is alive, and keeps its locks by design")
    with started(url, log, policy, stdin=subprocess.PIPE) as late, ExitStack() as paused:
        eventually(lambda: log.exists() and log.read_text() == "begins 1\n", within=BOUND)
        late.send_signal(signal.SIGSTOP)
        paused.callback(late.send_signal, signal.SIGCONT)
        eventually(lambda: state(url) == "interrupted", within=BOUND)
        run_once_more(url, log, policy)
        successor = ["refused"] if policy == "at-most-once" else ["begins 2", "ends"]
        left = state(url)
        assert left == ("interrupted" if policy == "at-most-once" else "done")
        paused.close()
        assert late.stdin is not None
        late.stdin.close()
        assert late.wait(BOUND) == 0
    assert log.read_text().splitlines() == ["begins 1", *successor, "late"]
    assert state(url) == left


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "policy", "wanted"),
    [
        ("before:1", "at-most-once", ["begins 1", "ends", "late"]),
        ("before:1", "at-least-once", ["begins 1", "ends", "late"]),
        ("after:1", "at-most-once", ["refused", "late"]),
        ("after:1", "at-least-once", ["begins 2", "ends", "late"]),
        ("before:2", "at-most-once", ["begins 1", "refused", "late"]),
        ("before:2", "at-least-once", ["begins 1", "begins 2", "ends", "late"]),
        ("after:2", "at-most-once", ["begins 1", "refused", "late"]),
        ("after:2", "at-least-once", ["begins 1", "refused", "late"]),
    ],
)
def test_a_run_that_stands_still_at_any_step_comes_too_late(
    url: str, log: Path, step: str, policy: str, wanted: list[str]
) -> None:
    if url.startswith("local:"):
        # The kernel decides who lives, without a lease: the case can't be.
        pytest.skip("local: a paused process is alive, and keeps its locks by design")
    with started(url, log, policy, step, str(int(signal.SIGSTOP))) as late:
        _, status = os.waitpid(late.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with coordlock.connect(url) as client:  # at most once, nobody would wait for its end
            look = partial(client._engine.backend.snapshot, queue_of(JOB))
            eventually(lambda: not look().result(BOUND).contenders, within=BOUND)
        run_once_more(url, log, policy)
        before = state(url)
        late.send_signal(signal.SIGCONT)
        assert late.wait(BOUND) == 0
    assert log.read_text().splitlines() == wanted
    assert state(url) == before
