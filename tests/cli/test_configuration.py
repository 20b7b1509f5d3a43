"""Where a command finds its configuration, above all under cron, and what it says without one.

Cron starts its jobs in the user's home, with next to nothing in the environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from coordlock.backend.config import NOT_CONFIGURED
from testbed.servers.etcd import Etcd
from tests.cli.command import Cli
from tests.cli.terminals import plain, screen

#: Prints the name of the backend.
JOB: Final = ("run", "nightly", "--", "/bin/sh", "-c", "echo $COORDLOCK_BACKEND")


class Host:
    """A host with a project that is configured for etcd, and its user's cron."""

    def __init__(self, top: Path, url: str) -> None:
        self.home, self.project = top / "home", top / "project"
        self.home.mkdir()
        self.project.mkdir()
        self.file = self.project / "coordlock.toml"
        self.file.write_text(f'url = "{url}"\n')
        self.environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
        # The default is in the account's home, wherever HOME is.
        self.environment["XDG_STATE_HOME"] = str(top / "state")

    def cron(
        self, *arguments: str, unset: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """``coordlock ARGUMENTS`` as cron runs it; ``variables`` are those of the crontab."""
        return self._cli(self.home).run(
            *arguments,
            env={k: v for k, v in (self.environment | variables).items() if k != unset},
        )

    def by_hand(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``coordlock ARGUMENTS`` in the project."""
        return self._cli(self.project).run(*arguments, env=self.environment)

    def at_a_terminal(self, *arguments: str) -> list[str]:
        """What ``coordlock ARGUMENTS`` shows at a terminal, in the user's home."""
        cli = self._cli(self.home)
        cli.environment = self.environment
        return [plain(line) for line in screen(cli, 500, *arguments)]

    def _cli(self, directory: Path) -> Cli:
        return Cli("", directory)


@pytest.fixture
def host(etcd: Etcd, root: str, tmp_path: Path) -> Host:
    return Host(tmp_path, etcd.url_for(root))


def test_cron_is_told_that_a_job_locks_only_its_own_machine(host: Host) -> None:
    by_hand = host.by_hand(*JOB)
    assert (by_hand.stdout, by_hand.stderr) == ("etcd\n", "")
    by_cron = host.cron(*JOB)
    assert (by_cron.returncode, by_cron.stdout) == (0, "local\n")
    assert by_cron.stderr == f"coordlock: {NOT_CONFIGURED}\n"


def test_whoever_asks_for_this_machine_by_name_is_not_told(host: Host) -> None:
    for done in (
        host.cron(*JOB, COORDLOCK_URL="local://"),
        host.cron(*JOB[:2], "--url", "local://", *JOB[2:]),
    ):
        assert (done.returncode, done.stdout, done.stderr) == (0, "local\n", "")


def test_nor_is_whoever_sits_at_a_terminal(host: Host) -> None:
    assert host.at_a_terminal(*JOB) == ["local"]


@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_job_that_needs_the_cluster_is_refused_without_it(host: Host, way: str) -> None:
    option = ("--reach", "cluster") if way == "option" else ()
    variables = {} if way == "option" else {"COORDLOCK_REACH": "cluster"}
    job = (*JOB[:2], *option, *JOB[2:])
    done = host.cron(*job, **variables)
    assert (done.returncode, done.stdout) == (78, "")
    [line] = done.stderr.splitlines()
    assert "local:// (the default, because no configuration was found)" in line
    assert "COORDLOCK_URL=etcd://" in line
    done = host.cron(*job, **variables, COORDLOCK_CONFIG=str(host.file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "etcd\n", "")


def test_without_a_home_in_the_environment_a_job_fails_in_words(host: Host) -> None:
    done = host.cron("run", "--reach", "cluster", *JOB[1:], unset="HOME", COORDLOCK_URL="local://")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("coordlock: ")
    done = host.cron("doctor", "--json", unset="HOME", COORDLOCK_CONFIG=str(host.file))
    assert done.returncode == 0, done


def test_the_doctor_says_it_too(host: Host) -> None:
    for done in (host.cron("doctor"), host.cron("doctor", "--json")):
        assert (done.returncode, done.stderr) == (0, "")
    finding: dict[str, Any] = json.loads(done.stdout)["findings"][0]
    assert (finding["topic"], finding["state"]) == ("configuration", "warning")
    assert "the default" in finding["detail"]
    assert finding["advice"] == NOT_CONFIGURED
    assert NOT_CONFIGURED not in host.by_hand("doctor").stdout


@pytest.mark.parametrize(
    "source",
    [
        "import coordlock\nfor _ in range(3): coordlock.connect({}).close()",
        "import asyncio, coordlock\n"
        "async def main():\n    async with coordlock.connect_async({}): pass\n"
        "asyncio.run(main())",
    ],
    ids=["sync", "async"],
)
def test_a_program_logs_it_once_as_a_warning(host: Host, source: str) -> None:
    def said(argument: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", source.format(argument)],
            cwd=host.home,
            env=host.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=True,
        ).stderr

    assert said("") == f"coordlock: {NOT_CONFIGURED}\n"
    assert said("'local://'") == ""
    assert said("url='local://'") == ""
