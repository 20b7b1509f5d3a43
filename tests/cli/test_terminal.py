"""``coordlock run`` in an interactive shell: the terminal is the command's, and comes back."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlock.testing.waiting import eventually
from tests.cli.command import Cli
from tests.cli.terminals import Terminal


@pytest.fixture
def terminal(cli: Cli, tmp_path: Path) -> Iterator[Terminal]:
    program = tmp_path / "bin" / "coordlock"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m coordlock.cli "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{cli.environment['PATH']}"
    with Terminal(cli.environment | {"PATH": path}, tmp_path) as opened:
        yield opened


def test_what_is_typed_goes_to_the_command_and_then_to_the_shell(terminal: Terminal) -> None:
    terminal.write("coordlock run x -- cat; echo status $?\n")
    terminal.write("hello\n")
    terminal.expect("hello\r\nhello\r\n")  # the terminal's echo, then cat's
    terminal.write("\x04")
    terminal.expect("status 0")
    terminal.expect_prompt()
    terminal.write("echo $((6 * 7))\n")
    terminal.expect("\r\n42\r\n")


def test_the_command_has_the_terminal(terminal: Terminal) -> None:
    program = "import os; print('own:', os.isatty(0), os.tcgetpgrp(0) == os.getpgrp())"
    terminal.write(f"coordlock run x -- {sys.executable} -c {shlex.quote(program)}\n")
    terminal.expect("own: True True")


@pytest.mark.parametrize(("command", "what"), [("value set /k", "value"), ("queue put q", "item")])
def test_data_that_is_to_be_typed_is_asked_for(
    terminal: Terminal, cli: Cli, command: str, what: str
) -> None:
    terminal.write(f"coordlock {command}; echo status $?\n")
    terminal.expect(f"coordlock: reading the {what} from the terminal; end with Ctrl-D")
    terminal.write("typed\n\x04")
    terminal.expect("status 0")
    shown = cli.run("value", "get", "/k") if what == "value" else cli.run("queue", "ls", "q")
    assert "typed" in shown.stdout


def test_ctrl_c_reaches_the_command_once(terminal: Terminal) -> None:
    script = (
        "n=0; trap 'n=$((n + 1)); echo interrupts $n' INT; echo up; while :; do sleep 0.05; done"
    )
    terminal.write(f"coordlock run x -- sh -c {shlex.quote(script)}; echo status $?\n")
    terminal.expect("up\r\n")
    terminal.write("\x03")
    terminal.expect("interrupts 1")
    terminal.write("\x03")
    terminal.expect("interrupts 2")  # with two signals for each there would be more by now
    terminal.write("\x1c")
    terminal.expect("status 131")


def test_ctrl_c_while_waiting_leaves_the_queue(terminal: Terminal, cli: Cli) -> None:
    with cli.holding("x"):
        terminal.write("coordlock run x -- echo ran; echo status $?\n")
        cli.wait_for_queue("x", 2)
        terminal.write("\x03")
        terminal.expect("status 130")
        assert len(cli.show("x")) == 1


def test_ctrl_z_stops_the_job_and_fg_continues_it(terminal: Terminal, cli: Cli) -> None:
    terminal.write("coordlock run x -- cat\n")
    terminal.write("one\n")
    terminal.expect("one\r\none\r\n")
    terminal.write("\x1a")
    terminal.expect("Stopped")
    terminal.expect_prompt()
    assert cli.run("run", "-n", "x", "--", "true").returncode == 75
    terminal.write("fg\n")
    terminal.expect("coordlock run x -- cat\r\n")
    terminal.write("two\n")
    terminal.expect("two\r\ntwo\r\n")
    terminal.write("\x04")
    terminal.expect_prompt()
    terminal.write("echo $?\n")
    terminal.expect("\r\n0\r\n")


def test_a_stopped_job_goes_on_in_the_background(terminal: Terminal, tmp_path: Path) -> None:
    # It starts no process, because one that stops between vfork and exec blocks its parent.
    os.mkfifo(tmp_path / "fifo")
    script = "echo up; read line <fifo; echo finished"
    terminal.write(f"coordlock run x -- sh -c {shlex.quote(script)}\n")
    terminal.expect("up\r\n")
    terminal.write("\x1a")
    terminal.expect("Stopped")
    terminal.expect_prompt()
    terminal.write("bg\n")
    terminal.expect_prompt()
    terminal.write("echo >fifo; wait\n")
    terminal.expect("finished")
    terminal.expect_prompt()


def test_a_background_job_that_wants_to_read_stops_until_fg(terminal: Terminal) -> None:
    terminal.write("coordlock run x -- cat &\n")
    terminal.expect_prompt()
    terminal.write("until jobs | grep Stopped; do sleep 0.05; done\n")
    terminal.expect("Stopped .*\r\n")
    terminal.expect_prompt()
    terminal.write("fg\n")
    terminal.expect("coordlock run x -- cat\r\n")
    terminal.write("hello\n")
    terminal.expect("hello\r\nhello\r\n")
    terminal.write("\x04")
    terminal.expect_prompt()


def test_the_others_of_a_pipeline_keep_the_terminal(terminal: Terminal) -> None:
    # The pager reads the terminal itself, as less does.
    pager = "cat >/dev/null; read answer </dev/tty; echo answer $answer"
    terminal.write(f"coordlock run x -- echo text | sh -c {shlex.quote(pager)}\n")
    terminal.write("blue\n")
    terminal.expect("answer blue")
    terminal.expect_prompt()


def test_a_command_in_a_pipeline_gets_the_terminal_when_it_reads(terminal: Terminal) -> None:
    script = "read answer </dev/tty; echo answer $answer"
    terminal.write(f"echo piped | coordlock run x -- sh -c {shlex.quote(script)} | cat\n")
    terminal.write("green\n")
    terminal.expect("answer green")
    terminal.expect_prompt()


def test_a_killed_command_leaves_a_usable_terminal(terminal: Terminal) -> None:
    script = "stty raw -echo; kill -9 $$"
    terminal.write(f"coordlock run x -- sh -c {shlex.quote(script)}; echo status $?\n")
    terminal.expect("status 137\r\n")
    terminal.expect_prompt()
    terminal.write("stty -a | tr ';' ' '\n")
    terminal.expect(r"[^-]icanon")
    terminal.expect(r"[^-]echo ")


def test_a_terminal_that_goes_away_ends_the_command(cli: Cli, tmp_path: Path) -> None:
    with Terminal(cli.environment, tmp_path) as terminal:
        terminal.write(f"{sys.executable} -m coordlock.cli run x -- cat\n")
        terminal.write("hello\n")
        terminal.expect("hello\r\nhello\r\n")
    eventually(lambda: cli.run("run", "-n", "x", "--", "true").returncode == 0, "the lock is free")


def test_a_leader_opens_its_terminal_once_for_all_terms(terminal: Terminal, cli: Cli) -> None:
    script = "echo up $(ps -o ppid= -p $PPID).; exec sleep 600"
    terminal.write(f"coordlock elect x -- sh -c {shlex.quote(script)}\n")
    pid = int(terminal.expect(r"up +(\d+)\.").group(1))
    for _ in range(3):
        assert cli.run("evict", "x", "--yes").returncode == 0
        terminal.expect(rf"up +{pid}\.")
    files = Path(f"/proc/{pid}/fd").iterdir()
    assert [os.readlink(file) for file in files].count("/dev/tty") == 1
    terminal.write("\x03")
    terminal.expect_prompt()
