"""`coordlock run --cron` on several hosts, of which one is killed or stands still at work."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from coordlock.testing.waiting import eventually
from tests.cli.command import Cli

pytestmark = [pytest.mark.faults, pytest.mark.long_on("local", "redis", "zookeeper")]

BOUND = 120.0
LINE = ("run", "x", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--ttl", "2s")


@pytest.fixture
def cli(shared_url: str, tmp_path: Path) -> Cli:
    return Cli(shared_url, tmp_path)


def slots(cli: Cli) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli.run("jobs", "show", "x", "--json").stdout)["slots"]
    return found


@pytest.mark.long
@pytest.mark.parametrize("policy", ["at-most-once", "at-least-once"])
def test_a_host_that_stood_still_ends_its_command_and_records_nothing(
    cli: Cli, policy: str
) -> None:
    if cli.url.startswith("local:"):
        pytest.skip("local: a paused process is alive, and keeps its locks by design")
    line = (*LINE, "--policy", policy, "--")
    with cli.started(*line, "sh", "-c", "echo >> log; exec sleep 60") as late:
        eventually(lambda: (cli.directory / "log").exists(), within=BOUND)
        late.send_signal(signal.SIGSTOP)
        eventually(lambda: slots(cli)[0]["state"] == "interrupted", within=BOUND)
        other = cli.run(*line, "sh", "-c", "echo >> log")
        assert other.returncode == (70 if policy == "at-most-once" else 0)
        before = slots(cli)
        late.send_signal(signal.SIGCONT)
        assert late.wait(BOUND) == 79
    assert slots(cli) == before
    starts = 1 if policy == "at-most-once" else 2
    assert (cli.directory / "log").read_text() == "\n" * starts
