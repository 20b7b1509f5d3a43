"""Signals to ``coordlock``: while it waits, while its command runs, and those it cannot catch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

import coordlock
from coordlock.cli.child import Child
from coordlock.cli.guard import Guard
from coordlock.cli.supervision import Supervision
from coordlock.testing.waiting import eventually
from tests.cli.beating import Beating
from tests.cli.command import Cli, is_gone

ENDING = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]


@pytest.mark.parametrize("name", ENDING)
def test_a_signal_while_waiting_leaves_the_queue(cli: Cli, name: str) -> None:
    number = getattr(signal, name)
    with cli.holding("x"), cli.started("run", "x", "--", "echo", "ran") as waiter:
        cli.wait_for_queue("x", 2)
        waiter.send_signal(number)
        output, errors = waiter.communicate(timeout=60)
        assert (waiter.returncode, output, errors) == (128 + number, "", "")
        assert len(cli.show("x")) == 1


@pytest.mark.parametrize("name", [*ENDING, "SIGUSR1", "SIGUSR2"])
def test_a_signal_is_forwarded_and_the_command_decides(cli: Cli, name: str) -> None:
    script = f"trap 'echo got {name}; exit 9' {name.removeprefix('SIG')}; echo ready; "
    script += "while :; do sleep 0.05; done"
    with cli.started("run", "x", "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        assert process.communicate(timeout=60)[0] == f"got {name}\n"
        assert process.returncode == 9


def test_a_forwarded_signal_reaches_the_whole_group(cli: Cli, beating: Beating) -> None:
    with cli.started("run", "x", "--", *beating.command(stubborn=False)) as process:
        beating.wait_until_both_beat()
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
        eventually(beating.are_gone, "both have ended")


def test_a_command_that_ignores_sigterm_keeps_the_lock(cli: Cli, beating: Beating) -> None:
    with cli.started("run", "x", "--", *beating.command(stubborn=True)) as process:
        beating.wait_until_both_beat()
        process.terminate()
        before = beating.last()
        eventually(lambda: beating.last() > before, "it beats on")
        assert cli.run("run", "-n", "x", "--", "true").returncode == 75
        process.send_signal(signal.SIGINT)  # which it does not ignore
        assert process.wait(60) != 0


def test_what_the_caller_ignores_stays_ignored(cli: Cli) -> None:
    script = "trap '' HUP; exec \"$@\""
    command = cli.command(
        "run", "x", "--", "sh", "-c", "kill -HUP $$ $(ps -o ppid= -p $PPID); echo alive"
    )
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command],
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "alive\n")


def test_signals_have_their_usual_meaning_in_the_command(cli: Cli) -> None:
    # Python ignores SIGPIPE, and its children must not: yes would complain instead of ending.
    done = cli.run("run", "x", "--", "sh", "-c", "yes | head -1; trap")
    assert (done.returncode, done.stdout, done.stderr) == (0, "y\n", "")


def test_nothing_works_on_when_the_group_of_coordlock_is_killed(cli: Cli, beating: Beating) -> None:
    """The fault: SIGKILL to coordlock and all that is in its group, as supervisors do it."""
    command = beating.command(stubborn=True)
    with cli.started("run", "x", "--", *command, process_group=0) as process:
        beating.wait_until_both_beat()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        eventually(beating.are_gone, "both have ended")


def test_a_command_that_waits_for_its_lock_never_starts_when_coordlock_is_killed(
    cli: Cli, tmp_path: Path
) -> None:
    """The fault: SIGKILL while it waits."""
    with cli.holding("x"), cli.started("run", "x", "--", "touch", "ran") as process:
        cli.wait_for_queue("x", 2)
        children = _children(process.pid)
        assert children
        process.kill()
        process.wait(60)
        eventually(lambda: all(map(is_gone, children)), "no helper is left")
    assert cli.run("run", "x", "--", "true").returncode == 0
    assert not (tmp_path / "ran").exists()


def test_the_command_ends_when_its_guard_is_killed(cli: Cli, beating: Beating) -> None:
    """The fault: SIGKILL to the guard alone, as the kernel does it that runs out of memory."""
    with cli.started("run", "x", "--", *beating.command(stubborn=True)) as process:
        beating.wait_until_both_beat()
        (guard,) = _children(process.pid)
        os.kill(guard, signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 74
        assert "guard, was killed" in errors
        eventually(beating.are_gone, "both have ended")


def test_a_lock_is_not_kept_for_a_command_that_nobody_can_start(cli: Cli) -> None:
    """The fault: SIGKILL to the guard while coordlock waits for the lock."""
    with cli.holding("x") as holder, cli.started("run", "x", "--", "echo", "ran") as process:
        cli.wait_for_queue("x", 2)
        (guard,) = _children(process.pid)
        os.kill(guard, signal.SIGKILL)
        holder.communicate("", timeout=60)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (74, "")
        assert "guard, was killed" in errors


def test_a_guard_that_was_stopped_goes_on_with_the_next_order(cli: Cli) -> None:
    """The fault: SIGSTOP to the guard, while coordlock waits and while the command runs."""
    with (
        cli.holding("x") as holder,
        cli.started("run", "x", "--", "sh", "-c", "echo up; exec sleep 600") as process,
    ):
        cli.wait_for_queue("x", 2)
        (guard,) = _children(process.pid)
        os.kill(guard, signal.SIGSTOP)
        holder.communicate("", timeout=60)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.kill(guard, signal.SIGSTOP)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM


def test_the_status_is_known_where_the_caller_ignores_the_end_of_children(cli: Cli) -> None:
    program = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    program += "os.execv(sys.argv[1], sys.argv[1:])"
    command = cli.command("run", "x", "--", "sh", "-c", "exit 7")
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        env=cli.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7, b"")


def test_a_lock_that_was_lost_before_the_start_leaves_signals_as_they_were(cli: Cli) -> None:
    with coordlock.connect(cli.url) as client:
        grant = client.lock("x").acquire()
        assert cli.run("evict", "x", "--yes").returncode == 0
        assert grant.lost.wait(60)
        before = signal.getsignal(signal.SIGTERM)
        child = Child(cast(Guard, None), ["true"])
        with pytest.raises(coordlock.LockLost):
            Supervision(child, grant, "lock 'x'", 1.0, None, print).run({})
        assert signal.getsignal(signal.SIGTERM) == before


def test_no_command_survives_a_kill_at_any_moment_of_the_start(cli: Cli, tmp_path: Path) -> None:
    """The fault: SIGKILL at moments from the fork of the guard to the command's start."""
    began = time.monotonic()
    assert cli.run("run", "x", "--", "true").returncode == 0
    whole = time.monotonic() - began
    command = ("sh", "-c", f"echo $$ >> {tmp_path}/pids; exec sleep 600")
    for moment in range(12):
        with cli.started("run", f"x{moment}", "--", *command) as process:
            time.sleep(whole * moment / 3)
            process.kill()
            process.wait(60)
    pids = tmp_path / "pids"
    assert pids.exists(), "some had started"
    eventually(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()))


def test_no_process_is_left_behind(cli: Cli) -> None:
    with cli.started("run", "x", "--", "cat") as process:
        cli.wait_for_queue("x", 1)
        (guard,) = _children(process.pid)
        children = [guard, *_children(guard)]
        assert len(children) == 2
        process.communicate("", timeout=60)
        assert all(map(is_gone, children))


def test_waiting_and_supervising_use_no_processor_time(cli: Cli) -> None:
    with cli.started("run", "x", "--", "sh", "-c", "read line; sleep 2") as process:
        cli.wait_for_queue("x", 1)
        before = _processor_time(process.pid)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        eventually(lambda: _state(process.pid) == "Z", "it has ended")
        # Starting, the end and the clock's grain cost some; polling would cost all the time.
        assert _processor_time(process.pid) - before < 0.5


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _state(pid: int) -> str:
    return _fields(pid)[0]


def _processor_time(pid: int) -> float:
    fields = _fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
