"""What observers of a service on the network are shown and cost, with its connection disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from coordlock_etcd import EtcdBackend
from coordlock_zookeeper import ZookeeperBackend

from coordlock.backend import Listing, Observation, Put, Queue
from coordlock.backend.config import configure
from coordlock.runtime.clock import SYSTEM_CLOCK, SystemTimers
from coordlock.testing.backend_contract import BOUND
from coordlock.testing.counts import Counts
from coordlock.testing.frames import Framer
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.etcd import EtcdServer
from testbed.servers.zookeeper import ZooKeeperServer
from tests.conftest import IS_INSTALLED
from tests.integration.observing import follow, is_fresh, is_stale, put, values

Service = EtcdBackend | ZookeeperBackend
Connect = Callable[[str], Service]

KINDS: Final[dict[str, type[Service]]] = {"etcd": EtcdBackend, "zookeeper": ZookeeperBackend}
SERVERS: Final = {"etcd": EtcdServer, "zookeeper": ZooKeeperServer}
FRAMES: Final[dict[str, type[Framer]]] = {"etcd": GrpcFrames, "zookeeper": ZooKeeperFrames}
#: With these requests a client makes sure that nothing is missing.
LOOKS: Final = {"etcd": ("Txn",), "zookeeper": ("multi",)}


@pytest.fixture(
    params=[
        pytest.param("etcd", marks=pytest.mark.etcd),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ]
)
def scheme(request: pytest.FixtureRequest) -> str:
    scheme: str = request.param
    return scheme


@pytest.fixture
def connect(no_leaks: None, scheme: str) -> Iterator[Connect]:
    """Makes backends without sessions, and closes them."""
    made: list[tuple[Service, SystemTimers]] = []

    def make(url: str) -> Service:
        timers = SystemTimers("coordlock-test")
        backend = KINDS[scheme].configure(configure(url), timers=timers)
        made.append((backend, timers))
        return backend

    yield make
    for closing in [backend.close() for backend, _ in made]:
        closing.result(BOUND)
    for _, timers in made:
        timers.close()  # as a client does: the next look may be due in twenty seconds


@pytest.fixture
def running(request: pytest.FixtureRequest, scheme: str) -> Any:
    return request.getfixturevalue(scheme)


@pytest.fixture
def proxy(scheme: str, running: Any) -> Iterator[FaultProxy]:
    with FaultProxy(running.host, running.port, FRAMES[scheme]) as proxy:
        yield proxy


@pytest.fixture
def other(connect: Connect, running: Any, root: str) -> Service:
    """A client that the proxy's faults don't touch."""
    return connect(running.url_for(root, ttl="60s"))


@pytest.fixture
def observer(connect: Connect, scheme: str, proxy: FaultProxy, root: str) -> Service:
    """A client behind the proxy that looks every twenty seconds."""
    return connect(f"{scheme}://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=30s")


@pytest.fixture
def quick(connect: Connect, scheme: str, proxy: FaultProxy, root: str) -> Service:
    """A client behind the proxy that looks every second."""
    return connect(f"{scheme}://127.0.0.1:{proxy.port}{root}?ttl=3s")


@pytest.fixture
def folder(root: str) -> str:
    return f"{root}-data/"


def requests(counts: Counts, methods: tuple[str, ...]) -> int:
    return sum(n for kind, n in counts.requests.items() if kind.endswith(methods))


def test_nothing_is_in_doubt_while_nothing_changes(
    quick: Service, proxy: FaultProxy, scheme: str, folder: str
) -> None:
    news = []
    observed: Observation[Listing] = quick.follow(
        folder, lambda: news.append(observed.view.stale_since)
    )
    eventually(lambda: is_fresh(observed))
    before = proxy.counts()
    eventually(lambda: requests(proxy.counts() - before, LOOKS[scheme]) >= 5, "five looks")
    assert set(news) == {None}
    assert scheme != "etcd" or len(news) <= 3, "read, once it is watched, and at the first look"
    assert is_fresh(observed)


def test_a_silent_connection_is_in_doubt_since_before_it_fell_silent(
    quick: Service, other: Service, proxy: FaultProxy, scheme: str, folder: str
) -> None:
    put(other, folder, a=b"1")
    began, before = SYSTEM_CLOCK.now(), proxy.counts()
    observed = follow(quick, folder)
    eventually(lambda: requests(proxy.counts() - before, LOOKS[scheme]) >= 2, "a look is done")
    cut = SYSTEM_CLOCK.now()
    proxy.black_hole()
    put(other, folder, a=b"2")
    eventually(lambda: is_stale(observed))
    found, since = SYSTEM_CLOCK.now(), observed.view.stale_since
    assert since is not None
    assert began < since <= cut
    if scheme == "zookeeper":
        assert found - since < 3.0 * 2 / 3 + 0.5, "a session would be in doubt after two thirds"
    assert values(observed) == {"a": b"1"}
    proxy.heal()
    eventually(lambda: is_fresh(observed))
    assert values(observed) == {"a": b"2"}


def test_observations_outlive_a_server_that_is_killed(
    connect: Connect, scheme: str, tmp_path: Path, root: str, folder: str
) -> None:
    if not IS_INSTALLED[scheme]():
        # A server that is missing fails the run; here COORDLOCK_TEST_*_URL names a running one.
        pytest.skip("the services run in containers, and none can be killed")
    with ExitStack() as stack:
        server = stack.enter_context(SERVERS[scheme](tmp_path / "server"))
        one, two = (connect(server.url_for(root, ttl="60s")) for _ in range(2))
        put(two, folder, a=b"1")
        observed = follow(one, folder)
        queue = one.follow(Queue("q"), lambda: None)
        eventually(lambda: is_fresh(queue))
        server.kill()
        dead = SYSTEM_CLOCK.now()
        eventually(lambda: is_stale(observed) and is_stale(queue))
        assert observed.view.stale_since is not None
        assert observed.view.stale_since <= dead
        server.start()
        eventually(lambda: is_fresh(observed) and is_fresh(queue), within=60)
        assert values(observed) == {"a": b"1"}

        def is_written() -> bool:
            return two.write([Put(f"{folder}a", b"2")]).exception(BOUND) is None

        eventually(is_written)
        eventually(lambda: values(observed) == {"a": b"2"})
