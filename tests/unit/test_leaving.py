"""Who leaves a `with` block releases what that block entered, in any thread, task or context."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from coordlock import AsyncClient, AsyncGrant, Client, Grant, Lock, LockLost
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service, backend

T = TypeVar("T")


pytestmark = pytest.mark.usefixtures("no_leaks")


def elsewhere(function: Callable[[], T]) -> T:
    """The result of ``function`` in a thread of its own."""
    results: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def held(lock: Lock) -> Iterator[Grant]:
    """What a framework makes of a dependency or a fixture."""
    with lock as grant:
        yield grant


def tokens(client: Client) -> list[int | None]:
    return [one.token for one in client.admin.contenders("q")]


# Statements


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_each_block_leaves_what_it_entered_in_whatever_order_and_thread(
    client: Client, order: tuple[int, ...]
) -> None:
    lock = client.read_lock("q")
    bodies = [held(lock) for _ in order]
    grants = [next(body) if i % 2 else elsewhere(body.__next__) for i, body in enumerate(bodies)]
    for number in order:
        assert elsewhere(lambda number=number: next(bodies[number], None)) is None  # type: ignore[misc]
        with pytest.raises(LockLost):
            grants[number].check()
        still = {grant.token for grant in grants} & {*tokens(client)}
        assert still == {grant.token for grant in grants if grant.remaining()}
    assert not tokens(client)


def test_a_failing_acquire_leaves_the_outer_block_alone(client: Client) -> None:
    lock = client.lock("q", timeout=0)
    with lock as grant:
        with pytest.raises(TimeoutError), lock:
            pytest.fail("entered")
        grant.check()
    assert not tokens(client)


def test_exit_stacks_are_closed_by_other_threads_in_any_order(client: Client) -> None:
    lock = client.read_lock("q")
    stacks = [contextlib.ExitStack() for _ in range(3)]
    grants = [elsewhere(lambda stack=stack: stack.enter_context(lock)) for stack in stacks]  # type: ignore[misc]
    moved = stacks[1].pop_all()
    elsewhere(moved.close)
    assert tokens(client) == [grants[0].token, grants[2].token]
    elsewhere(stacks[0].close)
    assert tokens(client) == [grants[2].token]
    stacks[2].close()
    assert not tokens(client)


def test_a_generator_that_the_garbage_collector_closes_releases_its_own(client: Client) -> None:
    lock = client.read_lock("q")

    def cyclic(itself: list[object]) -> Iterator[Grant]:
        with lock as grant:
            yield grant
        itself.clear()

    with lock as mine:
        cycle: list[object] = []
        cycle.append(generator := cyclic(cycle))
        next(generator)
        assert len(tokens(client)) == 2
        del cycle, generator
        elsewhere(gc.collect)
        eventually(lambda: tokens(client) == [mine.token])
        mine.check()
    assert not tokens(client)


def test_an_end_that_the_collector_runs_in_the_clients_own_thread_waits_for_no_answer(
    service: Service, no_leaks: None
) -> None:
    with service.client(request_timeout=300.0) as client:
        body: list[Iterator[Grant]] = [held(client.lock("q"))]
        next(body[0])
        stack = contextlib.ExitStack()
        stack.callback(client.lock("r").acquire().release)
        queue, job = client.work_queue("q"), client.job("j")
        queue.put(b"")
        for block in (queue.take(30), job.run(1)):
            stack.push(block)
            block.__enter__()
        backend(client).faults.partition()
        ended = threading.Event()

        def collect() -> None:  # as a collection of garbage in a step of this thread does
            body.clear()
            stack.__exit__(GeneratorExit, GeneratorExit(), None)
            ended.set()

        client._engine.timers.call_at(0, collect)
        assert ended.wait(60)
        backend(client).faults.heal()
        eventually(lambda: not client.admin.names())
        eventually(lambda: queue.stats().waiting == 1)
        eventually(lambda: job.info().slots[0].state in ("failed", "interrupted"))


# By hand


def test_a_second_body_by_hand_is_refused_and_the_first_holds_on(client: Client) -> None:
    lock = client.read_lock("q")
    grant = elsewhere(lock.__enter__)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="entered by hand already"):
            elsewhere(lock.__enter__)
        eventually(lambda: tokens(client) == [grant.token])
    with lock as other:  # a statement knows its own
        assert tokens(client) == [grant.token, other.token]
    elsewhere(lambda: lock.__exit__(None, None, None))
    assert not tokens(client)
    lock.__enter__()
    lock.__exit__(None, None, None)
    assert not tokens(client)


def test_an_end_by_hand_that_is_kept_or_at_work_is_not_that_of_a_later_body(client: Client) -> None:
    lock = client.lock("q")
    lock.__enter__()
    end = lock.__exit__
    threading.Timer(0.05, end, (None, None, None)).start()
    later = lock.__enter__()  # waits for that
    del end
    gc.collect()
    client._engine.tickets.sweep()
    assert tokens(client) == [later.token]
    later.check()
    lock.__exit__(None, None, None)
    assert not tokens(client)


def test_leaving_without_having_entered_is_an_error(client: Client) -> None:
    lock = client.lock("q")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not entered"):
            lock.__exit__(None, None, None)
    with lock:
        assert len(tokens(client)) == 1
    with pytest.raises(RuntimeError, match="not entered"):
        lock.__exit__(None, None, None)


def test_a_second_body_by_hand_is_refused_in_asyncio_too() -> None:
    async def body(client: AsyncClient) -> None:
        lock = client.read_lock("q")
        grant = await lock.__aenter__()
        with pytest.raises(RuntimeError, match="entered by hand already"):
            await lock.__aenter__()
        queue = backend(client).service.snapshot
        await asyncio.to_thread(eventually, lambda: len(queue("q").contenders) == 1)
        grant.check()
        await lock.__aexit__(None, None, None)

    in_loop(body)


# asyncio


def in_loop(body: Callable[[AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Service().async_client() as client:
            await body(client)
            assert await client.admin.names() == []

    asyncio.run(main())


async def alone(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of ``coroutine`` in a task and a context of its own."""
    return await asyncio.create_task(coroutine, context=contextvars.Context())


