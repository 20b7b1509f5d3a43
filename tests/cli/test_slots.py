"""``coordlock run`` with a slot, and ``coordlock jobs``."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from coordlock.testing.waiting import eventually
from tests.cli.command import Cli


def slots(cli: Cli, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli.run("jobs", "show", name, "--json").stdout)[
        "slots"
    ]
    return found


def test_a_command_runs_once_for_a_slot_and_says_so(cli: Cli) -> None:
    words = ("--", "sh", "-c", 'echo "$COORDLOCK_SLOT $COORDLOCK_ATTEMPT $COORDLOCK_NAME"')
    done = cli.run("run", "x", "--slot", "2026-11-22T03:00", "--tz", "Europe/Berlin", *words)
    assert (done.returncode, done.stdout) == (0, "2026-11-22T02:00:00Z 1 x\n")
    again = cli.run("run", "x", "--slot", "2026-11-22T02:00Z", *words)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    told = cli.run(*("run", "x", "-v", "--slot", "2026-11-22T02:00Z"), *words)
    assert told.returncode == 0
    assert "slot 2026-11-22T02:00:00Z was done by" in told.stderr


@pytest.mark.parametrize("schedule", [("--every", "24h"), ("--cron", "0 3 * * *")])
def test_the_last_scheduled_time_runs_once(cli: Cli, schedule: tuple[str, str]) -> None:
    first = cli.run("run", "x", *schedule, "--", "echo", "works")
    second = cli.run("run", "x", *schedule, "--", "echo", "works")
    assert (first.stdout, second.stdout) == ("works\n", "")
    assert (first.returncode, second.returncode) == (0, 0)
    assert (first.stderr, second.stderr) == ("", "")
    assert [one["state"] for one in slots(cli, "x")] == ["done"]


def test_a_command_that_fails_runs_again_at_least_once(cli: Cli) -> None:
    options = ("--slot", "1", "--policy", "at-least-once", "--retry-delay", "0s")
    words = ("run", "x", *options, "--", "sh", "-c", "exit 7")
    assert [cli.run(*words).returncode for _ in range(2)] == [7, 7]
    [slot] = slots(cli, "x")
    assert (slot["state"], slot["error"]) == ("failed", "ExitStatus: status 7")
    assert slot["attempts"] == 2


def test_a_slot_whose_command_failed_fails_wherever_it_is_started_again(cli: Cli) -> None:
    """As where Kubernetes replaces the pod of a Job: it must not count as complete."""
    words = ("run", "x", "--slot", "1", "--")
    first = cli.run(*words, "sh", "-c", "exit 3")
    assert first.returncode == 3
    assert first.stderr == "coordlock: job 'x': slot 1: sh: status 3\n"
    second = cli.run(*words, "echo", "never")
    assert (second.returncode, second.stdout) == (70, "")
    assert "slot 1, started by" in second.stderr
    assert "has failed, and it is not started again" in second.stderr
    advice = second.stderr.rpartition("coordlock jobs ")[2].replace("'", "").split()
    assert cli.run("jobs", *advice).returncode == 0
    assert cli.run(*words, "echo", "works").stdout == "works\n"


@pytest.mark.parametrize("status", [0, 4])
def test_of_the_crontab_line_cron_mails_what_the_host_that_ran_it_writes(
    cli: Cli, status: int
) -> None:
    """Cron mails what a line prints. On the hosts with nothing to do that must be nothing."""
    page = Path("docs/how-to/run-jobs.md").read_text("utf-8")
    [line] = [line for line in page.splitlines() if line.startswith("0 3 * * *  coordlock ")]
    job = cli.directory / "nightly"
    job.write_text(f"#!/bin/sh\necho works >> log\nsleep 1\nexit {status}\n")
    job.chmod(0o755)
    words = [str(job) if word == "/opt/shop/nightly" else word for word in shlex.split(line)[6:]]
    with contextlib.ExitStack() as hosts:
        started = [hosts.enter_context(cli.started(*words)) for _ in range(3)]
        mails = ["".join(host.communicate(timeout=60)) for host in started]
    late = cli.run(*words)
    mails.append(late.stdout + late.stderr)
    statuses = sorted([*(host.returncode for host in started), late.returncode])
    assert (cli.directory / "log").read_text() == "works\n"
    if status == 0:
        assert (statuses, mails) == ([0] * 4, [""] * 4)
    else:
        assert statuses == [4, 70, 70, 70]
        assert sorted(mails)[:3] == [""] * 3
        assert "job 'nightly': slot" in sorted(mails)[3]


@pytest.mark.parametrize("policy", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("believes", [False, True])
def test_a_command_that_ends_with_0_at_a_signal_has_not_done_its_slot(
    cli: Cli, policy: str, believes: bool
) -> None:
    graceful = "trap 'exit 0' TERM; touch begun; while :; do sleep 0.05; done"
    words = ("run", "x", "--slot", "1", "--policy", policy, *["--zero-is-done"] * believes, "--")
    with cli.started(*words, "sh", "-c", graceful) as process:
        eventually(lambda: (cli.directory / "begun").exists())
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=30)[1]
    [slot] = slots(cli, "x")
    if believes:
        assert (process.returncode, slot["state"]) == (0, "done")
        return
    assert process.returncode == 128 + signal.SIGTERM
    assert "slot 1: sh: status 0, but told to end by SIGTERM" in said
    assert slot["state"] == "failed"
    again = cli.run(*words, "echo", "works")
    assert again.stdout == ("" if policy == "at-most-once" else "works\n")


def test_a_command_that_hangs_ends_after_max_hold_and_its_slot_has_failed(cli: Cli) -> None:
    hanging = ("--grace", "500ms", "--", "sh", "-c", "echo hangs >&2; sleep 60")
    done = cli.run("run", "x", "--slot", "1", "--keep-stderr", "--max-hold", "10s", *hanging)
    assert (done.returncode, done.stderr.startswith("hangs\n")) == (79, True)
    assert "because --max-hold or max_hold limits it" in done.stderr
    [slot] = slots(cli, "x")
    assert (slot["state"], slot["error"]) == (
        "failed",
        "Lost: the command was ended, because the lock ran out",
    )
    assert cli.run("run", "y", "--max-hold", "2s", *hanging).returncode == 79


def test_the_end_of_stderr_of_the_last_command_that_failed_is_kept(cli: Cli) -> None:
    words = ("run", "x", "--keep-stderr", "--slot")
    assert cli.run(*words, "1", "--", "sh", "-c", "echo fine >&2").stderr == "fine\n"
    assert json.loads(cli.run("jobs", "show", "x", "--json").stdout)["stderr"] is None
    command = "seq 2000 >&2; echo no space left >&2; exit 3"
    done = cli.run(*words, "2", "--", "sh", "-c", command)
    assert done.returncode == 3
    assert done.stderr.startswith("1\n2\n3\n")
    assert "\nno space left\ncoordlock: job 'x': slot 2: sh: status 3\n" in done.stderr
    kept = json.loads(cli.run("jobs", "show", "x", "--json").stdout)["stderr"]
    assert (kept["slot"], len(kept["stderr"])) == ("2", 4096)
    assert cli.run("jobs", "show", "x").stdout.endswith("\n  no space left\n")
    check = cli.run("jobs", "check", "x")
    assert (check.returncode, check.stderr) == (2, "")
    assert re.fullmatch(
        r"failed: job 'x': slot 2, .*, has failed: ExitStatus: status 3: no space left\n",
        check.stdout,
    )
    assert cli.run("delete", "x", "--yes").returncode == 0
    assert json.loads(cli.run("jobs", "show", "x", "--json").stdout)["stderr"] is None


def test_a_job_is_checked_for_failures_and_for_lateness(cli: Cli) -> None:
    def check(*words: str) -> tuple[int, str]:
        done = cli.run("jobs", "check", "x", *words)
        document = json.loads(cli.run("jobs", "check", "x", *words, "--json").stdout)
        assert done.stdout.startswith(f"{document['state']}: job 'x': {document['text']}")
        return done.returncode, document["state"]

    assert check() == check("--max-age", "25h") == (1, "late")
    cli.run("run", "x", "--slot", "1", "--", "true")
    assert check("--max-age", "25h") == (0, "ok")
    assert check("--max-age", "0s") == (1, "late")
    cli.run("run", "x", "--slot", "2", "--", "false")
    assert check("--max-age", "25h") == (2, "failed")
    finding = cli.run("doctor").stdout
    assert "'x' failed: slot 2" in finding
    cli.run("run", "x", "--slot", "3", "--", "true")
    assert check() == (0, "ok")
    assert check("--url", "etcd://127.0.0.1:1", "--connect-timeout", "1s") == (3, "unreachable")
    assert cli.run("jobs", "check", "x", "--max-age", "soon").returncode == 64


def test_of_a_crontab_only_the_host_that_ran_it_writes_and_an_interruption_is_written_once(
    cli: Cli,
) -> None:
    words = ("run", "x", "--quiet-elsewhere", "--slot")
    with cli.started(*words, "1", "--", "cat") as process:
        eventually(lambda: slots(cli, "x"))
        busy = cli.run(*words, "1", "-n", "--", "true")
        assert (busy.returncode, busy.stderr) == (75, "")
        waiting = (*words, "1", "--", "true")
        with cli.started(*waiting) as first, cli.started(*waiting) as second:
            time.sleep(1)
            process.send_signal(signal.SIGKILL)
            told = [one.communicate(timeout=60)[1] for one in (first, second)]
            assert [one.returncode for one in (first, second)] == [70, 70]
    assert sorted(map(bool, told)) == [False, True]
    assert "was interrupted" in "".join(told)
    elsewhere = cli.run(*words, "1", "--", "true")
    assert (elsewhere.returncode, elsewhere.stdout, elsewhere.stderr) == (70, "", "")


def test_a_host_that_lacks_the_command_leaves_the_slot_to_others(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "script").touch(0o600)
    for command, status in (("no-such-command", 127), (str(tmp_path / "script"), 126)):
        lacking = cli.run("run", "x", "--slot", "1", "--", command)
        assert lacking.returncode == status
        assert command in lacking.stderr
    assert cli.run("run", "x", "--slot", "1", "--", "echo", "works").stdout == "works\n"


def test_all_missed_times_run_in_order(cli: Cli) -> None:
    now = int(time.time()) // 3600 * 3600
    start = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(now - 3 * 3600))
    assert cli.run("run", "x", "--slot", start, "--", "true").returncode == 0
    words = ("run", "x", "--every", "1h", "--catch-up", "all", "--")
    done = cli.run(*words, "sh", "-c", "echo $COORDLOCK_SLOT")
    found = done.stdout.split()
    assert len(found) in (3, 4)  # one more where the hour has just changed
    assert found == sorted(found)


def test_ctrl_c_ends_all_that_is_due(cli: Cli) -> None:
    start = time.strftime("%Y-%m-%dT%H:00Z", time.gmtime(time.time() - 3 * 3600))
    cli.run("run", "x", "--slot", start, "--", "true")
    words = ("run", "x", "--every", "1h", "--catch-up", "all", "--policy", "at-least-once", "--")
    # The signal comes while the second of at least three runs.
    command = '[ "$(wc -l < log)" = 1 ] || exec sleep 60'
    with cli.started(*words, "sh", "-c", f"echo $COORDLOCK_SLOT >> log; {command}") as process:
        log = cli.directory / "log"
        eventually(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert len(log.read_text().splitlines()) == 2
    states = [slot["state"] for slot in slots(cli, "x")]
    assert states == ["done", "done", "failed"]


def test_operators_are_told_who_is_at_work(cli: Cli) -> None:
    with cli.started("run", "x", "--slot", "1", "--", "cat"):
        eventually(lambda: slots(cli, "x"))
        refused = cli.run("jobs", "retry", "x", "1")
        assert refused.returncode == 1
        assert "is at work by" in refused.stderr
        assert " cat (token" in refused.stderr
        assert "slot" not in refused.stderr


def test_jobs_are_listed_and_forgotten(cli: Cli) -> None:
    assert cli.run("jobs", "show", "x").returncode == 1
    assert cli.run("jobs", "retry", "x", "1").returncode == 1
    cli.run("run", "x", "--slot", "1", "--", "true")
    [job] = json.loads(cli.run("jobs", "--json").stdout)
    assert (job["name"], job["kind"]) == ("x", "integer")
    assert cli.run("jobs").stdout.splitlines()[1].split() == ["x", "1", "1", "done"]
    assert cli.run("delete", "x", "--yes").returncode == 0
    assert cli.run("run", "x", "--slot", "2026-11-22T02:00Z", "--", "echo", "on").stdout == "on\n"


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (("--every", "7m"), 64, "does not divide the day"),
        (("--cron", "0 3 * *"), 64, "five fields"),
        (("--cron", "0 3 * * *", "--tz", "Mars/Base"), 64, "time zone"),
        (("--slot", "tomorrow"), 64, "is no slot"),
        (("--slot", "2026-11-22T03:00"), 64, "no time zone"),
        (("--slot", "1", "--every", "1h"), 64, "exclude each other"),
        (("--every", "1h", "--tz", "UTC"), 64, "--tz goes with"),
        (("--slot", "1", "--catch-up", "all"), 64, "--catch-up goes with"),
        (("--policy", "at-most-once"), 64, "go with --slot"),
        (("--keep-stderr",), 64, "go with --slot"),
        (("--slot", "1", "--max-attempts", "3"), 64, "go with --policy at-least-once"),
        (("--slot", "1", "--shared"), 64, "no --shared"),
        (("--slot", "2999-01-01T00:00Z"), 78, "check this host's clock"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cli: Cli, words: tuple[str, ...], status: int, problem: str
) -> None:
    done = cli.run("run", "x", *words, "--", "echo", "never")
    assert (done.returncode, done.stdout) == (status, "")
    assert problem in done.stderr
