"""Several locks at once, taken by processes, and what other programs see of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kazoo.recipe.lock import Lock

import coordlock
from coordlock.errors import TooLarge
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper

BOUND = 90.0
NAMES = ["a", "b", "c", "d", "e"]

#: Takes three of five locks, in any order, and for each makes a file that only one may make.
WORKER = """
import os, random, sys, coordlock
url, directory, seed, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
names = "abcde"
with coordlock.connect(url) as client:
    for number in range(rounds):
        chosen = chance.sample(names, 3)
        with client.multi_lock(chosen, timeout=60) as grant:
            for name in chosen:
                os.close(os.open(f"{directory}/{name}", os.O_CREAT | os.O_EXCL))
            for name in chosen:
                os.unlink(f"{directory}/{name}")
    print("done", flush=True)
"""
HOLDER = """
import sys, coordlock
client = coordlock.connect(sys.argv[1])
grant = client.multi_lock(sys.argv[2:]).acquire()
print(grant.parts["a"].token, flush=True)
sys.stdin.read()
"""


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_eight_processes_take_sets_in_any_order_and_none_waits_for_ever(
    shared_url: str, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    workers = [started(WORKER, shared_url, str(files), str(seed), "15") for seed in range(8)]
    try:
        ends = [worker.communicate(timeout=BOUND)[0].strip() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert ends == ["done"] * 8
    with coordlock.connect(shared_url) as client:
        assert [client.admin.contenders(name) for name in NAMES] == [()] * 5


def test_what_a_killed_process_held_goes_together(shared_url: str) -> None:
    """After the time-to-live; on local at once."""
    url = shared_url.replace("ttl=60", "ttl=2")
    with started(HOLDER, url, *NAMES) as holder, coordlock.connect(url) as client:
        assert holder.stdout
        token = int(holder.stdout.readline())
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.multi_lock(reversed(NAMES), timeout=BOUND).acquire)
            eventually(lambda: len(client.admin.contenders("a")) == 2)
            holder.kill()
            with waiting.result(BOUND) as grant:
                assert grant.parts["a"].token > token


def test_more_names_than_etcd_takes_in_one_step_are_refused_with_the_number(
    etcd: Etcd, root: str
) -> None:
    names = [f"n{number}" for number in range(65)]
    with coordlock.connect(etcd.url_for(root)) as client:
        with pytest.raises(TooLarge, match="65 locks in one step are too many: they take 130"):
            client.multi_lock(names).acquire()
        assert client.admin.names() == []
        with client.multi_lock(names[:64]) as grant:
            assert len(grant.parts) == 64


def test_more_names_than_zookeeper_takes_in_one_step_are_refused_with_the_size(
    zookeeper: ZooKeeper, root: str
) -> None:
    names = [f"{'n' * 200}{number}" for number in range(3000)]
    with coordlock.connect(zookeeper.url_for(root)) as client:
        with pytest.raises(TooLarge, match="3000 locks in one step are too many"):
            client.multi_lock(names).acquire()
        with client.multi_lock(names[:500]) as grant:
            assert len(grant.parts) == 500


@pytest.fixture
def kazoo(zookeeper: ZooKeeper) -> Iterator[Any]:
    with zookeeper.kazoo() as kazoo:
        yield kazoo


@pytest.mark.parametrize("style", ["kazoo", "curator", "curator-rw"])
def test_a_set_waits_for_kazoos_lock_which_waits_for_a_set_that_kazoo_knows(
    zookeeper: ZooKeeper, root: str, kazoo: Any, style: str
) -> None:
    """The node that marks a set, in its first queue, is none to wait for."""
    url = f"{zookeeper.url_for(root)}?nodes={style}"
    with coordlock.connect(url) as client, ThreadPoolExecutor(2) as pool:
        for name in "ab":
            theirs = Lock(kazoo, f"{root}/{name}", "kazoo")
            with client.multi_lock(["a", "b"]):
                waiting = pool.submit(theirs.acquire, timeout=60)
                eventually(lambda name=name: len(client.admin.contenders(name)) == 2)  # type: ignore[misc]
                if style == "kazoo":  # it does not know names that are made for Curator
                    with pytest.raises(TimeoutError):
                        waiting.result(0.3)
            assert waiting.result(BOUND)
            ours = pool.submit(client.multi_lock(["b", "a"], timeout=60).acquire)
            eventually(lambda name=name: len(client.admin.contenders(name)) == 2)  # type: ignore[misc]
            assert not ours.done()
            theirs.release()
            assert ours.result(BOUND).release()
        assert kazoo.get_children(f"{root}/a") == []
        assert kazoo.get_children(f"{root}/b") == []


def test_a_sets_tokens_are_sequences_where_asked_for(zookeeper: ZooKeeper, root: str) -> None:
    with coordlock.connect(f"{zookeeper.url_for(root)}?token=sequence") as client:
        for _ in range(5):
            client.lock("b").acquire().release()
        with client.multi_lock(["a", "b"]) as grant:
            assert grant.parts["a"].token != grant.parts["b"].token
            with pytest.raises(coordlock.errors.Unsupported, match="has several parts"):
                _ = grant.token
