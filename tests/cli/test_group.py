"""``coordlock group``: groups from the shell."""

from __future__ import annotations

import json
import signal
import subprocess

import coordlock
from coordlock.testing.waiting import eventually
from tests.cli.beating import Beating
from tests.cli.command import Cli, is_gone


def test_who_comes_changes_and_goes_is_followed(cli: Cli) -> None:
    with (
        coordlock.connect(cli.url, label="web") as client,
        cli.started("group", "members", "workers", "--follow") as watcher,
        cli.started("group", "members", "workers", "--follow", "--json") as program,
    ):
        assert watcher.stdout is not None
        assert program.stdout is not None
        assert watcher.stdout.readline() == "nobody is there\n"
        assert json.loads(program.stdout.readline())["members"] == []
        with client.group("workers").join(b"one") as membership:
            assert watcher.stdout.readline().startswith("joined  one  (")
            (member,) = json.loads(program.stdout.readline())["members"]
            assert (member["value"], member["token"]) == ("one", membership.token)
            assert "web" in member["owner"]
            membership.publish(b"two\x1b[31m")
            assert watcher.stdout.readline().startswith("changed two")
        eventually(lambda: client.group("workers").members() == ())
        lines = [watcher.stdout.readline(), watcher.stdout.readline()]
        assert lines[0] == "nobody is there\n"
        assert lines[1].startswith("left    two")
        for process in (watcher, program):
            process.send_signal(signal.SIGINT)


def members(cli: Cli, name: str = "web") -> list[str]:
    """The values of the members."""
    return [
        one["value"]
        for one in json.loads(cli.run("group", "members", name, "--json").stdout)["members"]
    ]


def test_a_command_is_a_member_while_it_runs(cli: Cli) -> None:
    script = 'echo "$COORDLOCK_NAME $COORDLOCK_BACKEND"; read line; exit 3'
    command = ("group", "join", "web", "--value", "10.0.0.5:80", "--", "sh", "-c", script)
    with cli.started(*command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "web local\n"
        assert members(cli) == ["10.0.0.5:80"]
        line = cli.run("group", "members", "web").stdout.splitlines()[1]
        assert line.split()[0] == "10.0.0.5:80"
        assert line.endswith(" sh")
        process.communicate("\n", timeout=60)
        assert process.returncode == 3
    done = cli.run("group", "members", "web")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "coordlock: nobody is in the group 'web'\n"


def test_a_lost_membership_begins_again_and_the_command_goes_on(cli: Cli) -> None:
    with cli.started("group", "join", "web", "--value", "v", "--", "cat") as process:
        eventually(lambda: members(cli) == ["v"], "it has joined")
        before = json.loads(cli.run("show", "web", "--json").stdout)["contenders"][0]["token"]
        assert cli.run("evict", "web", "--yes").returncode == 0

        def after() -> list[int]:
            contenders = json.loads(cli.run("show", "web", "--json").stdout)["contenders"]
            return [one["token"] for one in contenders]

        eventually(lambda: after() and after()[0] > before, "it has joined again")
        assert process.communicate("still there", timeout=60)[0] == "still there"
        assert process.returncode == 0


def test_without_a_command_it_is_a_member_until_stdin_closes(cli: Cli) -> None:
    with cli.started("group", "join", "web") as process:
        eventually(lambda: len(members(cli)) == 1, "it has joined")
        assert members(cli)[0].endswith(f":{process.pid}")
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert members(cli) == []
    with cli.started("group", "join", "web", stdin=subprocess.DEVNULL) as process:
        assert process.wait(60) == 64
        assert process.stderr is not None
        assert (
            "stdin is empty, so the group would be left at once: keep a pipe open"
            in process.stderr.read()
        )


def test_a_command_ends_with_the_process_that_keeps_it_in_the_group(
    cli: Cli, beating: Beating
) -> None:
    """The fault: SIGKILL."""
    with cli.started("group", "join", "web", "--", *beating.command(stubborn=False)) as process:
        beating.wait_until_both_beat()
        process.kill()
        eventually(lambda: all(map(is_gone, beating.pids())), "the command and its child end")
