"""What the shell completes."""

from __future__ import annotations

import subprocess
import sys

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from tests.cli.command import Cli


def completed(cli: Cli, line: str) -> list[str]:
    """What bash offers for ``line``, whose last word is being typed."""
    offers = cli.directory / "offers"
    environment = {
        **cli.environment,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(offers),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    done = cli.run(env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    return [offer.strip() for offer in offers.read_text().split("\n") if offer]


def check(cli: Cli, line: str, offers: list[str]) -> None:
    """Bash offers this in the end: a service that takes long to answer offers nothing."""
    eventually(lambda: completed(cli, line) == offers, f"{line}: {offers}", within=120)


@pytest.mark.parametrize("command", ["run", "show", "evict", "hold", "ls"])
def test_names_of_locks_in_use_are_completed(cli: Cli, command: str) -> None:
    with cli.holding("nightly-a"), cli.holding("nightly-b"), cli.holding("weekly"):
        check(cli, f"coordlock {command} ni", ["nightly-a", "nightly-b"])
        del cli.environment["COORDLOCK_URL"]
        there = f"--url {cli.url}"
        check(cli, f"coordlock {there} {command} w", ["weekly"])
        check(cli, f"coordlock {command} {there} w", ["weekly"])


def test_names_of_elections_and_groups_are_completed(cli: Cli) -> None:
    with coordlock.connect(cli.url) as client:
        client.election("one-e", b"10.0.0.5").campaign()
        client.group("one-g").join(b"10.0.0.5")
        for command in ("leader", "elect", "group members", "group join"):
            check(cli, f"coordlock {command} one", ["one-e", "one-g"])


def test_files_are_offered_for_commands_alone(cli: Cli) -> None:
    (cli.directory / "local.txt").touch()
    for before in (
        "ls --url",
        "run x --timeout",
        "hold --label",
        "run -E",
        "value set /k",
        "queue put q",
    ):
        assert completed(cli, f"coordlock {before} lo") == []
    assert completed(cli, "coordlock run --reach ") == ["machine", "cluster"]


@pytest.mark.etcd
def test_nothing_is_said_where_the_service_cannot_tell(cli: Cli) -> None:
    """The fault: connection refused."""
    for url in ("etcd://127.0.0.1:1", "no URL"):
        cli.environment["COORDLOCK_URL"] = url
        assert completed(cli, "coordlock show ni") == []


def test_keys_of_values_are_completed(cli: Cli) -> None:
    for key in ("/shop/limit", "/shop/live", "/shop/db/host"):
        assert cli.run("value", "set", key, "x").returncode == 0
    check(cli, "coordlock value get /shop/li", ["/shop/limit", "/shop/live"])
    check(cli, "coordlock value set /shop/db/", ["/shop/db/host"])
    assert completed(cli, "coordlock value get nowhere") == []


def test_names_of_work_queues_are_completed(cli: Cli) -> None:
    for name in ("mails", "moves", "orders"):
        assert cli.run("queue", "put", name, "x").returncode == 0
    for command in ("ls", "work", "put", "retry", "evict"):
        check(cli, f"coordlock queue {command} m", ["mails", "moves"])


def test_modes_and_the_files_of_the_command_are_completed(cli: Cli) -> None:
    assert completed(cli, "coordlock run --mode P") == ["PR", "PW"]
    (cli.directory / "migrate.sh").touch()
    assert completed(cli, "coordlock run nightly -- ./mig") == ["./migrate.sh"]
    assert completed(cli, "coordlock run nightly ./mig") == ["./migrate.sh"]


def test_commands_and_options_are_completed(cli: Cli) -> None:
    assert completed(cli, "coordlock d") == ["delete", "deadlocks", "doctor", "demo"]
    assert completed(cli, "coordlock hold --no") == ["--nonblock"]
    assert completed(cli, "coordlock run nightly --no") == ["--nonblock"]
    assert completed(cli, "coordlock demo s") == ["split-brain"]


def test_the_shells_get_a_script(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        done = cli.run("--completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        assert "_ARGCOMPLETE" in done.stdout
    assert "'tcsh' is not one of bash, zsh, fish" in cli.run("--completion", "tcsh").stderr


def test_bash_completes_a_name(cli: Cli) -> None:
    script = f"""
        coordlock() {{ {sys.executable} -m coordlock.cli "$@"; }}
        eval "$(coordlock --completion bash)"
        COMP_WORDS=(coordlock show ni) COMP_CWORD=2 COMP_LINE="coordlock show ni" COMP_POINT=17
        COMP_TYPE=9
        $(complete -p coordlock | sed 's/.*-F \\([^ ]*\\).*/\\1/') coordlock ni show
        echo "${{COMPREPLY[@]}}"
    """
    with cli.holding("nightly"):
        done = subprocess.run(
            ["bash", "-c", script], env=cli.environment, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["nightly"], done
