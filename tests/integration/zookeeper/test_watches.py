"""Departures are told once, to all who wait, whatever happened to the connection meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from coordlock.backend import Departure
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.zookeeper.conftest import BOUND, Parties, Party


def watches_on_server(kazoo: Any, path: str) -> int:
    """How many watches the server keeps on a path, for all sessions."""
    count, here = 0, False
    for line in kazoo.command(b"wchp").splitlines():
        if line.startswith("/"):
            here = line == path
        elif here and line.strip():
            count += 1
    return count


def test_many_watchers_of_a_contender_share_one_request(
    proxy: FaultProxy, proxied: str, parties: Parties
) -> None:
    party = parties(proxied)
    entry, contender, snapshot = party.enqueue()
    told: list[int] = []
    with proxy.counting() as sent:
        for number in range(100):

            def departed(_: Departure, number: int = number) -> None:
                told.append(number)

            party.backend.watch(contender, snapshot.revision, departed)
        party.recovers()  # an answer that comes after those of the watches
    assert sent.requests["getData"] == 1
    assert sent.requests["exists"] == 0
    party.backend.withdraw([entry]).result(BOUND)
    eventually(lambda: sorted(told) == list(range(100)))


def test_a_watch_that_is_being_set_is_known_not_to_tell_in_order(
    proxy: FaultProxy, proxied: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(proxied)
    _, first, _ = parties(proxied).enqueue()
    _, mine, snapshot = party.enqueue()
    own, told = threading.Event(), Future[Departure]()
    party.backend.watch(first, snapshot.revision, told.set_result, waiters=[mine])
    party.recovers()
    # The fault: the watch on its own contender is on its way for a while.
    proxy.requests.black_hole()
    party.backend.watch(mine, snapshot.revision, lambda _: own.set())
    kazoo.delete(mine.key)
    kazoo.delete(first.key)
    assert told.result(BOUND) is Departure.UNORDERED
    assert not own.is_set()
    proxy.heal()
    assert own.wait(BOUND)


def test_a_watch_that_is_set_without_a_connection_is_set_when_it_is_back(
    proxy: FaultProxy, proxied: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(proxied)
    _, contender, snapshot = party.enqueue()
    proxy.refuse()
    proxy.drop_connections()
    eventually(lambda: party.events)
    departed = threading.Event()
    party.backend.watch(contender, snapshot.revision, lambda _: departed.set())
    proxy.heal()
    party.recovers()
    eventually(lambda: watches_on_server(kazoo, contender.key) == 1)
    kazoo.delete(contender.key)
    assert departed.wait(BOUND)


def test_watching_what_has_gone_leaves_no_watch_behind(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(root))
    entry, contender, snapshot = party.enqueue()
    party.backend.withdraw([entry]).result(BOUND)
    departed = threading.Event()
    party.backend.watch(contender, snapshot.revision, lambda _: departed.set())
    assert departed.wait(BOUND)
    assert watches_on_server(kazoo, contender.key) == 0


def test_cancelled_watches_do_not_pile_up(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(root))
    _, contender, snapshot = party.enqueue()
    called = threading.Event()
    for _ in range(50):
        party.backend.watch(contender, snapshot.revision, lambda _: called.set())()
    party.recovers()
    assert watches_on_server(kazoo, contender.key) == 1
    assert kazoo_watchers(party, contender.key) == 1
    kazoo.delete(contender.key)
    eventually(lambda: kazoo_watchers(party, contender.key) == 0)
    party.recovers()
    assert not called.is_set()


def kazoo_watchers(party: Party, path: str) -> int:
    """How many functions kazoo would call."""
    assert party.backend._current is not None
    return len(party.backend._current.session.client._data_watchers.get(path, ()))
