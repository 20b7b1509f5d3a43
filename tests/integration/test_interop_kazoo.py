"""coordlock and kazoo's own recipes exclude each other on the same path, in either order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

import coordlock
from coordlock.testing.client_suite import error_of
from coordlock.testing.waiting import eventually
from coordlock.types import Convertible
from testbed.servers.zookeeper import ZooKeeper

QUEUE = "orders"
BOUND = 90.0

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
    return len(client.admin.contenders(QUEUE))


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
        assert [one.holding for one in client.admin.contenders(QUEUE)] == [True, False]
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


def test_the_queue_shows_a_kazoo_client_by_its_identifier(
    client: coordlock.Client, kazoo: Any, root: str
) -> None:
    with Lock(kazoo, f"{root}/{QUEUE}", "a kazoo client"):
        [standing] = client.admin.contenders(QUEUE)
        assert standing.owner is not None
        assert standing.owner.label == "a kazoo client"
        assert standing.claim is coordlock.Mode.EX
        assert standing.token is not None
        assert standing.age is None
        late = lambda: client.lock(QUEUE).acquire(timeout=0.2)  # noqa: E731
        error_of(late, coordlock.AcquireTimeout, "a kazoo client")


# At the top, as in the examples of kazoo's documentation: Lock(client, "/lockpath")


@pytest.fixture
def name(root: str) -> str:
    """A name that no other test uses at the top, which they share."""
    return root.strip("/")


@pytest.fixture(params=["in a URL", "beside a client"])
def top(request: pytest.FixtureRequest, zookeeper: ZooKeeper, kazoo: Any) -> Iterator[Any]:
    if request.param == "in a URL":
        client = coordlock.connect(zookeeper.url_for("/"))
    else:
        client = coordlock.connect(client=kazoo, root="/")
    with client:
        yield client


def test_at_the_top_kazoo_and_coordlock_exclude_each_other(
    top: coordlock.Client, kazoo: Any, name: str, start: Start
) -> None:
    theirs = Lock(kazoo, f"/{name}")
    with theirs:
        assert top.lock(name).try_acquire() is None
    with top.lock(name, timeout=30) as grant:
        assert grant.token == top.admin.contenders(name)[0].token
        waiting = start(theirs.acquire, timeout=60)
        eventually(lambda: len(top.admin.contenders(name)) == 2)
        assert not waiting.done()
    assert waiting.result(60)
    theirs.release()


def test_at_the_top_a_lock_may_have_the_name_of_the_servers_own_node(
    top: coordlock.Client, kazoo: Any
) -> None:
    before = kazoo.get_children("/zookeeper")
    with top.lock("zookeeper") as grant:
        assert "zookeeper" in top.admin.names()
        assert not Lock(kazoo, "/zookeeper").acquire(blocking=False)
        [standing] = top.admin.contenders("zookeeper")
        assert standing.token == grant.token
    assert kazoo.get_children("/zookeeper") == before


def test_the_top_of_a_client_with_a_chroot_is_its_chroot(
    zookeeper: ZooKeeper, kazoo: Any, root: str
) -> None:
    kazoo.ensure_path(f"{root}/inner")
    with zookeeper.kazoo() as rooted:
        rooted.chroot = f"{root}/inner"
        with coordlock.connect(client=rooted, root="/") as client:
            for name in ("orders", "zookeeper"):
                with client.lock(name):
                    assert not Lock(kazoo, f"{root}/inner/{name}").acquire(blocking=False)
                    assert name in client.admin.names()


# Conversions and sets


def is_converting(client: coordlock.Client, name: str = "number") -> bool:
    """Whether a holder has decided who goes before its conversion."""
    claims = [one.contender.claim for one in client.admin.contenders(name)]
    return any(isinstance(one, Convertible) and one.yields_to is not None for one in claims)


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


@pytest.mark.parametrize("style", ["kazoo", "curator", "curator-rw"])
def test_a_set_waits_for_kazoos_lock_which_waits_for_a_set_that_kazoo_knows(
    zookeeper: ZooKeeper, root: str, kazoo: Any, style: str
) -> None:
    """The node that marks a set, in its first queue, is none to wait for."""
    url = zookeeper.url_for(root, nodes=style)
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
        for name in "ab":
            with suppress(NoNodeError):  # the server removes queues that are empty
                assert kazoo.get_children(f"{root}/{name}") == []
