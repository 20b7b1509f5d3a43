"""What crosses the wire: as few messages as the protocol needs, counted by a proxy."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import coordlock
from coordlock.model.contender import Contender
from coordlock.telemetry.metrics import Change
from coordlock.telemetry.survey import Survey
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.order import is_told_in_order
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper

#: Sent at intervals, whatever the locks do, and where an answer takes long.
KEEPING_ALIVE = {"ping", "sync", "LeaseKeepAlive", "MemberList", "Status"}

CROWD = 30

#: Of the queue; `getData` sets a watch on ZooKeeper.
READS = {"Range", "getChildren", "getChildren2"}


@dataclass
class Wire:
    """A service behind a counting proxy."""

    proxy: FaultProxy
    url: str
    #: Past the proxy, for looking on without being counted.
    direct: str

    def requests(self, action: Callable[[], object]) -> Counter[str]:
        """The requests sent while ``action`` ran, but for heartbeats."""
        with self.proxy.counting() as sent:
            action()
        return Counter({k: n for k, n in sent.requests.items() if k not in KEEPING_ALIVE})


@pytest.fixture(params=["etcd", "zookeeper"])
def wire(request: pytest.FixtureRequest, root: str) -> Iterator[Wire]:
    server: Etcd | ZooKeeper = request.getfixturevalue(request.param)
    framer = GrpcFrames if request.param == "etcd" else ZooKeeperFrames
    with FaultProxy(server.host, server.port, framer) as proxy:
        url = f"{request.param}://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=30s"
        yield Wire(proxy, url, server.url_for(root, ttl="60s"))


@pytest.fixture
def client(wire: Wire) -> Iterator[coordlock.Client]:
    with coordlock.connect(wire.url) as client:
        client.lock("warm").acquire().release()
        client.lock("orders").acquire().release()
        yield client


def length_is(client: coordlock.Client, length: int) -> bool:
    return len(client.admin.contenders("orders")) == length


def round_trips(requests: Counter[str]) -> int:
    """How often the client waited: on ZooKeeper a create and the list behind it are one.

    That the list follows at once, the time through a slow network shows.
    """
    return sum(n for kind, n in requests.items() if not kind.startswith("getChildren"))


def fewest(
    wire: Wire, begin: Callable[[], Any], end: Callable[[Any], object]
) -> tuple[Counter[str], Counter[str]]:
    """The requests of ``begin``, and of the ``end`` of what that gives.

    Watches are set after a while, and a machine that stands still makes that any moment. So these
    are the fewest of twenty.
    """
    begun: list[Any] = []
    beginning, ending = [], []
    for _ in range(20):
        beginning.append(wire.requests(lambda: begun.append(begin())))
        ending.append(wire.requests(lambda: end(begun.pop())))
    return min(beginning, key=Counter.total), min(ending, key=Counter.total)


def release(grant: Any) -> None:
    assert grant.release()


def check_the_time(wire: Wire, lock: coordlock.Lock | coordlock.types.MultiLock) -> None:
    """An acquire and a release each take one round trip of half a second."""
    wire.proxy.delay(0.25)
    quick = set[str]()

    def are_quick() -> bool:
        started = time.monotonic()
        grant = lock.acquire()
        acquired = time.monotonic()
        grant.release()
        took = {"acquire": acquired - started, "release": time.monotonic() - acquired}
        assert min(took.values()) >= 0.5, took
        quick.update(what for what, seconds in took.items() if seconds < 1.0)
        return len(quick) == 2

    # A second round trip would take a second in every turn.
    eventually(are_quick, "one round trip each")
    wire.proxy.heal()


def test_an_uncontended_acquire_is_one_round_trip_and_a_release_is_one(
    wire: Wire, client: coordlock.Client
) -> None:
    acquiring, releasing = fewest(wire, client.lock("orders").acquire, release)
    assert round_trips(acquiring) == 1, acquiring
    assert sum(releasing.values()) == 1, releasing
    check_the_time(wire, client.lock("orders"))


def test_an_uncontended_try_is_one_round_trip(wire: Wire, client: coordlock.Client) -> None:
    trying, _ = fewest(wire, client.lock("orders").try_acquire, release)
    assert round_trips(trying) == 1, trying


@pytest.mark.parametrize("kind", ["lock", "semaphore", "several", "read"])
def test_a_refused_try_costs_reads_alone(wire: Wire, client: coordlock.Client, kind: str) -> None:
    locks: dict[str, Any] = {
        "lock": client.lock("orders"),
        "semaphore": client.semaphore("permits", 2),
        "several": client.multi_lock(["orders", "warm"]),
        "read": client.read_lock("orders"),
    }
    with (
        coordlock.connect(wire.direct) as other,
        other.lock("orders"),
        other.semaphore("permits", 2),
        other.semaphore("permits", 2),
    ):
        assert locks[kind].try_acquire() is None  # from then on it looks before it takes a place
        before = revision(other)
        with wire.proxy.counting() as sent:
            assert locks[kind].try_acquire() is None
        asked = {name for name in sent.requests if name not in KEEPING_ALIVE - {"sync"}}
        assert asked <= {"Txn", "Range", "sync", "getChildren2"}, asked
        assert sum(sent.requests[name] for name in ("Txn", "Range", "getChildren2")) <= 2
        # On etcd a transaction may write: it has not, for its revision counts what is written.
        assert revision(other) == before


def test_the_command_line_looks_before_it_takes_a_place(
    wire: Wire, client: coordlock.Client
) -> None:
    command = [sys.executable, "-m", "coordlock", "run", "-n", "--url", wire.url, "orders"]
    statuses: list[int] = []
    with coordlock.connect(wire.direct) as other, other.lock("orders"):
        before = revision(other)
        run = partial(subprocess.run, [*command, "--", "true"], check=False, timeout=60)
        sent = wire.requests(lambda: statuses.append(run().returncode))
        assert revision(other) == before, sent
    statuses.append(run().returncode)
    assert statuses == [75, 0]


def revision(client: coordlock.Client) -> int:
    """How much was written to the queue of `orders` so far, or on etcd to any."""
    return client._engine.backend.snapshot("orders").result(30).revision


def test_ten_locks_at_once_are_one_round_trip_and_their_release_is_one(
    wire: Wire, client: coordlock.Client
) -> None:
    names = [f"n{number}" for number in range(10)]
    client.multi_lock(names).acquire().release()  # as the queues' nodes exist from then on
    acquiring, releasing = fewest(wire, client.multi_lock(names).acquire, release)
    # Behind the multi follow at once what tells its transaction, and the lists.
    assert round_trips(acquiring) - acquiring["exists"] == 1, acquiring
    assert acquiring["exists"] <= 1
    assert sum(releasing.values()) == 1, releasing
    check_the_time(wire, client.multi_lock(names))


def test_an_upgrade_asks_four_times_and_a_downgrade_once(
    wire: Wire, client: coordlock.Client
) -> None:
    with client.upgradeable_lock("orders") as grant:
        upgrading, downgrading = fewest(wire, grant.upgrade, lambda _: grant.downgrade())
        written = {"Txn", "setData"}
        assert sum(n for kind, n in upgrading.items() if kind in written) == 2, upgrading
        # On ZooKeeper what the nodes tell follows the list of their names.
        reads = upgrading["Range"] + upgrading["getChildren2"]
        assert reads == 2, upgrading
        assert sum(downgrading.values()) == 1, downgrading


def test_joining_a_group_is_one_round_trip_however_many_are_there(
    wire: Wire, client: coordlock.Client
) -> None:
    group = client.group("orders")
    members = [group.join(b"%d" % number) for number in range(20)]

    def but_watches(sent: Counter[str]) -> Counter[str]:
        # Each member is watched after a while, which may be any of these moments.
        return Counter({kind: n for kind, n in sent.items() if kind not in ("getData", "Watch")})

    joining, leaving = fewest(wire, lambda: group.join(b"one more"), release)
    numbers = itertools.count(100)
    updating, _ = fewest(wire, lambda: members[0].publish(b"%d" % next(numbers)), lambda _: None)
    assert round_trips(but_watches(joining)) == 1, joining
    assert but_watches(updating).total() == 1, updating
    assert but_watches(leaving).total() == 1, leaving
    for one in members:
        one.release()


def test_nothing_is_sent_for_a_request_to_release_that_nobody_listens_to(
    wire: Wire, client: coordlock.Client
) -> None:
    with client.lock("orders") as grant, coordlock.connect(wire.direct) as other:
        time.sleep(0.3)  # its own watch is set then
        assert wire.requests(lambda: other.admin.request_release("orders")).total() == 0
        listening = wire.requests(lambda: grant.release_requested.wait(30))
        assert 0 < listening.total() < 12, listening


@pytest.mark.parametrize("wire", ["zookeeper"], indirect=True)
def test_ten_locks_are_handed_over_without_a_read(wire: Wire, client: coordlock.Client) -> None:
    names = [f"n{number}" for number in range(10)]
    with coordlock.connect(wire.direct) as other, ThreadPoolExecutor(1) as pool:
        held = other.multi_lock(names).acquire()
        waiting = pool.submit(client.multi_lock(reversed(names)).acquire)
        eventually(lambda: len(other.admin.contenders("n0")) == 2)
        ahead = other.admin.contenders("n0")[1].contender
        eventually(lambda: is_told_in_order(client._engine.backend, ahead))
        sent = wire.requests(lambda: (held.release(), waiting.result(30)))
        assert not sent.keys() & READS, sent
        waiting.result().release()


def test_looking_for_deadlocks_sends_nothing_for_who_holds_nothing_or_waits_briefly(
    wire: Wire,
) -> None:
    with (
        coordlock.connect(wire.direct) as other,
        coordlock.connect(wire.url, deadlock_delay="200ms") as client,
        ThreadPoolExecutor(1) as pool,
        other.lock("orders") as held,
    ):
        client.lock("mine").acquire().release()
        waiting = pool.submit(client.lock("orders").acquire)
        eventually(lambda: len(other.admin.contenders("orders")) == 2)
        own = other.admin.contenders("orders")[1].contender
        eventually(lambda: is_told_in_order(client._engine.backend, own))
        assert not wire.requests(lambda: time.sleep(1))

        def wait_with_another() -> None:
            with client.lock("mine"), pytest.raises(coordlock.AcquireTimeout):
                client.lock("orders").acquire(0.1)

        brief = wire.requests(wait_with_another)
        assert brief["getData"] + brief["Range"] <= 3, brief  # who is ahead, and the own place

        def wait_for_long() -> None:
            with client.lock("mine"), pytest.raises(coordlock.AcquireTimeout):
                client.lock("orders").acquire(1.0)

        assert sum(wire.requests(wait_for_long).values()) > sum(brief.values())
        held.release()
        waiting.result(30).release()


def test_the_second_in_line_is_granted_without_a_read(wire: Wire, client: coordlock.Client) -> None:
    before = wire.proxy.counts()

    def watches() -> int:
        answers = (wire.proxy.counts() - before).replies
        return answers["Watch"] + answers["getData"]

    with coordlock.connect(wire.direct) as other, ThreadPoolExecutor() as pool:
        holding = other.lock("orders").acquire()
        waiting = pool.submit(client.lock("orders").acquire)
        count = 1 if wire.url.startswith("etcd") else 2  # on etcd one watch for both
        eventually(lambda: watches() == count, "it watches its own and the holder's")

        def hand_over() -> None:
            holding.release()
            waiting.result(30)

        requests = wire.requests(hand_over)
        assert not [kind for kind in requests if kind in READS], requests
        waiting.result().release()


def test_a_lock_goes_through_a_crowd_of_one_client_without_reads_or_herds(
    wire: Wire, client: coordlock.Client
) -> None:
    woken: list[int] = []

    async def wait(client: coordlock.AsyncClient, number: int) -> None:
        async with client.lock("orders"):
            woken.append(number)
            await asyncio.sleep(0)

    async def main() -> tuple[int, Counter[str]]:
        async with coordlock.connect_async(wire.url) as waiters:
            holding = await asyncio.to_thread(client.lock("orders").acquire)
            await waiters.lock("warm").try_acquire()
            tasks, threads = [], []
            for number in range(CROWD):
                tasks.append(asyncio.create_task(wait(waiters, number)))
                queued = partial(length_is, client, number + 2)
                await asyncio.to_thread(eventually, queued)
                ours = [one for one in threading.enumerate() if "asyncio" not in one.name]
                threads.append(len(ours))
            with wire.proxy.counting() as sent:
                await asyncio.to_thread(holding.release)
                await asyncio.gather(*tasks)
            # The first ones start what the client shares; gRPC adds threads for calls under way.
            return max(threads[10:]) - threads[10], sent.requests

    more_threads, requests = asyncio.run(main())
    assert more_threads <= 4, "waiting tasks must not take threads"
    assert woken == list(range(CROWD))
    # A herd would read the queue 30 + 29 + 28 + ... times.
    assert sum(n for kind, n in requests.items() if kind in READS) <= 1, requests
    # One for each who leaves; etcd's client cancels watches, too, and ZooKeeper's cannot.
    left = sum(n for kind, n in requests.items() if kind not in KEEPING_ALIVE | {"Watch"})
    assert left <= CROWD + 2, requests


def test_a_crowd_whose_connection_broke_does_not_read_for_each(wire: Wire) -> None:
    async def wait(client: coordlock.AsyncClient) -> None:
        async with client.lock("orders"):
            pass

    def in_order(client: coordlock.AsyncClient, contenders: list[Contender]) -> int:
        return sum(is_told_in_order(client._engine.backend, one) for one in contenders)

    def watches() -> int:
        sent = wire.proxy.counts().requests
        return sent["Watch"] + sent["getData"]

    async def main(other: coordlock.Client) -> Counter[str]:
        async with coordlock.connect_async(wire.url) as client:
            await client.lock("warm").acquire()
            holding = other.lock("orders").acquire()
            waiting = [asyncio.create_task(wait(client)) for _ in range(CROWD)]
            await asyncio.to_thread(eventually, partial(length_is, other, CROWD + 1))
            crowd = [one.contender for one in other.admin.contenders("orders")][1:]
            await asyncio.to_thread(eventually, lambda: in_order(client, crowd) >= CROWD - 1)
            before = watches()
            wire.proxy.drop_connections()
            # On etcd one watch serves them all.
            each = 0 if wire.url.startswith("etcd") else CROWD
            await asyncio.to_thread(eventually, lambda: watches() > before + each)
            await asyncio.to_thread(eventually, lambda: in_order(client, crowd) >= CROWD - 1)
            with wire.proxy.counting() as sent:
                await asyncio.to_thread(holding.release)
                await asyncio.gather(*waiting)
        return sent.requests

    with coordlock.connect(wire.direct) as other:
        requests = asyncio.run(main(other))
    assert sum(n for kind, n in requests.items() if kind in READS) <= 2, requests


@pytest.mark.parametrize("wire", ["zookeeper"], indirect=True)
def test_a_crowd_that_comes_at_once_does_not_list_the_queue_for_each(wire: Wire) -> None:
    async def main(other: coordlock.Client) -> int:
        async with coordlock.connect_async(wire.url) as client:
            await client.lock("warm").acquire()
            with other.lock("orders"), wire.proxy.counting() as sent:
                waiting = [asyncio.create_task(client.lock("orders").acquire()) for _ in range(300)]
                all_wait = partial(length_is, other, 301)
                await asyncio.to_thread(eventually, all_wait)
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
        return sent.requests["getChildren2"]

    with coordlock.connect(wire.direct) as other:
        assert asyncio.run(main(other)) <= 100


def test_waiting_sends_nothing_but_heartbeats(wire: Wire, client: coordlock.Client) -> None:
    before = wire.proxy.counts()

    def watches() -> int:
        requests = (wire.proxy.counts() - before).requests
        return requests["Watch"] + requests["getData"]

    def is_quiet() -> bool:
        """A request that a stall left unanswered is made good some seconds later."""
        return not wire.requests(lambda: time.sleep(2.0))

    with (
        ThreadPoolExecutor() as pool,
        coordlock.connect(wire.url) as other,
        coordlock.connect(wire.direct) as observer,
    ):
        holding = other.lock("orders").acquire()
        waiting = pool.submit(client.lock("orders").acquire)
        eventually(lambda: length_is(observer, 2))
        # Both watch their own, and one the other's; on etcd one watches the queue for that.
        eventually(lambda: watches() == (2 if wire.url.startswith("etcd") else 3))
        eventually(is_quiet)
        holding.release()
        waiting.result(30).release()


def test_a_survey_sends_three_requests_a_queue_at_most(wire: Wire) -> None:
    """They are pipelined, so a thousand locks take less than a second."""
    with coordlock.connect(wire.direct) as holder, coordlock.connect(wire.url) as client:
        holder.multi_lock([f"n{number}" for number in range(50)]).acquire()
        survey = Survey(client)
        survey.read()
        found: list[Change] = []
        requests = wire.requests(lambda: found.extend(survey.read()))
    assert [value for metric, value, _ in found if metric.name == "coordlock.service.names"] == [50]
    assert requests.total() <= 3 * 50 + 10


@pytest.mark.parametrize(
    "service",
    [
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("postgresql", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ],
)
def test_a_client_that_was_closed_has_no_connections(
    request: pytest.FixtureRequest, service: str, root: str
) -> None:
    server = request.getfixturevalue(service)
    with FaultProxy(server.host, server.port) as proxy:
        place = f"{server.host}:{server.port}"
        client = coordlock.connect(server.url_for(root).replace(place, f"127.0.0.1:{proxy.port}"))
        with client.lock("orders"):
            queue = client.work_queue("mails")
            queue.put(b"mail")
            queue.take(timeout=30).ack()
        assert proxy._relay.connections
        client.close()
        eventually(lambda: not proxy._relay.connections)
