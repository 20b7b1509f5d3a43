"""``coordlock ls`` and ``show``: as what names are used, and what is kept under them."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import coordlock
from coordlock.backend import Put
from coordlock.testing.waiting import eventually
from coordlock.work.layout import Layout
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.cli.command import Cli


def kinds(cli: Cli) -> dict[str, str | None]:
    """By name, as `ls` tells them."""
    return {one["name"]: one["kind"] for one in json.loads(cli.run("ls", "--json").stdout)}


def shown(cli: Cli, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(cli.run("show", name, "--json").stdout)
    return document


def everything(url: str, stack: ExitStack) -> coordlock.Client:
    """A client that takes part in something of each kind, each under the name of its kind."""
    client = stack.enter_context(coordlock.connect(url))
    pool = stack.enter_context(ThreadPoolExecutor(2))
    ending = stack.enter_context(coordlock.connect(url))
    stack.callback(ending.close)  # which ends the waits at barriers
    for grant in (
        client.lock("lock").acquire(),
        client.read_lock("read lock").acquire(),
        client.upgradeable_lock("upgradeable lock").acquire(),
        client.semaphore("semaphore", 2).acquire(),
        client.election("election", b"10.0.0.5:80").campaign(),
        client.group("group").join(b"10.0.0.5:80"),
        client.group("group").join(b""),
        client.lock("free for all", mode=coordlock.Mode.NL).acquire(),
    ):
        stack.callback(grant.release)
    pool.submit(ending.barrier("barrier", 2).wait)
    pool.submit(ending.double_barrier("double barrier", 2).enter)
    for name in ("barrier", "double barrier"):
        eventually(lambda: client.admin.contenders(name), f"a party at the {name}")  # noqa: B023
    return client


@pytest.mark.parametrize("service", ["local", "etcd", "zookeeper"])
def test_ls_tells_the_kind_of_what_is_in_use(
    cli: Cli, service: str, etcd: Etcd, zookeeper: ZooKeeper, root: str, tmp_path: Path
) -> None:
    server = {"etcd": etcd, "zookeeper": zookeeper}.get(service)
    cli = cli if server is None else Cli(server.url_for(root), tmp_path)
    with ExitStack() as stack:
        everything(cli.url, stack)
        assert kinds(cli) == {
            "lock": "lock",
            "read lock": "lock",
            "upgradeable lock": "lock",
            "semaphore": "semaphore",
            # There, kazoo's locks look the same.
            "election": None if service == "zookeeper" else "election",
            "group": None,  # a member that publishes nothing may be a lock in mode NL
            "free for all": None,
            "barrier": "barrier",
            "double barrier": "double barrier",
        }


def test_what_other_programs_hold_is_told_as_far_as_it_can_be(
    etcd: Etcd, zookeeper: ZooKeeper, root: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        endpoint = f"--endpoints=http://{etcd.host}:{etcd.port}"
        for command in (["elect", f"{root}/elected", "me"], ["lock", f"{root}/locked"]):
            process = subprocess.Popen(["etcdctl", endpoint, *command], stdout=subprocess.PIPE)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            assert process.stdout is not None
            assert process.stdout.readline()
            stack.callback(process.stdout.close)
        cli = Cli(etcd.url_for(root), tmp_path)
        assert kinds(cli) == {"elected": "election", "locked": None}

        kazoo = KazooClient(f"{zookeeper.host}:{zookeeper.port}")
        kazoo.start()
        stack.callback(kazoo.close)
        stack.callback(kazoo.stop)
        kazoo.Lock(f"{root}/named", "me").acquire()
        kazoo.Lock(f"{root}/nameless").acquire()
        assert kinds(Cli(zookeeper.url_for(root), tmp_path)) == {"named": None, "nameless": None}


def test_a_member_may_publish_what_looks_like_json_and_is_none(cli: Cli) -> None:
    with coordlock.connect(cli.url) as client:
        client.group("nested").join(b"[" * 50_000)
        client.group("number").join(b"4711")
        assert kinds(cli) == {"nested": "group", "number": "group"}


def test_show_says_what_the_contenders_do(cli: Cli) -> None:
    with coordlock.connect(cli.url) as client:
        client.election("e", b"10.0.0.5:80").campaign()
        client.group("g").join(b"10.0.0.5:80")
        for name, kind, does in (("e", "election", "leads"), ("g", "group", "is there")):
            assert shown(cli, name)["kind"] == kind
            line = cli.run("show", name).stdout.splitlines()[1]
            assert does in line
            assert "10.0.0.5:80" in line


def test_what_is_kept_is_listed(cli: Cli) -> None:
    assert cli.run("ls", "--kept").stderr == "coordlock: there is no record\n"
    with coordlock.connect(cli.url) as client:
        client.counter("invoices").add(4711)
        client.latch("imports", 3).count_down()
        client.latch("opened", 1).count_down()
        client.gate("maintenance").shut()
        client.gate("free").shut()
        client.gate("free").open()
        client.barrier("epoch", 1).wait()
        client.work_queue("mails").put(b"to: ann")
    assert cli.run("ls", "--kept").stdout.splitlines() == [
        "NAME         KIND        STATE",
        "epoch        barrier     passed 1 time",
        "free         gate        open",
        "imports      latch       2 of 3 left",
        "invoices     counter     4711",
        "mails        work queue  1 waiting, 0 taken, 0 delayed, 0 dead",
        "maintenance  gate        shut",
        "opened       latch       open, 1 of 1 counted down",
    ]
    listed = json.loads(cli.run("ls", "--kept", "--json", "m*").stdout)
    assert listed == [
        {
            "name": "mails",
            "kind": "work queue",
            "state": {"waiting": 1, "taken": 0, "delayed": 0, "dead": 0},
        },
        {"name": "maintenance", "kind": "gate", "state": {"open": False}},
    ]
    assert "matches 'x*'" in cli.run("ls", "--kept", "x*").stderr
    assert cli.run("ls").stderr == "coordlock: there is no lock in use\n"


def test_show_tells_what_is_kept_under_the_name(cli: Cli) -> None:
    with coordlock.connect(cli.url) as client:
        client.work_queue("orders").put(b"4711")
        client.counter("orders").add(2)
        client.counter("others").add(1)
        done = cli.run("show", "orders")
        assert done.stderr == ""
        assert done.stdout.splitlines() == [
            "counter: 2",
            "work queue: 1 waiting, 0 taken, 0 delayed, 0 dead",
        ]
        with client.lock("orders").acquire():
            document = shown(cli, "orders")
            assert document["kind"] == "lock"
            assert len(document["contenders"]) == 1
            assert [one["kind"] for one in document["kept"]] == ["counter", "work queue"]
            assert len(cli.run("show", "orders").stdout.splitlines()) == 4


def test_a_work_queue_that_another_program_has_damaged_hides_no_other(cli: Cli) -> None:
    with coordlock.connect(cli.url) as client:
        for name in ("damaged", "mails"):
            client.work_queue(name).put(b"to: ann")
        engine = client._engine
        stray = f"{Layout(engine.data_root, 'damaged').ready}x"
        engine.backend.write([Put(stray, b"")]).result(60)
    assert cli.run("ls", "--kept").stdout.splitlines() == [
        "NAME     KIND        STATE",
        "damaged  work queue  not as coordlock writes it",
        "mails    work queue  1 waiting, 0 taken, 0 delayed, 0 dead",
    ]
    assert cli.run("show", "damaged").stdout == "work queue: not as coordlock writes it\n"
    assert stray in cli.run("queue", "ls", "damaged").stderr
    line = next(one for one in cli.run("doctor").stdout.splitlines() if "work queues" in one)
    assert line.startswith("warning")
    assert "'damaged'" in line
    assert "'mails'" not in line
