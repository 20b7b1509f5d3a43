"""``coordlock ls``."""

from __future__ import annotations

import json
import subprocess

import pytest

from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli
from tests.cli.terminals import plain, screen


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
        owner, waiter = (one["owner"] for one in cli.show("jobs"))
        assert listed[0]["queued_since"] == owner["since"]
        assert listed[0]["oldest_waiter"] == waiter
        assert waiter["label"] == "true"
        assert listed[1]["oldest_waiter"] is None
        head, first, _ = cli.run("ls").stdout.splitlines()
        assert head.split()[:5] == ["NAME", "KIND", "HOLDERS", "WAITERS", "HOLDER"]
        assert head.split()[5:] == ["QUEUED", "OLDEST", "WAITER", "WAITS"]
        assert first.split()[:4] == ["jobs", "lock", "1", "1"]
        assert f"{waiter['host']}:{waiter['pid']} true" in first
    assert json.loads(cli.run("ls", "--json").stdout) == []


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
            assert cli.run("evict", "x", "--yes").returncode == 0
            assert other.wait(60) == 0
    eventually(lambda: cli.show("x") == [])


def test_names_are_never_broken(cli: Cli) -> None:
    name = "payments/customer-4711/invoices-of-november/migration"
    with cli.holding(name, "--label", "the nightly migration of all invoices"):
        wide, narrow = ([plain(line) for line in screen(cli, n, "ls")] for n in (300, 80))
        assert wide[1].startswith(f"{name}  lock ")
        # Where no table fits, each column gets a line.
        assert f"NAME           {name}" in narrow


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
