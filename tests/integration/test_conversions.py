"""Grants that are converted by processes, over broken connections, and beside kazoo's recipes."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

import coordlock
from coordlock import LockLost, Mode
from coordlock.testing.connection import Connection
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from coordlock.types import Convertible
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.test_several_locks import BOUND, started

#: Reads a number as a reader, and makes it one more as the writer that the reader has become.
WORKER = """
import sys, coordlock
url, file, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])

def read():
    with open(file) as content:
        return int(content.read())

with coordlock.connect(url) as client:
    print("ready", flush=True)
    for number in range(rounds):
        with client.read_lock("number", timeout=60):
            assert read() == read()
        with client.upgradeable_lock("number", timeout=60) as grant:
            before = read()
            grant.upgrade(timeout=60)
            assert read() == before, "somebody has written in between"
            with open(file, "r+") as content:
                content.write("%d" % (before + 1))
            grant.downgrade()
            assert read() == before + 1, "somebody has written beside a reader"
    print("done", flush=True)
"""
#: Holds the lock as a reader, and goes on to be a writer.
UPGRADING = """
import sys, coordlock
client = coordlock.connect(sys.argv[1])
grant = client.upgradeable_lock("number").acquire()
print("reads", flush=True)
grant.upgrade()
print("writes", flush=True)
sys.stdin.read()
"""


def is_converting(client: coordlock.Client, name: str = "number") -> bool:
    """Whether a holder has decided who goes before its conversion."""
    claims = [one.contender.claim for one in client.admin.contenders(name)]
    return any(isinstance(one, Convertible) and one.yields_to is not None for one in claims)


def test_six_processes_read_first_and_then_write(shared_url: str, tmp_path: Path) -> None:
    file = tmp_path / "number"
    file.write_text("0", "utf-8")
    workers = [started(WORKER, shared_url, str(file), "8") for _ in range(6)]
    try:
        ends = [worker.communicate(timeout=BOUND)[0].split() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert ends == [["ready", "done"]] * 6
    assert file.read_text("utf-8") == "48"
    with coordlock.connect(shared_url) as client:
        assert client.admin.contenders("number") == ()


@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "paused"])
def test_a_process_that_stops_while_it_converts_keeps_nobody_out_for_good(
    shared_url: str, what: signal.Signals
) -> None:
    if what is signal.SIGSTOP and shared_url.startswith("local"):
        pytest.skip("local: a paused process is alive, and keeps its locks by design")
    url = shared_url.replace("ttl=60", "ttl=2")
    with coordlock.connect(url) as client, ThreadPoolExecutor(1) as pool:
        reader = client.read_lock("number").acquire()
        with started(UPGRADING, url) as upgrading:
            assert upgrading.stdout
            assert upgrading.stdout.readline() == "reads\n"
            eventually(lambda: is_converting(client))
            late = pool.submit(client.read_lock("number", timeout=BOUND).acquire)
            eventually(lambda: len(client.admin.contenders("number")) == 3)
            upgrading.send_signal(what)
            try:
                late.result(BOUND).release()  # the first reader holds the lock all the time
            finally:
                upgrading.send_signal(signal.SIGKILL)
        assert reader.release()


@pytest.fixture(params=["etcd", "zookeeper"])
def proxy(request: pytest.FixtureRequest, root: str) -> Iterator[tuple[FaultProxy, str]]:
    server: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    framer = GrpcFrames if request.param == "etcd" else ZooKeeperFrames
    with FaultProxy(server.host, server.port, framer) as proxy:
        yield proxy, f"{request.param}://127.0.0.1:{proxy.port}{root}?ttl=60s"


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_publication_whose_reply_is_lost_is_made_once(
    proxy: tuple[FaultProxy, str], nth: int
) -> None:
    relay, url = proxy
    request = "*Txn" if url.startswith("etcd") else "setData"
    with coordlock.connect(url) as client, coordlock.connect(url) as other:
        reader = other.read_lock("number").acquire()
        with client.upgradeable_lock("number") as grant, ThreadPoolExecutor(1) as pool:
            trap = relay.on_request(request, Connection.lose_reply, nth=nth)
            upgrade = pool.submit(grant.upgrade)
            eventually(lambda: is_converting(other))
            reader.release()
            upgrade.result(BOUND)
            (mine,) = other.admin.contenders("number")
            assert mine.contender.claim == Convertible(Mode.EX, update=True)
            # Its beginning, the target, who goes first, the end.
            assert mine.contender.version == 4
            assert trap.sprung


def test_conversions_outlive_connections_that_break_all_the_time(
    proxy: tuple[FaultProxy, str],
) -> None:
    relay, url = proxy
    inside: list[str] = []
    ends = time.monotonic() + 6.0

    def work(number: int) -> int:
        dice, done = random.Random(number), 0
        with coordlock.connect(url) as client:
            while time.monotonic() < ends:
                try:
                    with client.upgradeable_lock("number", timeout=BOUND) as grant:
                        grant.upgrade(timeout=BOUND)
                        grant.check()
                        inside.append("w")
                        assert inside == ["w"]
                        inside.pop()
                        grant.downgrade()
                    with client.read_lock("number", timeout=BOUND):
                        assert not inside or grant.state is not coordlock.GrantState.HELD
                    done += 1
                except (LockLost, coordlock.BackendUnavailable, coordlock.SessionLost):
                    time.sleep(dice.random() / 10)
        return done

    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(work, number) for number in range(4)]
        while time.monotonic() < ends:
            time.sleep(0.5)
            relay.drop_connections()
        assert all(call.result(BOUND) > 0 for call in calls)
    with coordlock.connect(url) as client:
        assert client.admin.contenders("number") == ()


# Beside kazoo's recipes

Start = Callable[..., Future[Any]]


@pytest.fixture
def client(zookeeper: ZooKeeper, root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(zookeeper.url_for(root)) as client:
        yield client


@pytest.fixture
def kazoo(zookeeper: ZooKeeper) -> Iterator[Any]:
    with zookeeper.kazoo() as kazoo:
        yield kazoo


@pytest.mark.parametrize("recipe", [Lock, ReadLock, WriteLock])
def test_kazoos_recipes_take_an_upgradeable_lock_for_an_exclusive_one(
    client: coordlock.Client, kazoo: Any, root: str, recipe: Any
) -> None:
    """Before a conversion, after it, and after the way back."""
    theirs = recipe(kazoo, f"{root}/number", "a kazoo client")
    with client.upgradeable_lock("number") as grant:
        assert not theirs.acquire(blocking=False)
        grant.upgrade()
        assert not theirs.acquire(blocking=False)
        grant.downgrade()
        assert not theirs.acquire(blocking=False)
    assert theirs.acquire(timeout=BOUND)
    theirs.release()


def test_an_upgrade_waits_for_kazoos_reader_and_lets_in_no_other(
    client: coordlock.Client, kazoo: Any, root: str
) -> None:
    first = ReadLock(kazoo, f"{root}/number", "a reader")
    second = ReadLock(kazoo, f"{root}/number", "another")
    assert first.acquire()
    with ThreadPoolExecutor(2) as pool, client.upgradeable_lock("number") as grant:
        upgrade = pool.submit(grant.upgrade)
        eventually(lambda: is_converting(client))
        waiting = pool.submit(second.acquire, timeout=BOUND)
        eventually(lambda: len(client.admin.contenders("number")) == 3)
        assert not upgrade.done()
        first.release()
        upgrade.result(BOUND)
        assert not waiting.done()
        grant.release()
        assert waiting.result(BOUND)
    second.release()


def test_kazoos_writer_excludes_an_upgradeable_lock(
    client: coordlock.Client, kazoo: Any, root: str
) -> None:
    with WriteLock(kazoo, f"{root}/number", "a writer"):
        assert client.upgradeable_lock("number").try_acquire() is None
