"""The application's `KazooClient` is cut off until locks are lost, and goes on with its session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import coordlock
from coordlock.claim import Mode
from coordlock.contender import Contender
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from tests.integration.zookeeper.conftest import BOUND

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
        eventually(lambda: not client.contenders("precious"))
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


def test_many_who_began_to_wait_in_an_outage_do_not_block_the_client_after_it(
    proxy: FaultProxy, through: str, root: str, application: Any
) -> None:
    with coordlock.connect(through, client=application) as client:
        client.lock("orders").acquire().release()
        backend = client._link.backend
        proxy.refuse()
        proxy.drop_connections()
        eventually(lambda: not application.connected)
        for number in range(600):
            key = f"{root}/orders/{number}__lock__{number:010}"
            gone = Contender(str(number), key, Mode.EX, number)
            backend.watch(gone, 0, lambda: None)
        proxy.heal()
        client.lock("orders", timeout=BOUND).acquire().release()
