"""``coordlock evict --ask`` and ``coordlock run --on-ask``: a word to the holder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coordlock
from testbed.servers.etcd import Etcd
from tests.cli.command import Cli


def test_a_holder_is_asked_and_told_why(cli: Cli) -> None:
    with coordlock.connect(cli.url, label="worker") as client, client.lock("x") as grant:
        assert not grant.release_requested.is_set()
        done = cli.run("evict", "x", "--ask", "--reason", "a deployment")
        assert done.returncode == 0
        assert "asked:" in done.stdout
        assert "worker" in done.stdout
        assert grant.release_requested.wait(60)
        assert grant.release_requested.reason == "a deployment"
        grant.check()
        (shown,) = cli.show("x")
        one = cli.run("evict", "x", "--ask", "--token", str(shown["token"]))
        assert one.returncode == 0


def test_a_command_gets_the_signal_and_its_end_is_waited_for(cli: Cli) -> None:
    script = "trap 'echo asked; exit 3' USR1; echo up; while :; do sleep 0.05; done"
    with cli.started("run", "x", "--on-ask", "usr1", "--", "sh", "-c", script) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        done = cli.run("evict", "x", "--ask", "--timeout", "60s")
        assert done.returncode == 0
        assert holder.wait(60) == 3
        assert holder.stdout.read() == "asked\n"


def test_who_keeps_the_lock_is_named_after_the_wait(cli: Cli) -> None:
    with cli.holding("x"):
        done = cli.run("evict", "x", "--ask", "--timeout", "50ms")
        assert done.returncode == 1
        assert "'x' is still held by" in done.stderr


def test_who_answers_by_upgrading_still_holds_the_lock(cli: Cli) -> None:
    with coordlock.connect(cli.url) as client, client.upgradeable_lock("x") as grant:
        grant.on_release_requested(lambda one: one.upgrade())
        done = cli.run("evict", "x", "--ask", "--timeout", "2s")
        assert done.returncode == 1
        assert "'x' is still held by" in done.stderr
        assert grant.claim is coordlock.Mode.EX


def test_where_nobody_holds_there_is_nobody_to_ask(cli: Cli) -> None:
    done = cli.run("evict", "x", "--ask")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nobody holds 'x'" in done.stderr
    with cli.holding("x"):
        done = cli.run("evict", "x", "--ask", "--token", "1")
        assert done.returncode == 1
        assert "token 1" in done.stderr


def test_what_goes_without_asking_is_refused(cli: Cli) -> None:
    for words in (("--reason", "r"), ("--timeout", "1s")):
        done = cli.run("evict", "x", "--yes", *words)
        assert done.returncode == 64
        assert "are for --ask" in done.stderr
    done = cli.run("evict", "x", "--ask", "--all")
    assert done.returncode == 64
    assert "leave one of them out" in done.stderr
    done = cli.run("evict", "x", "--ask", "--reason", "x" * 1001)
    assert done.returncode == 64
    assert "the limit is 1000" in done.stderr
    done = cli.run("run", "x", "--on-ask", "NONE", "--", "true")
    assert done.returncode == 64
    assert "is not a signal" in done.stderr


def test_who_releases_and_comes_again_has_released(etcd: Etcd, root: str, tmp_path: Path) -> None:
    cli = Cli(etcd.url_for(root), tmp_path)
    with coordlock.connect(cli.url) as client, ThreadPoolExecutor(1) as pool:
        grant = client.lock("x").acquire()

        def come_again() -> coordlock.Grant:
            assert grant.release_requested.wait(60)
            grant.release()
            return client.lock("x").acquire()

        coming = pool.submit(come_again)
        done = cli.run("evict", "x", "--ask", "--timeout", "60s")
        assert (done.returncode, done.stderr) == (0, "")
        coming.result(60).release()
