"""``coordlock queue``: work queues from the shell."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from tests.cli.command import Cli, is_gone

#: What a command finds.
SHOW = 'echo "$COORDLOCK_NAME $COORDLOCK_ITEM $COORDLOCK_DELIVERY: $(cat)"'


LOST = (
    "coordlock: item 1 of work queue 'q' is lost: its contender was removed from the queue: an "
    "operator evicted it, or deleted it in the service; ending the command\n"
)


def listed(cli: Cli, *options: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(cli.run("queue", "ls", "q", "--json", *options).stdout)
    return shown


def put(cli: Cli, *data: str) -> None:
    assert cli.run("queue", "put", "q", *data).returncode == 0


def test_a_command_runs_for_each_item_in_order(cli: Cli) -> None:
    assert cli.run("queue", "put", "q", "one", "two\nlines").stdout == "1\n2\n"
    done = cli.run("queue", "work", "q", "--count", "2", "--", "sh", "-c", SHOW)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "q 1 1: one\nq 2 1: two\nlines\n"
    assert listed(cli) == {
        "name": "q",
        "waiting": 0,
        "taken": 0,
        "delayed": 0,
        "dead": 0,
        "items": [],
    }


def test_items_come_from_stdin_as_one_or_by_lines(cli: Cli) -> None:
    assert cli.run("queue", "put", "q", input="a\nb\n").stdout == "1\n"
    done = cli.run("queue", "put", "q", "--lines", input="a\n\nb")
    assert done.stdout == "2\n3\n4\n"
    assert [item["data"] for item in listed(cli)["items"]] == ["a\nb\n", "a", "", "b"]


def test_an_empty_stdin_is_no_item(cli: Cli) -> None:
    done = cli.run("queue", "put", "q")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "coordlock: stdin is empty: for an empty item give '' as DATA\n"
    assert cli.run("queue", "put", "q", "--lines").stdout == ""
    assert cli.run("queue", "put", "q", "").stdout == "1\n"
    assert [item["data"] for item in listed(cli)["items"]] == [""]


def test_the_largest_item_reaches_the_command_byte_by_byte(cli: Cli) -> None:
    data = bytes(range(256)) * 256
    with coordlock.connect(cli.url) as client:
        client.work_queue("q").put(data)
    [item] = listed(cli)["items"]
    assert item["data"] is None
    assert item["base64"]
    program = (
        "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest(), end='')"
    )
    done = cli.run("queue", "work", "q", "--count", "1", "--", sys.executable, "-c", program)

    assert done.stdout == hashlib.sha256(data).hexdigest()


def test_an_item_whose_command_fails_is_taken_again_until_it_is_dead(cli: Cli) -> None:
    put(cli, "bad")
    work = ("queue", "work", "q", "--count", "1", "--max-failures", "2", "--")
    for attempt in (1, 2):
        done = cli.run(*work, "sh", "-c", "exit 7")
        assert done.returncode == 7
        *dies, failed = done.stderr.splitlines()
        assert failed == f"coordlock: item 1, delivery {attempt}: status 7"
        assert ["item 1 is dead: sh has ended" in line for line in dies] == [True] * (attempt - 1)
    assert listed(cli)["items"] == []
    [dead] = listed(cli, "--dead")["items"]
    assert (dead["id"], dead["deliveries"], dead["failures"]) == ("1", 2, 2)
    assert dead["reason"] == "sh has ended with status 7"
    assert cli.run("queue", "retry", "q", "1").stdout == "1\n"
    done = cli.run("queue", "retry", "q", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no dead item 1" in done.stderr
    assert cli.run(*work, "sh", "-c", SHOW).stdout == "q 1 1: bad\n"


def test_all_dead_items_are_ready_again(cli: Cli) -> None:
    put(cli, "one", "two")
    cli.run("queue", "work", "q", "-n", "--max-failures", "1", "--", "false")
    assert listed(cli)["dead"] == 2
    assert cli.run("queue", "retry", "q", "--all").stdout == "1\n2\n"
    assert [item["data"] for item in listed(cli)["items"]] == ["one", "two"]


def test_a_queue_without_items_is_told_by_the_status(cli: Cli) -> None:
    done = cli.run("queue", "work", "q", "-n", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    done = cli.run("queue", "work", "q", "--count", "1", "-n", "--", "true")
    assert (done.returncode, done.stderr) == (75, "coordlock: work queue 'q' has nothing to take\n")
    put(cli, "one")
    done = cli.run("queue", "work", "q", "--count", "2", "--timeout", "1", "-E", "9", "--", "true")
    assert (done.returncode, done.stderr) == (9, "coordlock: work queue 'q' has nothing to take\n")


def test_a_full_queue_is_told_by_the_status(cli: Cli) -> None:
    done = cli.run("queue", "put", "q", "one", "two", "--max-depth", "1")
    assert (done.returncode, done.stdout) == (75, "1\n")
    assert "'q' is full: 1 items wait" in done.stderr


def test_a_delayed_item_is_listed_with_its_time(cli: Cli) -> None:
    cli.run("queue", "put", "q", "later", "--delay", "1h")
    found = listed(cli)
    [item] = found["items"]
    assert (found["delayed"], item["state"]) == (1, "delayed")
    assert 3500 < item["due"] - item["put_at"] < 3700
    table = cli.run("queue", "ls", "q")
    heading, row = table.stdout.splitlines()
    columns = ["ID", "STATE", "DELIVERIES", "FAILURES", "AGE", "FOR", "WORKER", "DATA"]
    assert heading.split() == columns
    assert row.split()[:4] == ["1", "delayed", "0", "0"]
    assert table.stderr == "coordlock: 'q': 0 waiting, 0 taken, 1 delayed, 0 dead\n"
    assert cli.run("queue", "remove", "q", "1", "--yes").stdout == "removed: 1\n"


@pytest.mark.parametrize("believes", [False, True])
def test_a_command_that_ends_with_0_at_a_signal_has_not_done_its_item(
    cli: Cli, tmp_path: Path, believes: bool
) -> None:
    put(cli, "one")
    graceful = f"trap 'exit 0' TERM; touch {tmp_path}/begun; while :; do sleep 0.05; done"
    options = ["--zero-is-done"] * believes
    with cli.started("queue", "work", "q", *options, "--", "sh", "-c", graceful) as process:
        eventually(lambda: (tmp_path / "begun").exists())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    left = [(one["state"], one["failures"]) for one in listed(cli)["items"]]
    assert left == ([] if believes else [("waiting", 0)])


def test_a_signal_ends_the_wait_for_an_item(cli: Cli) -> None:
    with cli.started("queue", "work", "q", "-v", "--", "true") as process:
        assert process.stderr is not None
        while "connected to" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    put(cli, "one")
    assert cli.run("queue", "work", "q", "--count", "1", "--", "cat").stdout == "one"


def test_a_command_that_does_not_exist_is_no_fault_of_the_items(cli: Cli) -> None:
    put(cli, "one")
    done = cli.run("queue", "work", "q", "--max-failures", "1", "--", "no-such-command")
    assert done.returncode == 127
    assert listed(cli)["waiting"] == 1


def test_who_works_on_an_item_is_listed_and_for_how_long(cli: Cli) -> None:
    put(cli, "one")
    with coordlock.connect(cli.url) as client, client.work_queue("q", label="me").take(10):
        heading, row = cli.run("queue", "ls", "q").stdout.splitlines()
        assert row.split()[:4] == ["1", "taken", "1", "0"]
        assert f":{os.getpid()} me" in row[heading.index("WORKER") :]


def test_items_are_removed_by_their_ids_and_all_at_once(cli: Cli) -> None:
    put(cli, "one", "two", "three", "four")
    with coordlock.connect(cli.url) as client, client.work_queue("q").take(10):
        done = cli.run("queue", "remove", "q", "1", "2", "9", "--yes")
        assert (done.returncode, done.stdout) == (1, "removed: 2\n")
        assert len(done.stderr.splitlines()) == 2
        done = cli.run("queue", "purge", "q", "--yes")
        assert (done.returncode, done.stdout) == (0, "removed: 2\n")
        assert [one["id"] for one in listed(cli)["items"]] == ["1"]


def test_items_are_worked_on_several_at_a_time(cli: Cli, tmp_path: Path) -> None:
    put(cli, "one", "two", "three", "bad")
    # The first two wait for each other, so they run at the same time.
    script = (
        f'data=$(cat); touch "{tmp_path}/$data"; echo "$COORDLOCK_ITEM $data";'
        f' case $data in one|two) until [ -e "{tmp_path}/one" ] && [ -e "{tmp_path}/two" ];'
        " do sleep 0.05; done;; bad) exit 3;; esac"
    )
    work = (
        "queue",
        "work",
        "q",
        "--concurrency",
        "2",
        "--max-failures",
        "1",
        "--timeout",
        "1",
        "--",
    )
    done = cli.run(*work, "sh", "-c", script)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["1 one", "2 two", "3 three", "4 bad"]
    dies, failed = done.stderr.splitlines()
    assert "item 4 is dead" in dies
    assert failed == "coordlock: item 4, delivery 1: status 3"
    assert (listed(cli)["items"], listed(cli)["dead"]) == ([], 1)


def test_a_signal_ends_the_work_and_blames_no_item(cli: Cli, tmp_path: Path) -> None:
    put(cli, "one", "two")
    command = ("sh", "-c", f"echo $$ > {tmp_path}/$COORDLOCK_ITEM; exec sleep 600")
    pids = [tmp_path / "1", tmp_path / "2"]
    with cli.started("queue", "work", "q", "--concurrency", "2", "--", *command) as process:
        for pid in pids:
            eventually(lambda: pid.exists() and pid.read_text().endswith("\n"))  # noqa: B023
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert all(is_gone(int(pid.read_text())) for pid in pids)
    items = listed(cli)["items"]
    assert [(one["state"], one["deliveries"], one["failures"]) for one in items] == [
        ("waiting", 1, 0)
    ] * 2


def test_the_command_for_an_item_that_is_lost_is_ended(cli: Cli, tmp_path: Path) -> None:
    put(cli, "one")
    pid = tmp_path / "pid"
    command = ("sh", "-c", f"[ -e {pid} ] && exit; echo $$ > {pid}; sleep 600 & wait")
    with cli.started("queue", "work", "q", "--timeout", "1", "--", *command) as process:
        eventually(lambda: pid.exists() and pid.read_text().endswith("\n"))
        with coordlock.connect(cli.url) as client:
            assert client.work_queue("q").evict("1") is True
        said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (0, LOST)
    assert is_gone(int(pid.read_text()))
    assert listed(cli)["items"] == []


def test_the_commands_of_a_killed_command_line_are_ended(cli: Cli, tmp_path: Path) -> None:
    put(cli, "one", "two")
    command = ("sh", "-c", f"echo $$ > {tmp_path}/$COORDLOCK_ITEM; sleep 600 & wait")
    pids = [tmp_path / "1", tmp_path / "2"]
    with cli.started("queue", "work", "q", "--concurrency", "2", "--", *command) as process:
        for pid in pids:
            eventually(lambda: pid.exists() and pid.read_text().endswith("\n"))  # noqa: B023
        process.kill()
        process.wait(60)
        for pid in pids:
            eventually(partial(is_gone, int(pid.read_text())), "the guard ends the command")
    eventually(lambda: listed(cli)["waiting"] == 2)


def test_a_worker_whose_guard_is_killed_ends_and_blames_no_item(cli: Cli, tmp_path: Path) -> None:
    put(cli, "one", "two")
    command = ("sh", "-c", "echo $PPID $$; exec sleep 600")
    with cli.started("queue", "work", "q", "--", *command) as process:
        assert process.stdout is not None
        guard, pid = map(int, process.stdout.readline().split())
        os.kill(guard, signal.SIGKILL)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (
        74,
        "coordlock: the process that starts commands, coordlock's guard, was killed: start again\n",
    )
    eventually(partial(is_gone, pid))
    eventually(
        lambda: (
            [(one["state"], one["failures"]) for one in listed(cli)["items"]]
            == [("waiting", 0)] * 2
        )
    )


def test_a_command_that_the_system_cannot_start_is_no_fault_of_its_item(cli: Cli) -> None:
    put(cli, "one")
    program = """
import errno, os, sys
import coordlock.cli

def fork(fork=os.fork, forks=[]):
    forks.append(None)
    if len(forks) > 1:  # the first one is the guard's
        raise OSError(errno.EAGAIN, "")
    return fork()

os.fork = fork
sys.argv[1:] = ["queue", "work", "q", "--count", "1", "--", "true"]
sys.exit(coordlock.cli.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=cli.environment,
    )
    assert (done.returncode, done.stderr) == (
        126,
        "coordlock: true: Resource temporarily unavailable\n",
    )
    assert [(one["state"], one["failures"]) for one in listed(cli)["items"]] == [("waiting", 0)]


def test_an_item_that_is_too_large_is_a_usage_error(cli: Cli) -> None:
    done = cli.run("queue", "put", "q", input="x" * 65_537)
    assert done.returncode == 64
    assert "65536" in done.stderr