async def async_tokens(client: AsyncClient) -> list[int | None]:
    return [one.token for one in await client.admin.contenders("q")]


def test_each_async_block_leaves_what_it_entered_in_whatever_task() -> None:
    async def body(client: AsyncClient) -> None:
        lock = client.read_lock("q")

        async def held() -> AsyncIterator[AsyncGrant]:
            async with lock as grant:
                yield grant

        async def step(body: AsyncIterator[AsyncGrant]) -> AsyncGrant | None:
            return await anext(body, None)

        bodies = [held() for _ in range(3)]
        grants = [await alone(step(one)) for one in bodies]
        for number in (1, 0, 2):
            gone = grants[number]
            assert await alone(step(bodies[number])) is None
            assert gone is not None
            assert gone.token not in await async_tokens(client)
            with pytest.raises(LockLost):
                gone.check()
        assert not await async_tokens(client)

    in_loop(body)


def test_an_async_generator_that_the_garbage_collector_closes_releases_its_own() -> None:
    async def body(client: AsyncClient) -> None:
        lock = client.read_lock("q")

        left = asyncio.Event()

        async def cyclic(itself: list[object]) -> AsyncIterator[AsyncGrant]:
            try:
                async with lock as grant:
                    itself.append(grant)
                    yield grant
            finally:
                left.set()

        async with lock as mine:
            cycle: list[object] = []
            cycle.append(generator := cyclic(cycle))
            await anext(generator)
            assert len(await async_tokens(client)) == 2
            del cycle, generator
            gc.collect()
            await asyncio.wait_for(left.wait(), 60)
            queue = backend(client).service.snapshot
            await asyncio.to_thread(eventually, lambda: len(queue("q").contenders) == 1)
            assert await async_tokens(client) == [mine.token]

    in_loop(body)
