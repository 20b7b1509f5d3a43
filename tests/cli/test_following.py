"""``--follow``, and what is shown while a service keeps a person waiting."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "command",
    [
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
    """As in ``coordlock leader x --follow | head -1``, though nothing changes any more."""
    with cli.started(*command, "--follow") as following:
        assert following.stdout is not None
        assert following.stderr is not None
        following.stdout.readline()
        following.stdout.close()
        assert following.wait(30) == 1
        assert following.stderr.read() == ""


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
