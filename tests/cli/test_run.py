"""``coordlock run``: the command's environment, files and exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coordlock.testing.waiting import eventually
from tests.cli.command import Cli


@pytest.mark.parametrize("status", [0, 1, 7, 75, 79, 255])
def test_the_exit_status_is_the_commands(cli: Cli, status: int) -> None:
    done = cli.run("run", "x", "--", "sh", "-c", f"exit {status}")
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGINT", "SIGSEGV"])
def test_a_command_that_a_signal_ended_gives_128_and_its_number(cli: Cli, name: str) -> None:
    number = getattr(signal, name)
    done = cli.run("run", "x", "--", "sh", "-c", f"kill -{number} $$")
    assert done.returncode == 128 + number


def test_the_command_finds_name_token_and_backend_in_its_environment(cli: Cli) -> None:
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    done = cli.run("run", "a b/ü", "--", sys.executable, "-c", program)
    found = json.loads(done.stdout)
    assert found["COORDLOCK_NAME"] == "a b/ü"
    assert found["COORDLOCK_BACKEND"] == "local"
    assert int(found["COORDLOCK_TOKEN"]) > 0
    again = json.loads(cli.run("run", "a b/ü", "--", sys.executable, "-c", program).stdout)
    assert int(again["COORDLOCK_TOKEN"]) > int(found["COORDLOCK_TOKEN"])


def test_the_command_is_part_of_the_trace_of_the_process_that_started_it(cli: Cli) -> None:
    cli.environment["TRACEPARENT"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    done = cli.run("run", "x", "--", "printenv", "TRACEPARENT")
    assert done.stdout.strip() == cli.environment["TRACEPARENT"]


def test_the_command_is_part_of_the_span_in_which_coordlock_runs(cli: Cli) -> None:
    cli.environment["TRACEPARENT"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    program = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from coordlock.cli import main

sys.argv = ["coordlock", "run", "x", "--", "printenv", "TRACEPARENT"]
with TracerProvider().get_tracer("app").start_as_current_span("run") as span:
    print(format(span.get_span_context().span_id, "016x"), flush=True)
    status = main()
sys.exit(status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    span, traceparent = done.stdout.split()
    assert traceparent.split("-")[2] == span


def test_no_shell_reads_the_command(cli: Cli) -> None:
    arguments = ["$HOME", "a  b", "*", "-n", "--", ";", ""]
    program = "import json, sys; print(json.dumps(sys.argv[1:]))"
    done = cli.run("run", "x", "--", sys.executable, "-c", program, *arguments)
    assert json.loads(done.stdout) == arguments


def test_input_output_and_errors_pass_through(cli: Cli) -> None:
    done = cli.run("run", "x", "--", "sh", "-c", "tr a-z A-Z; echo oops >&2", input="hello\n")
    assert (done.stdout, done.stderr) == ("HELLO\n", "oops\n")


def test_further_files_of_the_caller_pass_through_and_none_of_coordlocks(cli: Cli) -> None:
    ours, theirs = os.pipe()
    try:
        program = "import os; print(*sorted(os.listdir('/proc/self/fd'), key=int))"
        # As it is without coordlock, listing included.
        plain = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, pass_fds=[theirs]
        )
        done = cli.run("run", "x", "--", sys.executable, "-c", program, pass_fds=[theirs])
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == plain.stdout
    assert str(theirs) in done.stdout.split()


def test_a_command_that_is_not_there_gives_127_and_frees_the_lock_at_once(cli: Cli) -> None:
    done = cli.run("run", "x", "--", "no-such-command-anywhere")
    assert done.returncode == 127
    assert done.stderr == "coordlock: no-such-command-anywhere: No such file or directory\n"
    assert cli.run("run", "-n", "x", "--", "true").returncode == 0


def test_a_path_that_cannot_be_searched_makes_no_difference(cli: Cli, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.write_text("a file, which no user can search")
    environment = cli.environment | {"PATH": f"{closed}:{os.environ['PATH']}"}
    done = cli.run("run", "x", "--", "no-such-command-anywhere", env=environment)
    assert done.returncode == 127


def test_a_file_that_cannot_be_executed_gives_126(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("no program")
    assert cli.run("run", "x", "--", str(file)).returncode == 126
    file.chmod(0o755)
    assert cli.run("run", "x", "--", str(file)).returncode == 126
    assert cli.run("run", "x", "--", str(tmp_path)).returncode == 126


def test_a_busy_lock_gives_75_and_names_the_holder(cli: Cli) -> None:
    with cli.holding("x", "--label", "the holder"):
        done = cli.run("run", "-n", "x", "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (75, "")
        assert "the holder" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_the_conflict_status_can_be_chosen_and_the_message_left_out(cli: Cli) -> None:
    with cli.holding("x"):
        done = cli.run("run", "-n", "-q", "-E", "3", "x", "--", "true")
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_the_owner_is_labelled_with_the_command_and_nothing_secret(cli: Cli) -> None:
    with cli.started("run", "x", "--", "/bin/sh", "-c", "cat; : password"):
        cli.wait_for_queue("x", 1)
        (holder,) = cli.show("x")
        assert holder["owner"]["label"] == "sh"


def test_the_lock_is_free_when_the_command_has_ended_and_not_before(cli: Cli) -> None:
    with cli.started("run", "x", "--", "cat") as process:
        cli.wait_for_queue("x", 1)
        assert cli.run("run", "-n", "x", "--", "true").returncode == 75
        process.communicate("", timeout=60)
        assert process.returncode == 0
        assert cli.run("run", "-n", "x", "--", "true").returncode == 0


def test_what_the_command_left_in_the_background_lives_on(cli: Cli, tmp_path: Path) -> None:
    script = "(trap '' HUP; while [ ! -e stop ]; do sleep 0.05; done; touch stopped) >&- 2>&- &"
    assert cli.run("run", "x", "--", "sh", "-c", script).returncode == 0
    (tmp_path / "stop").touch()
    eventually((tmp_path / "stopped").exists)


def test_verbose_says_what_happens_and_no_zombie_is_left(cli: Cli) -> None:
    done = cli.run("run", "-v", "x", "--", "sh", "-c", "ps -o stat= --ppid $PPID")
    assert done.returncode == 0
    assert "Z" not in done.stdout
    for word in ("connected", "holding lock 'x'", "released"):
        assert word in done.stderr
    assert "waiting" not in done.stderr


def test_verbose_names_the_holder_that_is_waited_for(cli: Cli) -> None:
    said = r"waiting for lock 'x': held by \S+ first \(token \d+\)\n"
    with (
        cli.holding("x", "--label", "first"),
        cli.started("run", "-v", "x", "--", "true") as waiting,
    ):
        assert waiting.stderr is not None
        assert any(re.search(said, line) for line in waiting.stderr)
    with cli.holding("y", "--shared", "--label", "reader"):
        done = cli.run("run", "-v", "--shared", "y", "--", "true")
        assert "waiting" not in done.stderr


def test_a_semaphore_is_called_one(cli: Cli) -> None:
    with cli.holding("x", "--permits", "2", "--label", "a"), cli.holding("x", "--permits", "2"):
        busy = cli.run("run", "-n", "--permits", "2", "x", "--", "true")
        assert "semaphore 'x' is busy: 2 of 2 permits held by " in busy.stderr
        assert " a (token " in busy.stderr
        late = ("run", "--timeout", "1s", "--permits", "2", "x", "--", "true")
        # A stalled machine may connect, or answer, after the timeout: that is an outage.
        eventually(lambda: "semaphore 'x' was not granted within" in cli.run(*late).stderr)
        other = cli.run("run", "-n", "--permits", "3", "x", "--", "true")
        assert (other.returncode, "a semaphore of 2" in other.stderr) == (64, True)
        with cli.started("run", "--permits", "2", "x", "--", "true") as waiting:
            cli.wait_for_queue("x", 3)
            assert cli.run("evict", "x", "--all", "--yes").returncode == 0
            assert "semaphore 'x'" in waiting.communicate(timeout=60)[1]


def test_all_readers_that_keep_a_lock_busy_are_named(cli: Cli) -> None:
    with cli.holding("x", "-s", "--label", "one"), cli.holding("x", "-s", "--label", "two"):
        busy = cli.run("run", "-n", "x", "--", "true").stderr
        assert re.search(r"held by \S+ one \(token \d+\) and \S+ two \(token \d+\)$", busy)
