"""``coordlock hold``: a lock for scripts."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import Cli
from tests.cli.terminals import Terminal


def test_it_prints_the_token_and_holds_until_stdin_closes(cli: Cli) -> None:
    with cli.holding("x") as holder:
        assert cli.run("run", "-n", "x", "--", "true").returncode == 75
        assert holder.stdin is not None
        holder.stdin.write("what is written does not matter\n")
        holder.stdin.flush()
        assert cli.run("run", "-n", "x", "--", "true").returncode == 75
        holder.communicate(timeout=60)
        assert holder.returncode == 0
        assert cli.run("run", "-n", "x", "--", "true").returncode == 0


def test_the_token_is_the_one_in_the_queue(cli: Cli) -> None:
    with cli.started("hold", "x", "--json") as holder:
        assert holder.stdout is not None
        told = json.loads(holder.stdout.readline())
        (shown,) = cli.show("x")
        assert told == {"name": "x", "token": shown["token"], "backend": "local"}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_releases_it(cli: Cli, name: str) -> None:
    number = getattr(signal, name)
    with cli.holding("x") as holder:
        holder.send_signal(number)
        assert holder.wait(60) == 128 + number
        assert holder.stderr is not None
        assert holder.stderr.read() == ""
        assert cli.show("x") == []


def test_for_a_duration_whatever_stdin_does(cli: Cli) -> None:
    with cli.started("hold", "x", "--for", "1h", stdin=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        assert cli.run("run", "-n", "x", "--", "true").returncode == 75
    done = cli.run("hold", "y", "--for", "50ms")
    assert done.returncode == 0


def test_an_empty_stdin_is_an_error_because_nothing_would_be_held(cli: Cli) -> None:
    # A shell gives it to what a script starts with &.
    script = f"{' '.join(cli.command('hold', 'x'))} & wait $!"
    done = subprocess.run(
        ["sh", "-c", script], env=cli.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert "--for" in done.stderr


def test_typing_does_not_stop_it_in_the_background(cli: Cli, tmp_path: Path) -> None:
    with Terminal(cli.environment, tmp_path) as terminal:
        terminal.write(f"{' '.join(cli.command('hold', 'x'))} &\n")
        terminal.expect(r"\d{16}\r\n")
        terminal.write("sleep 1; jobs\n")  # time enough for a signal that must not come
        terminal.expect(r"\[1\].* Running ")
        terminal.expect_prompt()
        assert len(cli.show("x")) == 1
        terminal.write("fg; echo status $?\n")
        terminal.expect("hold x\r\n")
        terminal.write("\x04")
        terminal.expect("status 0")
        assert cli.show("x") == []


def test_a_busy_lock_gives_75(cli: Cli) -> None:
    with cli.holding("x"):
        done = cli.run("hold", "-n", "x")
        assert (done.returncode, done.stdout) == (75, "")
