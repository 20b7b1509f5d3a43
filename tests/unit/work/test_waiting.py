"""Calls that wait for an item, in event loops and threads that share a client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import coordlock
from coordlock import Cancellation, WaitCancelled, WorkQueueEmpty
from coordlock.errors import ClientClosed
from coordlock.testing.waiting import eventually

BOUND = 30.0


@pytest.fixture
def client(root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(f"memory://{root}") as client:
        yield client


def waiting(client: coordlock.Client | coordlock.AsyncClient) -> int:
    """How many calls wait."""
    return len(client.work_queue("q")._share().consumer._calls)


def test_an_event_loop_that_is_blocked_stops_no_other_that_shares_its_client(
    client: coordlock.Client, root: str
) -> None:
    unblocked, stands = threading.Event(), threading.Event()
    shared = coordlock.AsyncClient(f"memory://{root}")

    async def blocked() -> None:
        take = asyncio.ensure_future(shared.work_queue("q").take(BOUND))
        await asyncio.to_thread(eventually, lambda: waiting(shared) == 1)
        stands.set()
        unblocked.wait()
        await (await take).ack()

    async def free() -> bytes:
        async with await shared.work_queue("q").take(BOUND) as item:
            return item.data

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(asyncio.run, blocked())
        try:
            assert stands.wait(BOUND)
            client.work_queue("q").put(b"one")
            assert asyncio.run(free()) == b"one"
        finally:
            unblocked.set()
        client.work_queue("q").put(b"two")
        others.result(BOUND)
    asyncio.run(shared.close())


def test_a_process_whose_event_loop_is_blocked_keeps_no_item_from_others(
    client: coordlock.Client, root: str
) -> None:
    """Even if several of its tasks had come first."""
    unblocked, stands = threading.Event(), threading.Event()

    async def blocked() -> list[coordlock.AsyncItem]:
        async with coordlock.connect_async(f"memory://{root}") as theirs:
            queue = theirs.work_queue("q")
            takes = [asyncio.ensure_future(queue.take(BOUND)) for _ in range(3)]
            await asyncio.to_thread(eventually, lambda: waiting(theirs) == 3)
            stands.set()
            unblocked.wait()
            items = list(await asyncio.gather(*takes))
            for item in items:
                await item.ack()
            return items

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(asyncio.run, blocked())
        try:
            assert stands.wait(BOUND)
            queue = client.work_queue("q")
            queue.put(b"one")
            with queue.take(BOUND) as item:
                assert item.data == b"one"
        finally:
            unblocked.set()
        for data in (b"two", b"three", b"four"):
            queue.put(data)
        assert {item.data for item in others.result(BOUND)} == {b"two", b"three", b"four"}


def test_the_calls_of_one_client_take_items_in_the_order_in_which_they_came(
    client: coordlock.Client,
) -> None:
    queue, taken = client.work_queue("q"), []

    def take(number: int) -> None:
        with queue.take(BOUND):
            taken.append(number)

    with ThreadPoolExecutor(3) as pool:
        takes = []
        for number in range(3):
            takes.append(pool.submit(take, number))
            eventually(lambda: waiting(client) == len(takes))
        for number in range(3):
            queue.put(b"one")
            takes[number].result(BOUND)
    assert taken == [0, 1, 2]


def test_a_call_that_gives_up_before_its_turn_lets_the_next_have_its_own(
    client: coordlock.Client,
) -> None:
    queue, stop = client.work_queue("q"), Cancellation()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(queue.take, BOUND)
        eventually(lambda: waiting(client) == 1)
        short = pool.submit(queue.take, 0.2)
        cancelled = pool.submit(queue.take, BOUND, cancellation=stop)
        eventually(lambda: waiting(client) == 3)
        last = pool.submit(queue.take, BOUND)
        with pytest.raises(WorkQueueEmpty):
            short.result(BOUND)
        stop.cancel("enough")
        with pytest.raises(WaitCancelled, match="enough"):
            cancelled.result(BOUND)
        for take in (first, last):
            queue.put(b"one")
            take.result(BOUND).ack()
    assert waiting(client) == 0


def test_a_client_that_is_closed_ends_the_calls_that_wait_for_their_turn(
    client: coordlock.Client,
) -> None:
    queue = client.work_queue("q")
    with ThreadPoolExecutor(3) as pool:
        takes = [pool.submit(queue.take, BOUND) for _ in range(3)]
        eventually(lambda: waiting(client) == 3)
        client.close()
        for take in takes:
            with pytest.raises(ClientClosed):
                take.result(BOUND)
