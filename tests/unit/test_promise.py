from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordlock.driver import completion
from coordlock.promise import Promise, copied, failed, resolved, settled


def test_only_the_first_outcome_counts() -> None:
    promise: Promise[int] = Promise()
    assert promise.resolve(1) is True
    assert promise.resolve(2) is False
    assert promise.fail(KeyError()) is False
    assert promise.result(0) == 1


def test_of_many_threads_one_resolves_it() -> None:
    for _ in range(20):
        promise: Promise[int] = Promise()
        start = threading.Barrier(4)

        def resolve(
            number: int, promise: Promise[int] = promise, start: threading.Barrier = start
        ) -> bool:
            start.wait()
            return promise.resolve(number)

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(resolve, range(4)))
        assert won.count(True) == 1
        assert promise.result(0) == won.index(True)


def test_a_promise_cannot_be_cancelled() -> None:
    promise: Promise[int] = Promise()
    assert promise.cancel() is False
    assert promise.resolve(1)


def test_a_cancelled_waiter_leaves_the_promise_alone() -> None:
    promise: Promise[int] = Promise()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(completion(promise), 0.01)

    asyncio.run(main())
    assert promise.resolve(1)


def test_kept_and_broken_promises() -> None:
    assert resolved(1).result(0) == 1
    assert isinstance(failed(KeyError()).exception(0), KeyError)


def test_settled_is_kept_however_the_other_ends() -> None:
    one: Promise[int] = Promise()
    other: Promise[int] = Promise()
    waiting = [settled(one), settled(other)]
    assert not any(promise.done() for promise in waiting)
    one.resolve(1)
    other.fail(KeyError())
    assert [promise.result(0) for promise in waiting] == [None, None]


def test_a_copy_takes_the_outcome_unless_something_came_first() -> None:
    one: Promise[int] = Promise()
    first, second = copied(one), copied(one)
    assert second.fail(KeyError())
    one.resolve(7)
    assert first.result(0) == 7
    assert isinstance(second.exception(0), KeyError)
    assert isinstance(copied(failed(ValueError())).exception(0), ValueError)
