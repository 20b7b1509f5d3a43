"""The guards of the memory fence: who waits for whom, and what an interrupted wait leaves."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from coordlock.errors import StaleToken
from coordlock.fencing import AsyncMemoryFence, Marks, MemoryFence
from coordlock.fencing.memory import _Memory, _Operation
from coordlock.testing.portal import Portal
from coordlock.testing.waiting import eventually


class Block:
    """A guarded block under way, which ends when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.over = threading.Event()
        self.outcome: Future[Any]

    @property
    def is_held_back(self) -> bool:
        """Whether it does not begin, though there is time."""
        return not self.begun.wait(0.05)

    @property
    def begins(self) -> bool:
        return self.begun.wait(30)

    def end(self) -> None:
        self.over.set()
        self.outcome.result(30)


class Guarding:
    """A fence and the blocks of "alice", each in a thread of its own."""

    def __init__(self, fence: Any, memory: _Memory) -> None:
        self.fence = fence
        self.memory = memory
        self.blocks: list[Block] = []
        self.pool = ThreadPoolExecutor(10)

    def begin(self, token: int, shared: bool = False) -> Block:
        """Start a block, which begins now or waits."""
        block = Block()
        before = self.known
        block.outcome = self.pool.submit(self.run, block, token, shared)
        self.blocks.append(block)
        eventually(lambda: set(self.known) - set(before) or block.outcome.done())
        return block

    def run(self, block: Block, token: int, shared: bool) -> None:
        with self.fence.guard("alice", token, shared):
            block.begun.set()
            block.over.wait()

    @property
    def known(self) -> list[_Operation]:
        """The blocks that the fence knows of."""
        return self.memory._operations.get("alice", [])

    def close(self) -> None:
        for block in self.blocks:
            block.over.set()
        self.pool.shutdown()


@pytest.fixture(params=["sync", "async"])
def guarding(request: pytest.FixtureRequest) -> Iterator[Guarding]:
    with closing(Portal()) as portal:
        fence, asynchronous = MemoryFence(), AsyncMemoryFence()
        made = (
            Guarding(fence, fence._memory)
            if request.param == "sync"
            else Guarding(portal.front(asynchronous), asynchronous._memory)
        )
        yield made
        made.close()


def test_a_newer_token_is_held_back_until_the_older_block_ends(guarding: Guarding) -> None:
    older = guarding.begin(33)
    assert older.begins
    newer = guarding.begin(34)
    assert newer.is_held_back
    older.end()
    assert newer.begins


def test_equal_tokens_run_together_and_a_newer_one_waits_for_both(guarding: Guarding) -> None:
    one, other = guarding.begin(33), guarding.begin(33)
    assert one.begins
    assert other.begins
    newer = guarding.begin(34)
    one.end()
    assert newer.is_held_back
    other.end()
    assert newer.begins


def test_readers_run_together_and_a_writer_waits_for_all(guarding: Guarding) -> None:
    readers = [guarding.begin(token, shared=True) for token in (34, 33, 35)]
    assert all(reader.begins for reader in readers)
    writer = guarding.begin(36)
    for reader in readers:
        assert writer.is_held_back
        reader.end()
    assert writer.begins
    reader = guarding.begin(37, shared=True)
    assert reader.is_held_back
    writer.end()
    assert reader.begins


def test_an_older_token_is_refused_while_the_newer_one_still_waits(guarding: Guarding) -> None:
    """Else it would come between the newer one's check and its block."""
    first = guarding.begin(33)
    assert first.begins
    newer = guarding.begin(34)
    assert newer.is_held_back
    with pytest.raises(StaleToken):
        guarding.begin(33).outcome.result(30)
    first.end()
    assert newer.begins


def test_what_was_forgotten_waits_for_the_blocks_of_before_all_the_same(
    guarding: Guarding,
) -> None:
    block = guarding.begin(34)
    assert block.begins
    guarding.memory.forget_all_of("alice")
    older = guarding.begin(33)
    assert older.is_held_back
    block.end()
    assert older.begins
    older.end()
    guarding.memory.forget_all_of("alice")
    assert guarding.known == []
    assert guarding.memory.marks_of("alice") == Marks()


def test_what_is_over_is_not_kept(guarding: Guarding) -> None:
    for token in range(1, 50):
        block = guarding.begin(token)
        assert block.begins
        block.end()
        assert len(guarding.known) == 1


def test_a_cancelled_wait_leaves_nothing_and_lets_nobody_pass() -> None:
    fence, begun = AsyncMemoryFence(), list[int]()

    async def guarded(token: int, over: asyncio.Event) -> None:
        async with fence.guard("alice", token):
            begun.append(token)
            await over.wait()

    async def main() -> None:
        over = [asyncio.Event() for _ in range(3)]
        first, given_up, last = (
            asyncio.create_task(guarded(33 + number, one)) for number, one in enumerate(over)
        )
        known = fence._memory._operations
        await asyncio.to_thread(eventually, lambda: len(known.get("alice", ())) == 3)
        given_up.cancel()
        await asyncio.wait([given_up])
        await asyncio.sleep(0.05)
        # It waited for the one that was cancelled, and waits for the first one all the same.
        assert begun == [33]
        for one in over:
            one.set()
        async with asyncio.timeout(30):
            await asyncio.gather(first, last)
            await fence.check("alice", 36)
        assert begun == [33, 35]

    asyncio.run(main())


def test_an_interrupted_wait_leaves_nothing() -> None:
    """Ctrl-C in the main thread, while it waits."""
    fence = MemoryFence()
    begun, over = threading.Event(), threading.Event()
    main = threading.get_ident()

    def hold() -> None:
        with fence.guard("alice", 33):
            begun.set()
            eventually(lambda: len(fence._memory._operations["alice"]) == 2)
            signal.pthread_kill(main, signal.SIGINT)
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert begun.wait(30)
    with pytest.raises(KeyboardInterrupt), fence.guard("alice", 34):
        raise AssertionError("the block began")
    over.set()
    thread.join(30)
    fence.check("alice", 35)
    assert fence.marks("alice") == Marks(exclusive=35)


def test_pruning_forgets_what_is_gone_and_nothing_that_is_checked_meanwhile() -> None:
    fence = MemoryFence()
    for number in range(100):
        fence.check(f"order/{number}", number + 1)

    def is_gone(resource: str, marks: Marks) -> bool:
        if resource == "order/7":
            fence.check(resource, 1000)
        return marks.exclusive <= 50

    assert fence.prune(is_gone) == 49
    assert fence.marks("order/7") == Marks(1000)
    assert (fence.marks("order/8"), fence.marks("order/50")) == (Marks(), Marks(51))
    assert asyncio.run(AsyncMemoryFence().prune(is_gone)) == 0
