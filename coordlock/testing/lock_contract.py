"""What every lock promises, whatever the backend, sync and async.

Subclass `LockContract` in a test module, give it a fixture ``url`` (a session-wide service, a root
of the test's own) and the class attribute ``backend``; pytest does the rest::

    class TestLocks(LockContract):
        backend = MyBackend

        @pytest.fixture
        def url(self, root: str) -> str:
            return f"my://localhost{root}"
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

import coordlock
from coordlock import Mode
from coordlock.testing.client_suite import DRIVERS, ClientSuite, Start, error_of
from coordlock.testing.waiting import eventually

__all__ = ["LockContract"]

HOSTILE_NAMES: Final = [
    "../x",
    "..",
    ".",
    "a/b/c",
    "/",
    "//",
    " ",
    "nul\0byte",
    "line\nbreak",
    "100%",
    "%2F",
    """it's "x"; -- %s\\""",
    "🔒 été",
    "__lock__0000000001",
    "x" * 255,
    "🔒" * 63,
    "\x7f\x01",
    "CON",
    "*?[a]",
    "~root",
    "-rf",
    "a}{b",
]

#: A process that holds the lock until its input ends.
HOLDER: Final = """
import sys, coordlock
with coordlock.connect(sys.argv[1]) as client, client.lock(sys.argv[2]) as grant:
    print(grant.token, flush=True)
    sys.stdin.read()
"""


class LockContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    @staticmethod
    def _length_is(client: Any, name: str, length: int) -> bool:
        return len(client.admin.contenders(name)) == length

    # Exclusive locks

    def test_a_free_lock_is_granted_with_a_token(self, client: Any) -> None:
        with client.lock("orders") as grant:
            assert grant.name == "orders"
            assert 1 <= grant.token < 2**63
            assert grant.state is coordlock.GrantState.HELD
            grant.check()
            assert not grant.lost.is_set()

    def test_remaining_is_at_most_the_ttl_and_infinite_without_leases(self, client: Any) -> None:
        with client.lock("orders") as grant:
            if self.backend.capabilities.leased:
                assert 0 < grant.remaining() <= 3600
            else:
                assert grant.remaining() == math.inf
        assert grant.remaining() == 0

    def test_a_grant_that_was_lost_is_not_entered(self, client: Any, other: Any) -> None:
        grant = client.lock("orders").acquire()
        other.admin.evict(other.admin.contenders("orders")[0])
        eventually(grant.lost.is_set)
        with pytest.raises(coordlock.LockLost), grant:
            pytest.fail("entered")
        assert not grant.release()
        assert other.lock("orders", timeout=30).acquire().release()

    def test_a_busy_lock_is_refused_by_try_acquire(self, client: Any, other: Any) -> None:
        with client.lock("orders"):
            assert other.lock("orders").try_acquire() is None
            assert client.lock("orders").try_acquire() is None
            assert len(client.admin.contenders("orders")) == 1
        assert other.lock("orders").try_acquire().release()

    def test_a_timeout_of_zero_tries_once(self, client: Any, other: Any) -> None:
        with client.lock("orders"), pytest.raises(coordlock.AcquireTimeout):
            other.lock("orders").acquire(timeout=0)
        assert other.lock("orders", timeout=0).acquire().release()

    def test_a_timeout_names_the_position_and_who_is_ahead_and_leaves_the_queue(
        self, client: Any, other: Any
    ) -> None:
        with client.lock("orders"):
            late = error_of(
                lambda: other.lock("orders").acquire(timeout=0.3),
                *(coordlock.AcquireTimeout, r" 1 contender\(s\) ahead"),
            )
            assert late.name == "orders"
            assert late.position == 1
            assert str(os.getpid()) in str(late.holder)
            assert late.waited >= 0.3
            eventually(lambda: len(client.admin.contenders("orders")) == 1)

    def test_tokens_go_on_growing_when_every_client_has_gone(
        self, connect: Callable[..., Any]
    ) -> None:
        tokens = []
        keeper = connect()
        for _ in range(3):
            client = connect()
            with client.lock("orders") as grant:
                tokens.append(grant.token)
            client.close()
            if self.backend.capabilities.durable:
                keeper.close()
        assert tokens == sorted(set(tokens))

    def test_waiters_are_granted_in_the_order_of_their_arrival(
        self, client: Any, other: Any, start: Start
    ) -> None:
        granted: list[int] = []

        def wait(number: int) -> None:
            with (client, other)[number % 2].lock("orders"):
                granted.append(number)

        with client.lock("orders"):
            waiters = []
            for number in range(8):
                waiters.append(start(wait, number))
                eventually(partial(self._length_is, client, "orders", number + 2))
        for waiter in waiters:
            waiter.result(30)
        assert granted == list(range(8))

    def test_release_is_idempotent_and_repeats_its_answer(self, client: Any) -> None:
        grant = client.lock("orders").acquire()
        assert grant.release() is True
        assert grant.release() is True
        assert grant.state is coordlock.GrantState.RELEASED
        with pytest.raises(coordlock.LockLost, match="released"):
            grant.check()
        eventually(lambda: client.admin.contenders("orders") == ())

    def test_releasing_an_old_grant_leaves_a_newer_one_alone(self, client: Any) -> None:
        old = client.lock("orders").acquire()
        old.release()
        new = client.lock("orders").acquire()
        old.release()
        assert [one.token for one in client.admin.contenders("orders")] == [new.token]
        assert new.release()

    def test_a_lock_is_released_when_the_body_raises(self, client: Any) -> None:
        with pytest.raises(ZeroDivisionError), client.lock("orders"):
            raise ZeroDivisionError
        assert client.lock("orders").try_acquire().release()

    # Loss

    def test_an_evicted_holder_is_told(self, client: Any, other: Any) -> None:
        told: list[Any] = []
        called = threading.Event()
        grant = client.lock("orders").acquire()

        def tell(lost: Any) -> None:
            told.append(lost)
            called.set()

        grant.on_lost(tell)
        assert other.admin.evict(other.admin.contenders("orders")[0])
        assert grant.lost.wait()
        assert called.wait(30)
        assert [one.token for one in told] == [grant.token]
        assert grant.remaining() == 0
        with pytest.raises(coordlock.LockLost) as caught:
            grant.check()
        assert caught.value.token == grant.token
        assert grant.release() is False
        assert grant.state is coordlock.GrantState.LOST

    def test_leaving_the_body_of_a_lost_lock_raises(self, client: Any, other: Any) -> None:
        with pytest.raises(coordlock.LockLost), client.lock("orders"):
            other.admin.evict(other.admin.contenders("orders")[0])

    def test_a_loss_never_masks_the_exception_of_the_body(self, client: Any, other: Any) -> None:
        with pytest.raises(ZeroDivisionError) as caught, client.lock("orders"):
            other.admin.evict(other.admin.contenders("orders")[0])
            raise ZeroDivisionError
        assert isinstance(caught.value.__context__, coordlock.LockLost)

    def test_on_lost_is_not_called_after_a_release(self, client: Any) -> None:
        told: list[Any] = []
        grant = client.lock("orders").acquire()
        grant.on_lost(told.append)
        grant.release()
        client.close()
        assert told == []

    def test_an_evicted_waiter_gets_an_error_and_the_next_one_waits_on(
        self, client: Any, other: Any, start: Start
    ) -> None:
        grant = client.lock("orders").acquire()
        first = start(other.lock("orders").acquire)
        eventually(lambda: len(client.admin.contenders("orders")) == 2)
        second = start(other.lock("orders").acquire)
        eventually(lambda: len(client.admin.contenders("orders")) == 3)
        assert client.admin.evict(client.admin.contenders("orders")[1])
        with pytest.raises(coordlock.errors.Evicted):
            first.result(30)
        assert not second.done()
        grant.release()
        assert second.result(30).release()

    def test_when_all_are_evicted_no_waiter_is_granted(
        self, connect: Callable[..., Any], start: Start
    ) -> None:
        operator, *others = (connect() for _ in range(4))
        held = operator.lock("orders").acquire()
        waiters = [start(others[n % 3].lock("orders").acquire) for n in range(27)]
        eventually(lambda: self._length_is(operator, "orders", 28))
        evicted = operator.admin.evict_all("orders")
        assert [one.position for one in evicted] == list(range(28))
        assert [one.holding for one in evicted] == [True] + [False] * 27
        for waiter in waiters:
            with pytest.raises(coordlock.errors.Evicted):
                waiter.result(30)
        assert held.lost.wait()
        assert operator.admin.evict_all("orders") == ()

    def test_a_wait_is_cancelled_from_another_thread_and_the_next_one_waits_on(
        self, client: Any, other: Any, start: Start
    ) -> None:
        stop = coordlock.Cancellation()
        grant = client.lock("orders").acquire()
        waiter = start(partial(other.lock("orders").acquire, cancellation=stop))
        eventually(lambda: self._length_is(client, "orders", 2))
        last = start(other.lock("orders").acquire)
        eventually(lambda: self._length_is(client, "orders", 3))
        stop.cancel("the window was closed")
        with pytest.raises(coordlock.WaitCancelled, match="the window was closed"):
            waiter.result(30)
        eventually(lambda: self._length_is(client, "orders", 2))
        assert not last.done()
        grant.release()
        assert last.result(30).release()

    def test_what_was_cancelled_before_enters_no_queue(self, client: Any) -> None:
        stop = coordlock.Cancellation()
        with client.lock("orders").acquire(cancellation=stop):
            stop.cancel()  # a lock that is held stays so
        with pytest.raises(coordlock.WaitCancelled):
            client.lock("orders").acquire(cancellation=stop)
        with pytest.raises(coordlock.WaitCancelled):
            client.lock("orders").try_acquire(cancellation=stop)
        assert client.admin.contenders("orders") == ()

    def test_a_task_is_woken_though_its_client_releases_thousands_of_locks_meanwhile(
        self, url: str
    ) -> None:
        async def main() -> None:
            async with coordlock.connect_async(url, ttl="60s") as client:
                locks = [client.lock(f"l{number}", timeout=60) for number in range(3000)]
                grants = await asyncio.gather(*[lock.acquire() for lock in locks])
                waiter = asyncio.create_task(locks[0].acquire())
                await asyncio.gather(waiter, *[grant.release() for grant in grants])
                assert await waiter.result().release()

        asyncio.run(main())

    # Clients

    def test_closing_a_client_frees_its_locks_and_fails_its_waiters(
        self, client: Any, other: Any, start: Start
    ) -> None:
        held = client.lock("held").acquire()
        with other.lock("busy"):
            waiter = start(client.lock("busy").acquire)
            eventually(lambda: len(other.admin.contenders("busy")) == 2)
            client.close()
            with pytest.raises(coordlock.errors.ClientClosed):
                waiter.result(30)
            assert other.lock("held").acquire(30).token > held.token
            eventually(lambda: len(other.admin.contenders("busy")) == 1)
        assert held.lost.is_set()

    def test_a_closed_client_says_so(self, client: Any) -> None:
        client.close()
        client.close()
        for call in (client.lock("orders").acquire, client.admin.names, client.admin.describe):
            with pytest.raises(coordlock.errors.ClientClosed):
                call()

    @pytest.mark.parametrize("driver", DRIVERS)
    def test_a_client_that_was_dropped_says_so_and_its_threads_end(
        self, driver: str, url: str
    ) -> None:
        before = set(threading.enumerate())

        async def use() -> None:
            grant = await (await coordlock.connect_async(url)).lock("orders").acquire()
            await grant.release()

        def drop() -> None:
            if driver == "async":
                asyncio.run(use())
            else:
                coordlock.connect(url).lock("orders").acquire().release()
            gc.collect()

        with pytest.warns(ResourceWarning, match="a client of .* was dropped and not closed"):
            drop()
        eventually(lambda: set(threading.enumerate()) <= before, "the threads to end")

    def test_what_a_dropped_client_holds_is_held_until_it_is_released(
        self, client: Any, url: str
    ) -> None:
        def drop() -> coordlock.Grant:
            grant = coordlock.connect(url).lock("orders").acquire()
            gc.collect()
            return grant

        with pytest.warns(ResourceWarning, match="a client of .* was dropped and not closed"):
            grant = drop()
        assert client.lock("orders").try_acquire() is None
        grant.check()
        grant.release()
        with client.lock("orders", timeout=30):
            eventually(lambda: grant._engine.closed, "the dropped client to be closed")

    def test_another_process_is_excluded_unless_the_backend_reaches_no_further(
        self, client: Any, url: str
    ) -> None:
        if self.backend.capabilities.reach == "process":
            return
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, url, "orders"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin
            assert process.stdout
            token = int(process.stdout.readline())
            assert client.lock("orders").try_acquire() is None
            [holder] = client.admin.contenders("orders")
            assert holder.owner is not None
            assert (holder.owner.pid, holder.token) == (process.pid, token)
            process.stdin.close()
            with client.lock("orders", timeout=60) as grant:
                assert grant.token > token

    # The queue as people see it

    def test_the_queue_shows_who_holds_and_who_waits(
        self, connect: Callable[..., Any], start: Start
    ) -> None:
        client, other = connect(label="first"), connect(label="second")
        with client.read_lock("orders") as grant:
            with other.read_lock("orders"):
                writer = start(other.write_lock("orders").acquire)
                eventually(lambda: len(client.admin.contenders("orders")) == 3)
                queue_view = client.admin.contenders("orders")
            writer_grant_pending = not writer.done()
        assert writer_grant_pending
        assert [one.position for one in queue_view] == [0, 1, 2]
        assert [one.holding for one in queue_view] == [True, True, False]
        assert [one.claim for one in queue_view] == [Mode.PR, Mode.PR, Mode.EX]
        assert [one.owner.label for one in queue_view] == ["first", "second", "second"]
        assert {one.owner.host for one in queue_view} == {socket.gethostname()}
        assert {one.owner.pid for one in queue_view} == {os.getpid()}
        assert all(0 <= one.age < 120 for one in queue_view)
        tokens = [one.token for one in queue_view]
        assert tokens[0] == grant.token
        assert tokens == sorted(set(tokens))
        assert writer.result(30).release()

    def test_a_lock_says_whether_it_is_locked_and_whether_this_client_owns_it(
        self, client: Any, other: Any
    ) -> None:
        mine, theirs = client.lock("orders"), other.lock("orders")
        assert not mine.locked()
        with mine:
            assert (mine.locked(), theirs.locked()) == (True, True)
            assert (mine.owned(), theirs.owned()) == (True, False)
            assert client.read_lock("orders").owned()
        eventually(lambda: not theirs.locked())
        assert not mine.owned()
        with client.lock("orders", mode=Mode.NL):
            assert not theirs.locked()

    def test_the_label_of_the_lock_is_shown_in_the_queue_or_that_of_the_client(
        self, client: Any, other: Any
    ) -> None:
        labels = [client.settings.label, "job 🔒", "x" * 255]
        grants = [client.read_lock("orders").acquire()]
        grants += [client.read_lock("orders", label=label).acquire() for label in labels[1:]]
        assert [grant.label for grant in grants] == labels
        assert [one.owner.label for one in other.admin.contenders("orders")] == labels
        for bad in ("", "x" * 256, 7):
            with pytest.raises(ValueError, match="label: "):
                client.lock("orders", label=bad)
        assert len(client.admin.contenders("orders")) == 3

    def test_a_grant_is_verified_by_the_service(self, client: Any, other: Any) -> None:
        grant = client.lock("orders").acquire()
        grant.verify()
        [holder] = other.admin.contenders("orders")
        assert other.admin.evict(holder)
        with pytest.raises(coordlock.LockLost, match="orders"):
            grant.verify()
        assert grant.state is coordlock.GrantState.LOST
        released = client.lock("orders").acquire()
        released.release()
        with pytest.raises(coordlock.LockLost):
            released.verify()

    def test_a_backend_that_keeps_no_data_names_the_fence_to_use_instead(self, client: Any) -> None:
        if self.backend.capabilities.data:
            return  # `TransactionContract` is for those
        with client.lock("orders") as grant:
            for use in (lambda: grant.read("app"), grant.transaction):
                with pytest.raises(
                    coordlock.errors.Unsupported, match=r"coordlock\.fencing\.files"
                ):
                    use()
            grant.check()

    def test_the_service_describes_itself(self, client: Any) -> None:
        assert client.admin.describe().service.lower() == self.backend.scheme

    # Names

    @pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
    def test_a_hostile_name_is_a_name_like_any_other(self, client: Any, name: str) -> None:
        with client.lock(name) as grant:
            assert [one.token for one in client.admin.contenders(name)] == [grant.token]
            assert name in client.admin.names()
            assert client.lock(name).try_acquire() is None

    def test_names_that_look_alike_are_different_locks(self, client: Any) -> None:
        names = ["a", "A", "a/b", "a%2Fb", "a%2fb", "a b", "a+b", "a\u0301", "á", ".", "%2E"]
        grants = [client.lock(name).try_acquire() for name in names]
        assert None not in grants
        assert all(grant.release() for grant in grants)

    # Modes

    # Semaphores

    def test_a_semaphore_never_has_too_many_holders(
        self, client: Any, other: Any, start: Start
    ) -> None:
        holding, most, lock = 0, 0, threading.Lock()

        def work(turn: int) -> None:
            nonlocal holding, most
            with (client, other)[turn % 2].semaphore("pool", 4):
                with lock:
                    holding += 1
                    most = max(most, holding)
                time.sleep(0.002)
                with lock:
                    holding -= 1

        for worker in [start(work, turn) for turn in range(40)]:
            worker.result(60)
        assert 1 <= most <= 4

    def test_clients_that_disagree_about_a_name_get_an_error(self, client: Any, other: Any) -> None:
        with client.semaphore("pool", 3):
            for asking in (other.semaphore("pool", 2), other.lock("pool"), other.read_lock("pool")):
                with pytest.raises(coordlock.NameConflict) as caught:
                    asking.acquire(timeout=30)
                assert caught.value.name == "pool"
        with client.lock("orders"), pytest.raises(coordlock.NameConflict):
            other.semaphore("orders", 2).acquire(timeout=30)

    # Reentrant locks

    def test_an_owner_enters_again_with_the_same_token_and_its_last_release_frees(
        self, client: Any, other: Any
    ) -> None:
        lock = client.reentrant_lock("orders", owner="me")
        first = lock.acquire()
        second = lock.acquire()
        third = client.reentrant_lock("orders", mode=Mode.PR, owner="me").acquire()
        assert first.token == second.token == third.token
        assert len(other.admin.contenders("orders")) == 1
        assert first.release()
        assert third.release()
        assert first.state is third.state is coordlock.GrantState.RELEASED
        second.check()
        with pytest.raises(coordlock.LockLost, match="it was released"):
            first.check()
        assert other.lock("orders").try_acquire() is None
        assert second.release()
        assert other.lock("orders").try_acquire().release()

    def test_what_was_lost_is_not_entered_again_until_it_is_released(
        self, client: Any, other: Any
    ) -> None:
        lock = client.reentrant_lock("orders", owner="me")
        grant = lock.acquire()
        other.admin.evict(other.admin.contenders("orders")[0])
        eventually(grant.lost.is_set)
        with pytest.raises(coordlock.LockLost):
            lock.acquire()
        assert not grant.release()
        with lock as newer:
            assert newer.token > grant.token
