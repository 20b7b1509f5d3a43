"""``coordlock evict``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from testbed.servers.etcd import Etcd
from tests.cli.command import Cli
from tests.cli.terminals import Terminal


def test_break_evicts_the_holder_and_nobody_else(cli: Cli) -> None:
    with cli.holding("x", "--label", "stuck") as holder, cli.holding("y"):
        with cli.started("run", "x", "--", "echo", "ran") as waiter:
            cli.wait_for_queue("x", 2)
            done = cli.run("evict", "x", "--yes")
            assert done.returncode == 0
            assert "stuck" in done.stdout
            assert waiter.communicate(timeout=60)[0] == "ran\n"
        assert "lock 'x' is lost" in holder.communicate(timeout=60)[1]
        assert holder.returncode == 79
        assert len(cli.show("y")) == 1


def test_break_asks_and_tells_who_it_is(cli: Cli, tmp_path: Path) -> None:
    with cli.holding("x", "--label", "stuck") as holder:
        with Terminal(cli.environment, tmp_path) as terminal:
            program = " ".join(cli.command("evict", "x"))
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
        done = cli.run("evict", "x")
        assert done.returncode == 64
        assert "--yes" in done.stderr
        assert len(cli.show("x")) == 1


def test_break_wants_to_know_whom_of_several_holders(cli: Cli) -> None:
    with cli.holding("x", "-s") as first, cli.holding("x", "-s") as second:
        done = cli.run("evict", "x", "--yes")
        assert done.returncode == 64
        assert "--token" in done.stderr
        token = cli.show("x")[1]["token"]
        assert cli.run("evict", "x", "--yes", "--token", str(token)).returncode == 0
        assert second.wait(60) == 79
        assert first.poll() is None
        assert cli.run("evict", "x", "--yes", "--all").returncode == 0
        assert first.wait(60) == 79


def test_break_of_a_free_lock_gives_1(cli: Cli) -> None:
    assert cli.run("evict", "x", "--yes").returncode == 1


def test_break_with_a_token_of_nobody_says_who_has_which(cli: Cli) -> None:
    with cli.holding("x", "--label", "first"), cli.started("run", "x", "--", "true"):
        cli.wait_for_queue("x", 2)
        holder, waiter = (one["token"] for one in cli.show("x"))
        done = cli.run("evict", "x", "--yes", "--token", "1")
        assert (done.returncode, len(cli.show("x"))) == (1, 2)
        assert "the token 1: held by" in done.stderr
        assert f"first (token {holder}); waiting: " in done.stderr
        assert f"(token {waiter})\n" in done.stderr


def test_break_all_lets_no_waiter_start_its_command(etcd: Etcd, root: str, tmp_path: Path) -> None:
    for url in (f"local://{tmp_path}/state?request_timeout=30s", etcd.url_for(root)):
        cli = Cli(url, tmp_path)
        with ExitStack() as stack:
            holder = stack.enter_context(cli.holding("x"))
            waiters = [
                stack.enter_context(cli.started("run", "x", "--", "touch", f"ran-{number}"))
                for number in range(8)
            ]
            cli.wait_for_queue("x", 9)
            done = cli.run("evict", "x", "--all", "--yes")
            assert (done.returncode, done.stdout.count("evicted: ")) == (0, 9)
            assert [waiter.wait(60) for waiter in waiters] == [75] * 8
            assert holder.wait(60) == 79
        assert not list(cli.directory.glob("ran-*"))
