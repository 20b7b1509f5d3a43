"""One crontab line on hosts whose wall clocks are wrong, or jump: real ones, by libfaketime."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from testbed.systems.wall_clocks import WallClocks
from tests.cli.command import Cli

#: `JobContract` has the short ones, with clocks that are passed in.
pytestmark = [pytest.mark.faults, pytest.mark.long]

Hosts = Callable[[int], Cli]


class Host(Cli):
    """``coordlock`` under libfaketime, whose refusal of `time.sleep` kazoo does not survive."""

    def command(self, *arguments: str) -> list[str]:
        mended = "import testbed.clients.sleeping, coordlock.cli; coordlock.cli.script()"
        return [sys.executable, "-c", mended, *arguments]


@pytest.fixture
def cli(shared_url: str, tmp_path: Path) -> Cli:
    """A host whose clock is right."""
    if shared_url.startswith("local:"):
        # Two hosts with two clocks can't share the files of one machine.
        pytest.skip("local: one machine has one clock")
    return Cli(shared_url, tmp_path)


@pytest.fixture
def clocks(tmp_path: Path) -> WallClocks:
    return WallClocks(tmp_path / "clocks")


@pytest.fixture
def host(cli: Cli, clocks: WallClocks) -> Hosts:
    """A host whose clock is wrong by so many seconds."""

    def host(seconds: int) -> Cli:
        one = Host(cli.url, cli.directory)
        clock = clocks.clock(str(seconds))
        clock.set(seconds)
        one.environment |= clock.environment
        return one

    return host


def slots(cli: Cli) -> dict[str, Any]:
    found = json.loads(cli.run("jobs", "show", "x", "--json").stdout)["slots"]
    return {one["slot"]: one for one in found}


def minute() -> datetime:
    """The minute that has begun last."""
    return datetime.now(UTC).replace(second=0, microsecond=0)


def shown(slot: datetime) -> str:
    return slot.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_a_clock_that_is_an_hour_wrong_spends_its_own_times_alone(
    cli: Cli, host: Hosts, catch_up: str
) -> None:
    scheduled, hour = minute(), timedelta(hours=1)
    line = ("run", "x", "--cron", f"{scheduled:%-M} * * * *", "--catch-up", catch_up, "--")
    words = (*line, "sh", "-c", "echo $COORDLOCK_SLOT")
    assert cli.run("run", "x", "--slot", shown(scheduled - hour), "--", "true").returncode == 0
    ahead = host(3600 + 120).run(*words)
    assert ahead.returncode == 0
    own = f"{shown(scheduled + hour)}\n"
    assert ahead.stdout == (f"{shown(scheduled)}\n{own}" if catch_up == "all" else own)
    beyond = host(3 * 3600).run(*words)
    assert (beyond.returncode, beyond.stdout) == (78, "")
    assert "ahead of the service's time" in beyond.stderr
    behind = host(-3600).run(*words)
    assert (behind.returncode, behind.stdout) == (0, "")
    assert behind.stderr == ""
    right = cli.run(*words)
    assert right.returncode == 0
    assert right.stdout == ("" if catch_up == "all" else f"{shown(scheduled)}\n")
    wanted = [shown(scheduled + number * hour) for number in (-1, 0, 1)]
    assert {slot: one["state"] for slot, one in slots(cli).items()} == dict.fromkeys(wanted, "done")
