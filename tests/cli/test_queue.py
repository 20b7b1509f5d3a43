"""``coordlock ls``, ``show`` and ``break``."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli
from tests.cli.terminals import Terminal, plain, screen


def test_ls_lists_the_names_in_use(cli: Cli) -> None:
    with (
        cli.holding("jobs", "--label", "first"),
        cli.holding("reads", "-s"),
        cli.holding("reads", "-s"),
        cli.started("run", "jobs", "--", "true"),
    ):
        cli.wait_for_queue("jobs", 2)
        (jobs,) = cli.show("jobs")[:1]
        listed = json.loads(cli.run("ls", "--json").stdout)
        assert [(line["name"], line["holders"], line["waiters"]) for line in listed] == [
            ("jobs", 1, 1),
            ("reads", 2, 0),
        ]
        assert listed[0]["token"] == jobs["token"]
        assert listed[0]["holder"].endswith(" first")
        plain = cli.run("ls").stdout.splitlines()
        assert plain[0].split() == ["NAME", "KIND", "HOLDERS", "WAITERS", "TOKEN", "HOLDER"]
        assert plain[1].split()[:4] == ["jobs", "lock", "1", "1"]
    assert json.loads(cli.run("ls", "--json").stdout) == []


def test_show_tells_who_holds_and_who_waits(cli: Cli) -> None:
    with cli.holding("x", "--label", "holder"), cli.started("run", "-s", "x", "--", "cat"):
        cli.wait_for_queue("x", 2)
        holder, waiter = cli.show("x")
        assert holder["position"] == 0
        assert holder["holding"] is True
        assert holder["mode"] == "EX"
        assert holder["permits"] is None
        assert holder["owner"]["label"] == "holder"
        assert holder["age"] >= 0
        assert holder["key"]
        assert (waiter["position"], waiter["holding"], waiter["mode"]) == (1, False, "PR")
        assert waiter["token"] > holder["token"]
        plain = cli.run("show", "x").stdout.splitlines()
        assert plain[1].split()[:3] == ["0", "holds", "EX"]
        assert plain[2].split()[:3] == ["1", "waits", "PR"]


def test_show_tells_of_permits(cli: Cli) -> None:
    with cli.holding("x", "--slots", "3"):
        (holder,) = cli.show("x")
        assert (holder["mode"], holder["permits"]) == (None, 3)
        assert "1 of 3" in cli.run("show", "x").stdout


def test_an_empty_queue_is_an_empty_list(cli: Cli) -> None:
    assert cli.show("nobody") == []
    done = cli.run("show", "nobody")
    assert (done.returncode, done.stdout) == (0, "")


def test_labels_cannot_steer_the_terminal(cli: Cli) -> None:
    with cli.holding("x\x1b[2J", "--label", "\x1b]0;owned\x07[red]"):
        for command in (["ls"], ["show", "x\x1b[2J"]):
            done = cli.run(*command)
            assert "\x1b" not in done.stdout
            assert "[red]" in done.stdout
        busy = cli.run("run", "-n", "x\x1b[2J", "--", "true")
        assert busy.returncode == 75
        assert "\x1b" not in busy.stderr


def test_on_a_terminal_there_are_tables_and_colours_only_if_wanted(
    cli: Cli, tmp_path: Path
) -> None:
    environment = cli.environment | {"TERM": "xterm-256color"}
    with cli.holding("x", "--label", "[red]label"), Terminal(environment, tmp_path) as terminal:
        program = " ".join(cli.command("show", "x"))
        terminal.write(f"TERM=xterm-256color {program}\n")
        terminal.expect("\x1b\\[1m")
        terminal.expect("\\[red\\]label")
        terminal.expect_prompt()
        terminal.write(f"NO_COLOR=1 {program.replace('show x', 'doctor')}; echo over\n")
        assert "\x1b[3" not in terminal.expect("(?s)configuration.*over\r\n")[0]


@pytest.mark.parametrize("encoding", ["utf-8:strict", "iso8859-7"])
def test_names_and_labels_that_the_terminal_cannot_show_are_escaped(
    cli: Cli, encoding: str
) -> None:
    # A command line may hold bytes that are no UTF-8, and then the label has surrogates.
    label = "ü" + b"\xff".decode("utf-8", "surrogateescape")
    cli.environment["PYTHONIOENCODING"] = encoding
    with cli.holding("日本", "--label", label):
        (holder,) = cli.show("日本")
        assert holder["owner"]["label"] == label
        assert [line["name"] for line in json.loads(cli.run("ls", "--json").stdout)] == ["日本"]
        for command in (["ls"], ["show", "日本"], ["break", "日本", "--yes"]):
            done = cli.run(*command)
            assert (done.returncode, done.stderr) == (0, "")
            assert "\\udcff" in done.stdout


def test_a_table_fits_the_terminal_and_tokens_stay_whole(cli: Cli) -> None:
    label = "a label of quite some words"
    with cli.holding("x", "--label", label):
        (holder,) = cli.show("x")
        token, session = str(holder["token"]), holder["session"]
        for command, narrowest in ((["show", "x"], 72), (["ls"], 67)):
            for width in (40, narrowest - 1, narrowest, 80):
                lines = [plain(line) for line in screen(cli, width, *command)]
                assert [line for line in lines if len(line) > width] == []
                assert any(token in line for line in lines)
                assert ("TOKEN" in lines[1]) == (width >= narrowest)
                for word in label.split():
                    assert any(word in line for line in lines)
        wide = cli.run("show", "x").stdout
        assert session[:8] in wide
        assert session not in wide


def test_break_evicts_the_holder_and_nobody_else(cli: Cli) -> None:
    with cli.holding("x", "--label", "stuck") as holder, cli.holding("y"):
        with cli.started("run", "x", "--", "echo", "ran") as waiter:
            cli.wait_for_queue("x", 2)
            done = cli.run("break", "x", "--yes")
            assert done.returncode == 0
            assert "stuck" in done.stdout
            assert waiter.communicate(timeout=60)[0] == "ran\n"
        assert holder.wait(60) == 79
        assert len(cli.show("y")) == 1


def test_break_asks_and_tells_who_it_is(cli: Cli, tmp_path: Path) -> None:
    with cli.holding("x", "--label", "stuck") as holder:
        with Terminal(cli.environment, tmp_path) as terminal:
            program = " ".join(cli.command("break", "x"))
            terminal.write(f"{program}; echo status $?\n")
            terminal.expect("stuck: holds, EX, token [0-9]+")
            terminal.expect("may still be at work")
            terminal.expect(r"\[y/N\]")
            terminal.write("n\n")
            terminal.expect("status 1")
            terminal.write(f"{program}; echo status $?\n")
            terminal.expect(r"\[y/N\]: ")
            terminal.interrupt(r"\^C\r\nstatus 130")
            terminal.write(f"{program}; echo status $?\n")
            terminal.expect(r"\[y/N\]: ")
            terminal.write("\x04")
            terminal.expect(r"\r\ncoordlock: aborted")
            assert holder.poll() is None
            assert len(cli.show("x")) == 1
            terminal.write(f"{program}; echo status $?\n")
            terminal.expect(r"\[y/N\]")
            terminal.write("y\n")
            terminal.expect("status 0")
        assert holder.wait(60) == 79


def test_break_asks_nobody_when_nobody_is_there(cli: Cli) -> None:
    with cli.holding("x"):
        done = cli.run("break", "x")
        assert done.returncode == 64
        assert "--yes" in done.stderr
        assert len(cli.show("x")) == 1


def test_break_wants_to_know_whom_of_several_holders(cli: Cli) -> None:
    with cli.holding("x", "-s") as first, cli.holding("x", "-s") as second:
        done = cli.run("break", "x", "--yes")
        assert done.returncode == 64
        assert "--token" in done.stderr
        token = cli.show("x")[1]["token"]
        assert cli.run("break", "x", "--yes", "--token", str(token)).returncode == 0
        assert second.wait(60) == 79
        assert first.poll() is None
        assert cli.run("break", "x", "--yes", "--all").returncode == 0
        assert first.wait(60) == 79


def test_break_of_a_free_lock_gives_1(cli: Cli) -> None:
    assert cli.run("break", "x", "--yes").returncode == 1
    with cli.holding("x"):
        assert cli.run("break", "x", "--yes", "--token", "1").returncode == 1
        assert len(cli.show("x")) == 1


def test_break_with_a_token_of_nobody_says_who_has_which(cli: Cli) -> None:
    with cli.holding("x", "--label", "first"), cli.started("run", "x", "--", "true"):
        cli.wait_for_queue("x", 2)
        holder, waiter = (one["token"] for one in cli.show("x"))
        done = cli.run("break", "x", "--yes", "--token", "1")
        assert done.returncode == 1
        assert "the token 1: held by" in done.stderr
        assert f"first (token {holder}); waiting: " in done.stderr
        assert f"(token {waiter})\n" in done.stderr


def test_ls_takes_patterns(cli: Cli) -> None:
    with cli.holding("nightly-a"), cli.holding("nightly/b"), cli.holding("weekly"):

        def listed(*patterns: str) -> list[str]:
            lines = json.loads(cli.run("ls", "--json", *patterns).stdout)
            return [line["name"] for line in lines]

        assert listed("nightly*") == ["nightly-a", "nightly/b"]
        assert listed("*b", "week??") == ["nightly/b", "weekly"]
        assert listed("NIGHTLY*") == []
        assert "no lock in use matches 'x*'" in cli.run("ls", "x*").stderr


def test_queues_of_other_programs_are_shown(etcd: Etcd, root: str, cli: Cli) -> None:
    cli = Cli(etcd.url_for(root), cli.directory)
    with cli.holding("x"):
        command = etcd.etcdctl_command("lock", f"{root}/x", "true")
        with subprocess.Popen(command, env=etcd.etcdctl_environment()) as other:
            cli.wait_for_queue("x", 2)
            waiter = cli.show("x")[1]
            assert (waiter["mode"], waiter["owner"], waiter["age"]) == ("EX", None, None)
            assert waiter["token"] is not None
            assert cli.run("show", "x").returncode == 0
            assert cli.run("break", "x", "--yes").returncode == 0
            assert other.wait(60) == 0
    eventually(lambda: cli.show("x") == [])


def test_break_all_lets_no_waiter_start_its_command(etcd: Etcd, root: str, tmp_path: Path) -> None:
    for url in (f"local://{tmp_path}/state", etcd.url_for(root)):
        cli = Cli(url, tmp_path)
        with ExitStack() as stack:
            holder = stack.enter_context(cli.holding("x"))
            waiters = [
                stack.enter_context(cli.started("run", "x", "--", "touch", f"ran-{number}"))
                for number in range(8)
            ]
            cli.wait_for_queue("x", 9)
            done = cli.run("break", "x", "--all", "--yes")
            assert (done.returncode, done.stdout.count("evicted: ")) == (0, 9)
            assert [waiter.wait(60) for waiter in waiters] == [75] * 8
            assert holder.wait(60) == 79
        assert not list(cli.directory.glob("ran-*"))


@pytest.mark.zookeeper
def test_names_that_may_not_be_read_hide_no_others(
    cli: Cli, zookeeper: ZooKeeper, root: str
) -> None:
    """Below a shared root there may be other programs' nodes."""
    url = zookeeper.url_for(root)
    with zookeeper.kazoo() as kazoo:
        kazoo.ensure_path(root)
    with cli.holding("of-ann", "--url", url.replace("://", "://ann:secret@")):
        done = cli.run("ls", "--url", url)
        assert (done.returncode, done.stdout) == (77, "")
        with cli.holding("of-all", "--url", url):
            done = cli.run("ls", "--url", url)
            assert done.returncode == 0
            assert "of-all" in done.stdout
            assert "'of-ann' could not be read: " in done.stderr
