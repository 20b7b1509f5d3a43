"""What the shell completes."""

from __future__ import annotations

import pytest

from tests.cli.command import Cli


def completed(cli: Cli, line: str) -> list[str]:
    """What bash offers for ``line``, whose last word is being typed."""
    environment = {
        **cli.environment,
        "_COORDLOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    done = cli.run(env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.split()


@pytest.mark.parametrize("command", ["run", "show", "break", "hold", "ls"])
def test_names_of_locks_in_use_are_completed(cli: Cli, command: str) -> None:
    with cli.holding("nightly-a"), cli.holding("nightly-b"), cli.holding("weekly"):
        assert completed(cli, f"coordlock {command} ni") == ["plain,nightly-a", "plain,nightly-b"]
        del cli.environment["COORDLOCK_URL"]
        there = f"--url {cli.url}"
        assert completed(cli, f"coordlock {there} {command} w") == ["plain,weekly"]
        assert completed(cli, f"coordlock {command} {there} w") == ["plain,weekly"]


@pytest.mark.etcd
def test_nothing_is_said_where_the_service_cannot_tell(cli: Cli) -> None:
    """The fault: connection refused."""
    for url in ("etcd://127.0.0.1:1", "no URL"):
        cli.environment["COORDLOCK_URL"] = url
        assert completed(cli, "coordlock show ni") == []


def test_modes_and_the_files_of_the_command_are_completed(cli: Cli) -> None:
    assert completed(cli, "coordlock run --mode P") == ["plain,PR", "plain,PW"]
    assert completed(cli, "coordlock run nightly -- ./mig") == ["file,./mig"]


def test_the_shells_get_a_script(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        environment = {**cli.environment, "_COORDLOCK_COMPLETE": f"{shell}_source"}
        done = cli.run(env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert "_COORDLOCK_COMPLETE" in done.stdout
