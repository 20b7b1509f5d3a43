"""Reentrant locks: whose they are, and what is left of them when something comes between."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

import coordlock
from coordlock import Client, GrantState
from tests.unit.clients import Service
from tests.unit.signals import interrupted


def test_blocks_of_a_thread_nest(client: Client) -> None:
    lock = client.lock("q", reentrant=True)
    assert lock.reentrant
    assert not client.lock("q").reentrant
    with lock as outer:
        with lock as inner, client.lock("q", reentrant=True) as another:
            assert outer.token == inner.token == another.token
        assert inner.state is GrantState.RELEASED
        outer.check()
    assert outer.state is GrantState.RELEASED
    assert client.contenders("q") == ()


def test_a_decorated_function_may_call_itself(client: Client) -> None:
    @client.lock("q", reentrant=True)
    def countdown(number: int) -> int:
        return 0 if number == 0 else 1 + countdown(number - 1)

    assert countdown(5) == 5
    assert client.contenders("q") == ()


def test_another_thread_waits(client: Client) -> None:
    lock = client.lock("q", reentrant=True)
    with ThreadPoolExecutor(1) as pool:
        with lock:
            assert pool.submit(lock.try_acquire).result(30) is None
            waiting = pool.submit(lock.acquire)
        waiting.result(30).release()


def test_blocks_of_a_task_nest_and_no_child_task_inherits_them(service: Service) -> None:
    async def main() -> None:
        async with service.async_client() as client:
            lock = client.lock("q", reentrant=True)

            async def enter() -> None:
                async with lock:
                    pass

            async with lock as outer:
                async with lock as inner:
                    assert outer.token == inner.token
                with pytest.raises(RuntimeError, match=r"not inherited: .*same owner="):
                    await asyncio.create_task(enter())
                with pytest.raises(RuntimeError, match="not inherited"):
                    await asyncio.gather(enter())
                assert len(await client.contenders("q")) == 1
            await asyncio.create_task(enter())
            assert await client.contenders("q") == ()

    asyncio.run(main())


def test_a_task_that_was_started_elsewhere_waits(service: Service) -> None:
    async def main() -> None:
        async with service.async_client() as client:
            lock = client.lock("q", reentrant=True)
            start = asyncio.Event()

            async def enter() -> int:
                await start.wait()
                async with lock as grant:
                    return grant.token

            task = asyncio.create_task(enter())
            async with lock as grant:
                start.set()
                await asyncio.sleep(0)
                assert len(await client.contenders("q")) == 2
            assert await task > grant.token

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_moment_of_an_inner_block_keeps_the_count(client: Client) -> None:
    lock = client.lock("q", reentrant=True)

    def nested() -> None:
        with lock:
            pass

    moment, came = 0, True
    while came:
        moment += 1
        with lock as outer:
            came = interrupted(nested, moment)
            outer.check()
        assert client.contenders("q") == (), moment
    assert moment > 20


def test_closing_the_client_ends_all_grants_of_it(service: Service) -> None:
    client = service.client()
    lock = client.lock("q", reentrant=True)
    first, second = lock.acquire(), lock.acquire()
    client.close()
    for grant in (first, second):
        with pytest.raises(coordlock.LockLost):
            grant.check()
        assert not grant.release()
