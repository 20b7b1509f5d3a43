"""coordlock and kazoo's own recipes exclude each other on the same path, in either order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

import coordlock
from coordlock.testing.waiting import eventually
from tests.servers.zookeeper import ZooKeeper

QUEUE = "orders"

Start = Callable[..., Future[Any]]


@pytest.fixture
def client(zookeeper: ZooKeeper, root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(zookeeper.url_for(root)) as client:
        yield client


@pytest.fixture
def kazoo(zookeeper: ZooKeeper) -> Iterator[Any]:
    with zookeeper.kazoo() as kazoo:
        yield kazoo


@pytest.fixture
def start() -> Iterator[Start]:
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


def length(client: coordlock.Client) -> int:
    return len(client.contenders(QUEUE))


def length_is(client: coordlock.Client, number: int) -> bool:
    return length(client) == number


@pytest.mark.parametrize("recipe", [Lock, WriteLock])
@pytest.mark.parametrize("mode", [mode for mode in coordlock.Mode if mode.name != "NL"], ids=str)
def test_a_kazoo_lock_excludes_every_mode_but_null(
    client: coordlock.Client, kazoo: Any, root: str, recipe: Any, mode: coordlock.Mode
) -> None:
    with recipe(kazoo, f"{root}/{QUEUE}", "a kazoo client"):
        assert client.lock(QUEUE, mode=mode).try_acquire() is None
        with client.lock(QUEUE, mode=coordlock.Mode.NL):
            pass
    with client.lock(QUEUE, mode=mode, timeout=30):
        pass


def test_a_kazoo_read_lock_excludes_as_a_protected_read(
    client: coordlock.Client, kazoo: Any, root: str
) -> None:
    with ReadLock(kazoo, f"{root}/{QUEUE}"):
        for mode in coordlock.Mode:
            grant = client.lock(QUEUE, mode=mode).try_acquire()
            assert (grant is not None) is (mode.name in ("NL", "CR", "PR"))
            if grant is not None:
                grant.release()


@pytest.mark.parametrize("recipe", [Lock, WriteLock, ReadLock])
@pytest.mark.parametrize("mode", ["EX", "PW"])
def test_a_coordlock_writer_excludes_every_kazoo_recipe(
    client: coordlock.Client, kazoo: Any, root: str, start: Start, recipe: Any, mode: str
) -> None:
    theirs = recipe(kazoo, f"{root}/{QUEUE}")
    with client.lock(QUEUE, mode=coordlock.Mode[mode]):
        waiting = start(theirs.acquire, timeout=60)
        eventually(lambda: length(client) == 2)
        assert not waiting.done()
        assert [one.holding for one in client.contenders(QUEUE)] == [True, False]
    assert waiting.result(60)
    theirs.release()


@pytest.mark.parametrize("mode", ["PR", "CR"])
def test_coordlock_readers_and_kazoo_readers_share(
    client: coordlock.Client, kazoo: Any, root: str, mode: str
) -> None:
    with (
        client.lock(QUEUE, mode=coordlock.Mode[mode]),
        ReadLock(kazoo, f"{root}/{QUEUE}"),
        client.lock(QUEUE, mode=coordlock.Mode[mode]),
    ):
        assert length(client) == 3


def test_a_coordlock_reader_excludes_a_kazoo_writer(
    client: coordlock.Client, kazoo: Any, root: str, start: Start
) -> None:
    writer = WriteLock(kazoo, f"{root}/{QUEUE}")
    with client.read_lock(QUEUE):
        waiting = start(writer.acquire, timeout=60)
        eventually(lambda: length(client) == 2)
        assert client.read_lock(QUEUE).try_acquire() is None
        assert not waiting.done()
    assert waiting.result(60)
    writer.release()


def test_a_mixed_queue_is_served_in_order(
    client: coordlock.Client, zookeeper: ZooKeeper, root: str, start: Start
) -> None:
    granted: list[int] = []

    def wait_in_kazoo(number: int) -> None:
        with zookeeper.kazoo() as kazoo, Lock(kazoo, f"{root}/{QUEUE}"):
            granted.append(number)

    def wait_in_coordlock(number: int) -> None:
        with client.lock(QUEUE):
            granted.append(number)

    with client.lock(QUEUE):
        waiting = []
        for number, wait in enumerate([wait_in_kazoo, wait_in_coordlock] * 3):
            waiting.append(start(wait, number))
            eventually(partial(length_is, client, number + 2))
    for one in waiting:
        one.result(60)
    assert granted == [0, 1, 2, 3, 4, 5]


def test_a_kazoo_holder_that_dies_lets_coordlock_in(
    client: coordlock.Client, zookeeper: ZooKeeper, root: str, start: Start
) -> None:
    with zookeeper.kazoo() as kazoo:
        assert Lock(kazoo, f"{root}/{QUEUE}").acquire(timeout=30)
        waiting = start(client.lock(QUEUE).acquire, 60)
        eventually(lambda: length(client) == 2)
    assert waiting.result(60).release()


def test_the_queue_shows_a_kazoo_client_by_its_identifier(
    client: coordlock.Client, kazoo: Any, root: str
) -> None:
    with Lock(kazoo, f"{root}/{QUEUE}", "a kazoo client"):
        [standing] = client.contenders(QUEUE)
        assert standing.owner is not None
        assert standing.owner.label == "a kazoo client"
        assert standing.claim is coordlock.Mode.EX
        assert standing.token is not None
        assert standing.age is None
        with pytest.raises(coordlock.AcquireTimeout, match="a kazoo client"):
            client.lock(QUEUE).acquire(timeout=0.2)


def test_an_operator_can_evict_a_kazoo_client(
    client: coordlock.Client, kazoo: Any, root: str
) -> None:
    assert Lock(kazoo, f"{root}/{QUEUE}").acquire(timeout=30)
    assert client.evict(client.contenders(QUEUE)[0])
    assert client.lock(QUEUE).acquire(30).release()
