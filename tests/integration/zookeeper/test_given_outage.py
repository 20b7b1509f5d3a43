"""The application's `KazooClient` is cut off until locks are lost, and goes on with its session."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

import coordlock
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from tests.integration.zookeeper.conftest import BOUND

pytestmark = pytest.mark.faults

#: Of the session, in seconds. A lock counts as lost after a third to two thirds of it.
TIMEOUT = 15.0


@pytest.fixture
def application(proxy: FaultProxy) -> Iterator[Any]:
    client = KazooClient(f"127.0.0.1:{proxy.port}", timeout=TIMEOUT)
    client.start(BOUND)
    yield client
    proxy.heal()
    client.stop()
    client.close()


@pytest.fixture
def through(proxy: FaultProxy, root: str) -> str:
    return f"zookeeper://127.0.0.1:{proxy.port}{root}"


def test_a_lost_lock_is_let_go_of_though_another_session_was_opened_meanwhile(
    proxy: FaultProxy, through: str, application: Any
) -> None:
    session = application.client_id[0]
    with coordlock.connect(through, client=application) as client:
        grant = client.lock("precious").acquire()
        proxy.black_hole()
        assert grant.lost.wait(BOUND)
        # This opens another one, while the removal of what is lost is under way.
        waiter = threading.Thread(target=client.lock("other", timeout=BOUND).acquire)
        waiter.start()
        proxy.drop_connections()
        proxy.heal()
        waiter.join(BOUND)
        eventually(lambda: not client.admin.contenders("precious"))
        assert application.client_id[0] == session


def test_many_lost_locks_are_let_go_of_and_the_client_still_works(
    proxy: FaultProxy, root: str, through: str, application: Any
) -> None:
    async def lose_many() -> None:
        async with await coordlock.connect_async(through, client=application) as client:
            locks = [client.lock(f"lock{number}", timeout=BOUND) for number in range(320)]
            grants = await asyncio.gather(*(lock.acquire() for lock in locks))
            proxy.refuse()
            proxy.drop_connections()
            for grant in grants:
                await asyncio.wait_for(grant.lost.wait(), BOUND)
            proxy.heal()
            # More than fit into the pipe by which kazoo's only reader is woken.
            answer = await asyncio.to_thread(application.retry, application.get_children, root)
            assert answer

    asyncio.run(lose_many())


@contextmanager
def clogged(application: Any, proxy: FaultProxy) -> Iterator[None]:
    """The connection breaks, and who asks ``application`` for more waits until the block ends.

    As when that happens just while hundreds of requests are handed to it. Here its I/O thread is
    stopped as it is about to tell of the break.
    """
    stands_still, goes_on = threading.Event(), threading.Event()
    tell = application._make_state_change

    def stand_still(state: str) -> None:
        if state == KazooState.SUSPENDED:
            stands_still.set()
            goes_on.wait()
        tell(state)

    def ask() -> None:
        for _ in range(1000):  # more than fit into the pipe by which that thread is woken
            application.get_async("/")

    application._make_state_change = stand_still
    proxy.refuse()
    proxy.drop_connections()
    assert stands_still.wait(BOUND)
    sender = threading.Thread(target=ask)
    sender.start()
    try:
        eventually(lambda: _stays(lambda: len(application._queue)), "the sender to be stuck")
        yield
    finally:
        goes_on.set()
        proxy.heal()
        sender.join(BOUND)


def _stays(measure: Callable[[], int]) -> bool:
    before = measure()
    time.sleep(0.05)
    return before == measure() > 0


def test_a_loss_is_told_though_the_client_blocks_whoever_asks_it(
    proxy: FaultProxy, through: str, application: Any
) -> None:
    with coordlock.connect(through, client=application) as client:
        told = threading.Event()
        grant = client.lock("precious").acquire()
        grant.on_lost(lambda _: told.set())
        with clogged(application, proxy):
            # Not `lost`, for who asks that looks at the clock himself.
            assert told.wait(BOUND)


def test_who_comes_while_the_client_blocks_waits_no_longer_than_he_said(
    proxy: FaultProxy, through: str, application: Any
) -> None:
    async def come() -> None:
        async with await coordlock.connect_async(through, client=application) as client:
            async with client.lock("before"):
                pass
            with clogged(application, proxy), pytest.raises(coordlock.errors.WaitUnavailable):
                await client.lock("orders").acquire(timeout=0.5)

    asyncio.run(asyncio.wait_for(come(), BOUND))
