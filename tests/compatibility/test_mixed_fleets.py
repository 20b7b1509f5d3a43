"""Clients of an earlier release and of this one, at the same service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import coordlock
from coordlock import Client
from coordlock.testing.waiting import eventually
from tests.compatibility.releases import BEFORE_LANES, FIRST, unpack

PEER = str(Path(__file__).with_name("peer.py"))


class Raised(Exception):
    """What the earlier release raised."""


class Earlier:
    """A process with an earlier release: see peer.py for what it can do."""

    def __init__(self, path: str, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", PEER, url],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, method: str, *arguments: object) -> Any:
        """The result of a method of `Peer`; raises `Raised`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([method, *arguments]), file=self._process.stdin, flush=True)
        state, *answer = json.loads(self._process.stdout.readline())
        if state == "error":
            raise Raised(": ".join(answer))
        return answer[0]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module", params=[FIRST, BEFORE_LANES], ids=["first", "before_lanes"])
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PYTHONPATH of an earlier release. An sdist or a shallow clone has none."""
    try:
        return unpack(request.param, tmp_path_factory.mktemp("earlier"))
    except LookupError as error:
        pytest.skip(str(error))  # a full clone, as CI's, has it: no server is missing


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ],
)
def url(request: pytest.FixtureRequest) -> str:
    # Local files are of a newer version: each release refuses the other's.
    return f"{request.getfixturevalue(request.param).url}/mixed-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def earlier(release: str, url: str) -> Iterator[Earlier]:
    peer = Earlier(release, url)
    yield peer
    peer.end()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with coordlock.connect(url, label="today", timeout=30) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"a-{uuid.uuid4().hex[:8]}"


def labels(client: Client, name: str) -> list[str]:
    return [one.owner.label for one in client.admin.contenders(name) if one.owner]


def test_they_wait_for_each_other_in_one_queue(client: Client, earlier: Earlier, name: str) -> None:
    first = earlier("acquire", "lock", name)
    assert client.lock(name).try_acquire() is None
    assert labels(client, name) == ["earlier"]
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.lock(name).acquire)
        wait_for_a_waiter(client, name)
        assert earlier("release", name)
        grant = waiting.result(30)
    assert grant.token > first
    assert not earlier("try_acquire", "lock", name)
    earlier("begin", "next", "acquire", "lock", name)
    wait_for_a_waiter(client, name)
    grant.release()
    assert earlier("result", "next") > grant.token
    assert earlier("release", name)


def wait_for_a_waiter(client: Client, name: str) -> None:
    eventually(lambda: len(client.admin.contenders(name)) == 2)


def test_they_share_as_readers_and_as_holders_of_a_semaphore(
    client: Client, earlier: Earlier, name: str
) -> None:
    earlier("acquire", "read_lock", name)
    with client.read_lock(name):
        assert client.write_lock(name).try_acquire() is None
        assert not earlier("try_acquire", "write_lock", name)
    earlier("release", name)
    pool = f"{name}-pool"
    earlier("acquire", "semaphore", pool, 2)
    with client.semaphore(pool, 2):
        assert client.semaphore(pool, 2).try_acquire() is None
        assert not earlier("try_acquire", "semaphore", pool, 2)
    earlier("release", pool)


def test_their_upgradeable_locks_exclude_each_other(
    client: Client, earlier: Earlier, name: str
) -> None:
    earlier("acquire", "upgradeable_lock", name)
    assert client.upgradeable_lock(name).try_acquire() is None
    earlier("release", name)
    with client.upgradeable_lock(name):
        assert not earlier("try_acquire", "upgradeable_lock", name)


def test_they_elect_one_leader(client: Client, earlier: Earlier, name: str) -> None:
    first = earlier("lead", name, "an earlier one")
    election = client.election(name, b"one of today")
    leader = election.leader()
    assert leader is not None
    assert leader.token == first
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(election.campaign)
        wait_for_a_waiter(client, name)
        earlier("release", name)
        term = waiting.result(30)
    assert term.token > first
    earlier("begin", "term", "lead", name, "an earlier one")
    wait_for_a_waiter(client, name)
    term.release()
    assert earlier("result", "term") > term.token
    earlier("release", name)


def test_they_see_each_other_in_a_group(client: Client, earlier: Earlier, name: str) -> None:
    earlier("join", name, "earlier")
    with client.group(name).join(b"today"):
        assert earlier("members", name) == ["earlier", "today"]
        assert {one.value for one in client.group(name).members()} == {b"earlier", b"today"}
    earlier("release", name)


def test_they_count_together(client: Client, earlier: Earlier, name: str) -> None:
    assert earlier("add", name, 3) == 3
    assert client.counter(name).add(4) == 7
    assert earlier("add", name, -2) == 5
    assert client.counter(name).get() == 5
    assert earlier("count_down", name, 3) == 2
    assert client.latch(name, 3).count_down() == 1
    assert earlier("count_down", name, 3) == 0
    client.latch(name, 3).wait(30)


def test_they_pass_a_barrier_together(client: Client, earlier: Earlier, name: str) -> None:
    for _ in range(3):
        earlier("begin", "pass", "pass_barrier", name, 2)
        client.barrier(name, 2).wait(30)
        earlier("result", "pass")


def test_a_killed_client_of_an_earlier_release_leaves_its_queue(
    client: Client, release: str, url: str, name: str
) -> None:
    peer = Earlier(release, url)
    first = peer("acquire", "lock", name)
    peer.kill()
    with client.lock(name, timeout=60) as grant:
        assert grant.token > first
