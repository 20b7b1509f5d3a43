"""A timeout says whether the lock was busy or the service silent: with real servers that stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import coordlock
from coordlock.testing.client_suite import DRIVERS
from coordlock.testing.portal import Portal
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import EtcdServer
from testbed.servers.zookeeper import ZooKeeperServer

Server = EtcdServer | ZooKeeperServer


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(EtcdServer, marks=pytest.mark.etcd, id="etcd"),
        pytest.param(ZooKeeperServer, marks=pytest.mark.zookeeper, id="zookeeper"),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with request.param(tmp_path_factory.mktemp("stopped")) as server:
        yield server


@pytest.fixture(params=DRIVERS)
def client(request: pytest.FixtureRequest, server: Server, root: str) -> Iterator[Any]:
    portal = Portal() if request.param == "async" else None
    client = (portal or coordlock).connect(server.url_for(root, ttl="60s"))
    yield client
    client.close()
    if portal:
        portal.close()


@pytest.fixture
def stop(server: Server) -> Iterator[Callable[[], None]]:
    yield server.pause
    server.resume()


def test_a_timeout_at_a_busy_lock_is_no_outage(client: Any) -> None:
    with client.lock("q"), pytest.raises(coordlock.AcquireTimeout) as caught:
        client.lock("q").acquire(timeout=0.2)
    assert type(caught.value) is coordlock.AcquireTimeout


def test_a_timeout_at_a_silent_service_is_an_outage(client: Any, stop: Callable[[], None]) -> None:
    stop()
    with pytest.raises(coordlock.errors.WaitUnavailable) as caught:
        client.lock("q").acquire(timeout=1)
    assert caught.value.position is None
    assert "unavailable" in str(caught.value)


def test_an_outage_that_began_while_the_lock_was_waited_for_is_told_with_the_last_view(
    client: Any, stop: Callable[[], None]
) -> None:
    lock = client.lock("q")
    with ThreadPoolExecutor() as pool:
        holder = lock.acquire()
        waiter = pool.submit(lock.acquire, timeout=4)
        eventually(lambda: len(lock.contenders()) == 2)
        stop()
        error = waiter.exception(60)
    assert isinstance(error, coordlock.errors.WaitUnavailable)
    assert error.position == 1
    assert "before that, 1 contender(s) ahead" in str(error)
    assert holder.token
