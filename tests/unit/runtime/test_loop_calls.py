from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import pytest

from coordlock.runtime.driver import LoopCalls, Steps, run_async
from coordlock.runtime.promise import Promise


def in_a_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(asyncio.sleep(0))


def test_a_loop_is_woken_once_for_all_that_came_meanwhile() -> None:
    loop, read = asyncio.new_event_loop(), list[int]()
    mailbox = LoopCalls.of(loop)
    wake = patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe)
    for turns in (1, 2):
        with wake as woken:
            for number in range(5):
                in_a_thread(partial(mailbox.post, partial(read.append, number)))
        turn(loop)
        assert read == [*range(5)] * turns
        assert woken.call_count == 1
    assert LoopCalls.of(loop) is mailbox
    loop.close()


def test_letters_from_many_threads_are_all_read() -> None:
    senders, each = 8, 2_000

    async def main() -> int:
        mailbox, read, all_read = LoopCalls.of(asyncio.get_running_loop()), 0, asyncio.Event()

        def letter() -> None:
            nonlocal read
            read += 1
            if read == senders * each:
                all_read.set()

        def send() -> None:
            for _ in range(each):
                mailbox.post(letter)

        threads = [threading.Thread(target=send) for _ in range(senders)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(60):
            await all_read.wait()
        for thread in threads:
            thread.join()
        return read

    assert asyncio.run(main()) == senders * each


def test_ctrl_c_while_a_loop_is_woken_keeps_nobody_from_waking_it() -> None:
    loop, read = asyncio.new_event_loop(), list[str]()
    mailbox = LoopCalls.of(loop)
    interrupted = patch.object(loop, "call_soon_threadsafe", side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), interrupted:
        mailbox.post(partial(read.append, "interrupted"))
    in_a_thread(lambda: mailbox.post(partial(read.append, "next")))
    turn(loop)
    assert read == ["interrupted", "next"]
    loop.close()


def test_what_comes_for_a_closed_loop_is_dropped() -> None:
    loop, read = asyncio.new_event_loop(), list[str]()
    mailbox = LoopCalls.of(loop)
    loop.close()
    for _ in range(2):
        in_a_thread(lambda: mailbox.post(partial(read.append, "late")))
    mailbox.post(partial(read.append, "late"))
    assert not read


@pytest.mark.parametrize("comes", [True, False])
def test_a_loop_is_not_kept_by_what_comes_after_it_has_ended(comes: bool) -> None:
    promises: list[Promise[None]] = []

    def steps() -> Steps[None]:
        promises.append(Promise())
        yield promises[-1]

    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_async(steps()), 0.01)
        return weakref.ref(asyncio.get_running_loop())

    ended = [asyncio.run(main()) for _ in range(3)]
    for promise in promises if comes else ():
        promise.resolve(None)
    gc.collect()
    assert not any(loop() for loop in ended)


def test_ctrl_c_while_letters_are_read_leaves_the_others_to_be_read() -> None:
    loop, read = asyncio.new_event_loop(), list[str]()
    mailbox = LoopCalls.of(loop)

    def interrupt() -> None:
        raise KeyboardInterrupt

    in_a_thread(lambda: mailbox.post(interrupt))
    in_a_thread(lambda: mailbox.post(partial(read.append, "next")))
    with pytest.raises(KeyboardInterrupt):
        turn(loop)
    turn(loop)
    assert read == ["next"]
    loop.close()


def test_calls_that_post_the_next_one_leave_the_loop_its_other_work() -> None:
    """As tasks do that pass a lock on to each other."""
    order: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        mailbox, done = LoopCalls.of(loop), asyncio.Event()

        def one(left: int) -> None:
            order.append("call")
            if left:
                mailbox.post(partial(one, left - 1))
            else:
                done.set()

        mailbox.post(partial(one, 9))
        loop.call_soon(order.append, "other work")
        await done.wait()

    asyncio.run(main())
    assert order.index("other work") == 1
