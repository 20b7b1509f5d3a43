"""A holder that had to wait tells the next in line that nobody else is ahead of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from kazoo.security import make_acl

import coordlock
from coordlock.errors import Evicted
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.zookeeper.conftest import BOUND


class Line:
    """Contenders for one lock, each of a client of its own; the last one behind a proxy."""

    def __init__(
        self, clients: list[coordlock.Client], pool: ThreadPoolExecutor, kazoo: Any, queue: str
    ) -> None:
        self.grants: list[Future[coordlock.Grant]] = []
        for number, client in enumerate(clients, 1):
            self.grants.append(pool.submit(client.lock("x").acquire, timeout=BOUND))
            eventually(partial(self._has, clients[0], number))
        names = sorted(kazoo.get_children(queue), key=lambda name: name[-10:])
        self.keys = [f"{queue}/{name}" for name in names]

    def _has(self, client: coordlock.Client, number: int) -> bool:
        return len(client.admin.contenders("x")) == number


@pytest.fixture
def line(zookeeper: ZooKeeper, proxied: str, root: str, kazoo: Any) -> Iterator[Line]:
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        urls = [zookeeper.url_for(root)] * 3 + [proxied]
        clients = [stack.enter_context(coordlock.connect(url)) for url in urls]
        yield Line(clients, pool, kazoo, f"{root}/x")


def test_whoever_was_far_back_is_granted_without_a_reading(line: Line, proxy: FaultProxy) -> None:
    for grant in line.grants[:2]:
        grant.result(BOUND).release()
    third = line.grants[2].result(BOUND)
    with proxy.counting() as sent:
        third.release()
        line.grants[3].result(BOUND)
    assert not sent.requests.keys() & {"getChildren", "getChildren2"}


def test_who_leaves_without_having_been_first_passes_nothing_on(line: Line, kazoo: Any) -> None:
    kazoo.delete(line.keys[2])
    with pytest.raises(Evicted):
        line.grants[2].result(BOUND)
    for grant in line.grants[:2]:
        assert not line.grants[3].done()
        grant.result(BOUND).release()
    line.grants[3].result(BOUND)


def test_a_waiter_that_was_evicted_is_not_granted_what_is_passed_on(line: Line, kazoo: Any) -> None:
    for grant in line.grants[:2]:
        grant.result(BOUND).release()
    kazoo.delete(line.keys[3])
    line.grants[2].result(BOUND).release()
    with pytest.raises(Evicted):
        line.grants[3].result(BOUND)


def test_who_takes_several_locks_passes_on_only_the_one_that_was_passed_to_it(
    line: Line, zookeeper: ZooKeeper, root: str, kazoo: Any
) -> None:
    url = zookeeper.url_for(root)
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        holder, several, last = (stack.enter_context(coordlock.connect(url)) for _ in range(3))
        held = holder.lock("y").acquire(timeout=BOUND)
        both = pool.submit(several.multi_lock(["x", "y"]).acquire, timeout=BOUND)
        eventually(lambda: len(holder.admin.contenders("y")) == 2)
        waiting = pool.submit(last.lock("y").acquire, timeout=BOUND)
        eventually(lambda: len(holder.admin.contenders("y")) == 3)
        for grant in line.grants:
            assert grant.result(BOUND).release()
        eventually(lambda: len(holder.admin.contenders("x")) == 1)
        [name] = [one for one in kazoo.get_children(f"{root}/x") if not one.startswith("~")]
        kazoo.delete(f"{root}/x/{name}")
        with pytest.raises(Evicted):
            both.result(BOUND)
        eventually(lambda: len(holder.admin.contenders("y")) == 2)
        kazoo.sync(f"{root}/y")
        last.admin.contenders("y")  # what it was told before has arrived
        assert not waiting.done()
        held.release()
        waiting.result(BOUND).release()


def test_who_may_not_set_the_data_of_its_node_leaves_as_before(
    zookeeper: ZooKeeper, root: str
) -> None:
    acl = [make_acl("world", "anyone", read=True, create=True, delete=True)]
    with zookeeper.kazoo(default_acl=acl) as given, ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        url = zookeeper.url_for(root)
        clients = [stack.enter_context(coordlock.connect(url)) for _ in range(3)]
        clients.insert(2, stack.enter_context(coordlock.connect(url, client=given)))
        grants = []
        for number, client in enumerate(clients, 1):
            grants.append(pool.submit(client.lock("x").acquire, timeout=BOUND))
            eventually(lambda: len(clients[0].admin.contenders("x")) == number)  # noqa: B023
        for grant in grants:
            assert grant.result(BOUND).release()
