"""Deadlocks end, on every backend: the youngest that waits gives up, and nobody else.

Subclass `DeadlockContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import ClassVar, Final

import pytest

import coordlock
from coordlock import Client, DeadlockDetected
from coordlock.backend import Backend, Capability
from coordlock.testing.waiting import eventually

__all__ = ["DeadlockContract"]

#: No answer takes longer on a healthy service, however loaded the machine is.
BOUND: Final = 60.0
#: Seconds until a waiter looks for a deadlock.
DELAY: Final = 0.3

Connect = Callable[..., Client]
Start = Callable[..., Future[str]]


class DeadlockContract:
    """The suite."""

    backend: ClassVar[type[Backend]]
    needs: ClassVar[tuple[Capability, ...]] = ("ordered", "publishing")

    @pytest.fixture
    def connect(self, url: str) -> Iterator[Connect]:
        """Connects clients that look for deadlocks soon."""
        with ExitStack() as clients:
            yield lambda **options: clients.enter_context(
                coordlock.connect(url, **{"deadlock_delay": DELAY, **options})
            )

    @pytest.fixture
    def start(self) -> Iterator[Start]:
        """Starts a call in a thread of its own."""
        with ThreadPoolExecutor(32) as pool:
            yield pool.submit

    @pytest.mark.parametrize("parties", [2, 3, 20])
    def test_a_circle_has_one_victim_and_the_others_go_on(
        self, connect: Connect, start: Start, parties: int
    ) -> None:
        clients = [connect() for _ in range(min(parties, 3))]
        all_hold = threading.Barrier(parties)

        def work(number: int) -> str:
            client = clients[number % len(clients)]
            with client.lock(f"lock-{number}"):
                all_hold.wait(BOUND)
                try:
                    with client.lock(f"lock-{(number + 1) % parties}"):
                        return "both"
                except DeadlockDetected as error:
                    for step in error.cycle:  # who waits, and who holds
                        assert len(re.findall(r" in (?:thread|task) '", step)) == 2
                    return f"victim of {len(error.cycle)}"

        ends = [call.result(BOUND) for call in [start(work, one) for one in range(parties)]]
        assert sorted(ends) == ["both"] * (parties - 1) + [f"victim of {parties}"]
        assert all(clients[0].admin.contenders(f"lock-{one}") == () for one in range(parties))
        assert clients[0].admin.deadlocks() == ()

    def test_several_locks_at_once_and_one_after_the_other_may_meet_in_a_circle(
        self, connect: Connect, start: Start
    ) -> None:
        one, two = connect(), connect()
        with two.lock("b"):
            waiting = start(one.multi_lock(["a", "b"]).acquire)
            eventually(lambda: len(one.admin.contenders("b")) == 2)
            with pytest.raises(DeadlockDetected), two.lock("a"):
                pytest.fail("granted")
        grant: coordlock.types.MultiGrant = waiting.result(BOUND)  # type: ignore[assignment]
        assert grant.release()

    @pytest.mark.parametrize(("count", "end"), [(40, "-" * 30), (5, "é" * 127)])
    def test_a_wait_for_many_names_or_long_ones_is_seen(
        self, connect: Connect, start: Start, count: int, end: str
    ) -> None:
        one, two = connect(), connect()
        names = [f"{number}{end}" for number in range(count)]
        with one.lock(names[0]):
            waiting = start(two.multi_lock(names).acquire)
            eventually(lambda: len(one.admin.contenders(names[-1])) == 1)
            with pytest.raises(DeadlockDetected):
                one.lock(names[-1]).acquire(timeout=BOUND).release()
        grant: coordlock.types.MultiGrant = waiting.result(BOUND)  # type: ignore[assignment]
        assert grant.release()

    def test_each_of_two_hundred_locks_that_are_held_is_seen(
        self, connect: Connect, start: Start
    ) -> None:
        one, two = connect(), connect()
        names = [f"lock-{number}" for number in range(200)]

        def waits() -> None:
            with ExitStack() as held:
                for name in names:
                    held.enter_context(one.lock(name))
                one.lock("last").acquire(timeout=BOUND).release()

        with two.lock("last"):
            waiting = start(waits)
            eventually(lambda: len(two.admin.contenders("last")) == 2)
            for name in names[::50]:
                with pytest.raises(DeadlockDetected):
                    two.lock(name).acquire(timeout=BOUND).release()
        waiting.result(BOUND)

    def test_a_thread_is_one_actor_by_however_many_clients_it_acquires(
        self, connect: Connect, start: Start
    ) -> None:
        both_hold = threading.Barrier(2)

        def work(first: str, second: str) -> str:
            one, other = connect(), connect()
            with one.lock(first):
                both_hold.wait(BOUND)
                try:
                    with other.lock(second):
                        return "both"
                except DeadlockDetected:
                    return "victim"

        calls = [start(work, "a", "b"), start(work, "b", "a")]
        assert sorted(call.result(BOUND) for call in calls) == ["both", "victim"]

    def test_tasks_of_one_loop_are_told_apart(self, url: str) -> None:
        async def main() -> list[str]:
            async with coordlock.connect_async(url, deadlock_delay=DELAY) as client:
                all_hold = asyncio.Barrier(3)

                async def work(number: int) -> str:
                    async with client.lock(f"lock-{number}"):
                        await all_hold.wait()
                        try:
                            async with client.lock(f"lock-{(number + 1) % 3}"):
                                return "both"
                        except DeadlockDetected:
                            return "victim"

                return await asyncio.gather(*map(work, range(3)))

        assert sorted(asyncio.run(main())) == ["both", "both", "victim"]

    def test_a_crowd_of_waiters_costs_little_and_keeps_its_session(self, url: str) -> None:
        """They wait in no circle: their looks neither cost much nor keep heartbeats back."""

        async def main() -> float:
            async with (
                coordlock.connect_async(url, deadlock_delay=DELAY) as client,
                coordlock.connect_async(url) as other,
            ):

                async def one_after_the_other(number: int) -> None:
                    async with client.lock(f"own-{number}"), client.lock("common"):
                        pass

                async def at_once() -> None:
                    async with client.multi_lock(["p", "q"]):
                        pass

                async with other.multi_lock(["common", "p"]):
                    tasks = [asyncio.create_task(one_after_the_other(one)) for one in range(200)]
                    tasks += [asyncio.create_task(at_once()) for _ in range(100)]
                    await asyncio.sleep(2 * DELAY)
                    began, used = time.monotonic(), time.process_time()
                    await asyncio.sleep(8 * DELAY)
                    load = (time.process_time() - used) / (time.monotonic() - began)
                await asyncio.gather(*tasks)
                return load

        # Of one processor. Where each waiter looks by itself, they take all of it.
        assert asyncio.run(main()) < 0.9

    def test_without_the_option_nobody_gives_up(self, connect: Connect, start: Start) -> None:
        one, two = connect(deadlock_delay=None), connect(deadlock_delay=None)
        both_hold = threading.Barrier(2)

        def work(client: Client, first: str, second: str) -> str:
            with client.lock(first):
                both_hold.wait(BOUND)
                try:
                    with client.lock(second, timeout=1.5):
                        return "both"
                except TimeoutError:
                    return "late"

        calls = [start(work, one, "a", "b"), start(work, two, "b", "a")]
        assert "late" in [call.result(BOUND) for call in calls]
