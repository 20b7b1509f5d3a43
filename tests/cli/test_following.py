"""``--follow``, and what is shown while a service keeps a person waiting."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Cli
from tests.cli.terminals import Terminal


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a service that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"etcd://127.0.0.1:{server.getsockname()[1]}"


def test_each_change_of_a_watched_queue_is_one_document(cli: Cli) -> None:
    with cli.started("show", "x", "--follow", "--json") as watching:
        assert watching.stdout is not None

        def contenders() -> int:
            assert watching.stdout is not None
            return len(json.loads(watching.stdout.readline())["contenders"])

        assert contenders() == 0
        with cli.holding("x"):
            assert contenders() == 1
        assert contenders() == 0
        watching.send_signal(signal.SIGINT)
        assert watching.communicate(timeout=60) == ("", "")
        assert watching.returncode == 130


@pytest.mark.parametrize(
    "command",
    [
        ("show", "x", "--json"),
        ("ls", "--json"),
        ("leader", "x"),
        ("group", "members", "x"),
        ("counter", "get", "x"),
        ("value", "get", "/x"),
        ("value", "ls", "/x"),
    ],
    ids=" ".join,
)
def test_what_follows_ends_when_nobody_reads_it_any_more(
    cli: Cli, command: tuple[str, ...]
) -> None:
    """As in ``coordlock show x --follow | head -1``, though nothing changes any more."""
    with cli.started(*command, "--follow") as following:
        assert following.stdout is not None
        assert following.stderr is not None
        following.stdout.readline()
        following.stdout.close()
        assert following.wait(30) == 1
        assert following.stderr.read() == ""


def test_a_watched_list_is_printed_at_each_change_where_no_terminal_is(cli: Cli) -> None:
    with cli.holding("nightly-1"), cli.started("ls", "night*", "--follow") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[0] == "NAME"
        assert watching.stdout.readline().split()[0] == "nightly-1"
        with cli.holding("weekly"), cli.holding("nightly-2"):
            assert watching.stdout.readline().split()[0] == "NAME"
            assert watching.stdout.readline().split()[0] == "nightly-1"
            assert watching.stdout.readline().split()[0] == "nightly-2"


def test_a_terminal_is_drawn_anew_and_ctrl_c_ends_quietly(cli: Cli, tmp_path: Path) -> None:
    with cli.holding("x", "--label", "first"), Terminal(cli.environment, tmp_path) as terminal:
        program = " ".join(cli.command("show", "x", "--follow"))
        terminal.write(f"TERM=xterm {program}; echo status $?\n")
        for _ in range(2):
            terminal.expect("\x1b\\[2J")
            terminal.expect("Ctrl-C ends")
            terminal.expect("first")
        terminal.interrupt(r"\^C\r\nstatus 130\r\n")
        # A terminal that cannot move its cursor gets changes only.
        terminal.write(f"TERM=dumb {program}; echo status $?\n")
        terminal.expect("first")
        terminal.interrupt(r"^[^\x1b]*status 130\r\n")


@pytest.mark.etcd
def test_a_person_sees_that_connecting_takes_a_while(cli: Cli, silent: str, tmp_path: Path) -> None:
    """The fault: a server that accepts connections, and nothing more."""
    line = ["--url", silent, "ls", "--connect-timeout"]
    with Terminal(cli.environment, tmp_path) as terminal:
        terminal.write(f"{' '.join(cli.command(*line, '5s'))}\n")
        terminal.expect(r"coordlock: connecting to etcd://[^\r]*\r\n")
        terminal.expect(r"^coordlock: etcd is unavailable")
        terminal.expect_prompt()


@pytest.mark.etcd
def test_programs_are_not_told_that_connecting_takes_a_while(cli: Cli, silent: str) -> None:
    """The fault: a server that accepts connections, and nothing more."""
    done = cli.run("ls", "--url", silent, "--connect-timeout", "1500ms")
    assert done.returncode == 69
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.etcd
@pytest.mark.parametrize(
    "words",
    [
        ["run", "x", "--timeout", "1s", "--", "true"],
        ["run", "x", "--slot", "1", "--timeout", "1s", "--", "true"],
        ["gate", "wait", "x", "--timeout", "1s"],
        ["latch", "wait", "x", "3", "--timeout", "1s"],
    ],
)
def test_the_timeout_of_a_wait_bounds_connecting(cli: Cli, silent: str, words: list[str]) -> None:
    """The fault: a server that accepts connections, and nothing more."""
    command = words.index("--") if "--" in words else len(words)
    options = ["--url", silent, "--connect-timeout", "10m"]
    assert cli.run(*words[:command], *options, *words[command:]).returncode == 69
