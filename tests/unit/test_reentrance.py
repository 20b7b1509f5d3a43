"""Reentrant locks: whose they are, and what is left of them when something comes between."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import pytest

import coordlock
from coordlock import AcquireTimeout, Cancellation, Client, Grant, GrantState, Mode
from coordlock.runtime.caller import this_caller
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service
from tests.unit.signals import interrupted

T = TypeVar("T")


def test_a_decorated_function_may_call_itself(client: Client) -> None:
    @client.reentrant_lock("q")
    def countdown(number: int) -> int:
        return 0 if number == 0 else 1 + countdown(number - 1)

    assert countdown(5) == 5
    assert client.admin.contenders("q") == ()


def test_blocks_of_a_task_nest_and_a_child_task_waits_as_any_other_does(service: Service) -> None:
    async def main() -> None:
        async with service.async_client() as client:
            lock = client.reentrant_lock("q")

            async def enter() -> None:
                async with lock:
                    pass

            async with lock as outer:
                async with lock as inner:
                    assert outer.token == inner.token
                assert await asyncio.create_task(lock.try_acquire()) is None
                task = asyncio.current_task()
                assert task is not None
                with pytest.raises(coordlock.AcquireTimeout, match=f"in task '{task.get_name()}'"):
                    await asyncio.create_task(lock.acquire(0.1))
                later = asyncio.create_task(enter())
                await asyncio.sleep(0.05)
                assert not later.done()
            await later
            assert await client.admin.contenders("q") == ()

    asyncio.run(main())


@pytest.mark.usefixtures("sweeps_often")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_moment_of_an_inner_block_keeps_the_count(client: Client) -> None:
    lock = client.reentrant_lock("q")

    def nested() -> None:
        with lock:
            pass

    moment, came = 0, True
    while came:
        moment += 1
        with lock as outer:
            came = interrupted(nested, moment)
            outer.check()
        eventually(lambda: client.admin.contenders("q") == (), str(moment))
    assert moment > 20


@pytest.mark.filterwarnings("ignore:.* was dropped while it was held:ResourceWarning")
@pytest.mark.parametrize("owner", [None, "me"])
def test_a_grant_that_was_dropped_keeps_the_lock_whatever_its_owner_acquires_and_releases(
    client: Client, owner: str | None
) -> None:
    """Also where a later grant is made at the same place in memory."""
    for number in range(200):
        lock = client.reentrant_lock(f"q{number}", owner=owner)
        token = lock.acquire().token
        again = [lock.acquire() for _ in range(3)]
        for grant in again:
            grant.release()
        with lock as grant:
            assert grant.token == token
        assert client.lock(f"q{number}").try_acquire() is None


def test_the_end_of_an_inner_grant_ends_the_waits_for_its_loss(client: Client) -> None:
    outer = client.reentrant_lock("q").acquire()
    with ThreadPoolExecutor(1) as pool:
        lost = list[Grant]()
        inner = client.reentrant_lock("q").acquire()
        inner.on_lost(lost.append)
        waits = pool.submit(inner.lost.wait, 30)
        assert inner.release()
        assert waits.result(10) is False
        assert outer.state is GrantState.HELD
        client.admin.evict(client.admin.contenders("q")[0])
        assert outer.lost.wait(30)
        assert not lost


# Whose it is


def test_a_thread_is_another_owner_in_another_copy_of_a_context(client: Client) -> None:
    """As in anyio's pool of threads: each call for a request runs in a copy of its context."""
    lock = client.reentrant_lock("q")
    with ThreadPoolExecutor(1) as pool:

        def call(function: Callable[[], T]) -> T:
            return pool.submit(copy_context().run, function).result(30)

        grant = call(lock.acquire)
        assert call(lock.try_acquire) is None
        assert grant.release()

        def nested() -> None:
            with lock, lock:
                copy_context().run(lock.acquire).release()

        call(nested)
    assert client.admin.contenders("q") == ()


def test_tasks_of_one_loop_do_not_share_the_locks_of_a_sync_client(service: Service) -> None:
    async def main(client: Client) -> None:
        async def hold() -> bool:
            with client.reentrant_lock("q").try_acquire() or threading.Lock() as grant:
                await asyncio.sleep(0.01)
                return isinstance(grant, coordlock.Grant)

        assert sorted(await asyncio.gather(hold(), hold())) == [False, True]

    with service.client() as client:
        client.lock("q").acquire().release()  # so that the thread is known in their contexts
        asyncio.run(main(client))


def test_a_forked_child_inherits_no_hold(tmp_path: os.PathLike[str]) -> None:
    """The lock is its parent's, in whatever task."""
    client = Client(f"local://{os.fspath(tmp_path)}?request_timeout=30s")

    async def attempt() -> str:
        async with coordlock.connect_async(
            f"local://{os.fspath(tmp_path)}?request_timeout=30s"
        ) as mine:
            with pytest.raises(AcquireTimeout) as busy:
                await mine.reentrant_lock("q").acquire(timeout=0)
            return str(busy.value)

    with client.reentrant_lock("q"):
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                is_free = client.reentrant_lock("q").try_acquire() is not None
                held = client._engine.held_by(this_caller())
                os.write(writing, f"{is_free} {held} {asyncio.run(attempt())}".encode())
            except BaseException as error:
                os.write(writing, repr(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().decode()
        os.waitpid(child, 0)
    client.close()
    assert said.startswith("False [] lock 'q' was not granted")
    assert "1 contender(s) ahead" in said
    assert "held by this process" not in said


# Owners that are named


def owner_waits(client: Client, pool: ThreadPoolExecutor, **options: object) -> Future[object]:
    """A call that waits for a lock of the owner "me": in the queue, or for the call that does."""
    lock = client.reentrant_lock("q", owner="me")
    waiting: Future[object] = pool.submit(lock.acquire, **options)  # type: ignore[arg-type]
    eventually(lambda: len(client.admin.contenders("q")) == 2)
    return waiting


def granted(call: Future[object]) -> coordlock.Grant:
    grant = call.result(30)
    assert isinstance(grant, coordlock.Grant)
    return grant


def test_calls_of_one_owner_that_wait_are_let_in_together(client: Client) -> None:
    with ThreadPoolExecutor(4) as pool:
        with client.lock("q"):
            waiting = [owner_waits(client, pool) for _ in range(3)]
        grants = [granted(call) for call in waiting]
        assert len({grant.token for grant in grants}) == 1
        eventually(lambda: len(client.admin.contenders("q")) == 1)
        for grant in grants:
            grant.check()
            assert grant.release()
    assert client.admin.contenders("q") == ()


def test_a_call_goes_on_when_the_first_of_its_owner_gives_up(client: Client) -> None:
    stop = Cancellation()
    with ThreadPoolExecutor(4) as pool:
        with client.lock("q"):
            first = owner_waits(client, pool, cancellation=stop)
            second = owner_waits(client, pool)
            stop.cancel()
            with pytest.raises(coordlock.WaitCancelled):
                first.result(30)
            eventually(lambda: len(client.admin.contenders("q")) == 2)
        granted(second).release()
    assert client.admin.contenders("q") == ()


def test_a_call_that_waits_for_another_of_its_owner_ends_when_cancelled_or_late(
    client: Client,
) -> None:
    stop, lock = Cancellation(), client.reentrant_lock("q", owner="me")
    with ThreadPoolExecutor(4) as pool:
        with client.lock("q"):
            first = owner_waits(client, pool)
            assert lock.try_acquire() is None
            second = owner_waits(client, pool, cancellation=stop)
            with pytest.raises(AcquireTimeout):
                lock.acquire(timeout=0.1)
            stop.cancel("no longer wanted")
            with pytest.raises(coordlock.WaitCancelled, match="no longer wanted"):
                second.result(30)
        granted(first).release()
    assert client.admin.contenders("q") == ()


def test_a_waiting_call_for_a_stronger_mode_is_refused_when_its_owner_is_granted(
    client: Client,
) -> None:
    with ThreadPoolExecutor(4) as pool:
        with client.lock("q"):
            reads = client.reentrant_lock("q", mode=Mode.PR, owner="me")
            first = pool.submit(reads.acquire)
            eventually(lambda: len(client.admin.contenders("q")) == 2)
            second = owner_waits(client, pool)
        with pytest.raises(ValueError, match="acquire the stronger mode first"):
            second.result(30)
        grant = first.result(30)
        grant.check()
        assert grant.claim is Mode.PR
        assert grant.release()
    assert client.admin.contenders("q") == ()


@pytest.mark.usefixtures("sweeps_often")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_moment_of_an_owners_wait_leaves_nothing_behind(client: Client) -> None:
    """And the other call of that owner has the lock, whichever of them is granted first."""
    lock = client.reentrant_lock("q", owner="me")

    def enter() -> None:
        with lock:
            pass

    moment, came = 0, True
    with ThreadPoolExecutor(1) as pool:
        while came:
            moment += 7
            holder = client.lock("q").acquire()
            other = owner_waits(client, pool)
            threading.Timer(0.01, holder.release).start()
            came = interrupted(enter, moment)
            granted(other).release()
            eventually(lambda: client.admin.contenders("q") == ())


# What ended is forgotten


def test_a_grant_that_was_released_stays_so_when_its_owners_others_are_lost(
    service: Service,
) -> None:
    client, told = service.client(), list[coordlock.types.ReentrantGrant]()
    lock = client.reentrant_lock("q")
    outer, inner = lock.acquire(), lock.acquire()
    for grant in (outer, inner):
        grant.on_lost(told.append)
    assert inner.release()
    service.evict("q")
    eventually(outer.lost.is_set)
    assert not inner.lost.is_set()
    assert inner.state is GrantState.RELEASED
    assert inner.release()
    eventually(lambda: told == [outer])
    assert not outer.release()
    client.close()
    assert told == [outer]


def test_an_inner_block_does_not_get_anew_what_the_outer_block_has_lost(service: Service) -> None:
    client = service.client()
    lock = client.reentrant_lock("q", max_hold=0.1)
    outer = lock.acquire()
    eventually(lambda: client.admin.contenders("q") == ())  # withdrawn, a moment after the loss
    with pytest.raises(coordlock.LockLost):
        lock.acquire()
    assert not outer.release()
    assert lock.acquire().release()


def test_an_inner_block_does_not_get_anew_what_was_lost_with_the_session(service: Service) -> None:
    client = service.client()
    lock = client.reentrant_lock("q")
    outer = lock.acquire()
    service.service.expire(service.service.sessions()[0])
    eventually(outer.lost.is_set)
    with pytest.raises(coordlock.LockLost):
        lock.acquire()
    assert not outer.release()
    assert lock.acquire().release()


def test_what_an_owner_has_lost_and_dropped_is_forgotten(service: Service) -> None:
    client = service.client()
    lock = client.reentrant_lock("q", owner="me")
    grant = lock.acquire()
    service.evict("q")
    eventually(grant.lost.is_set)
    with pytest.raises(coordlock.LockLost):
        lock.acquire()
    dropped = weakref.ref(grant)
    del grant
    gc.collect()
    assert dropped() is None
    with lock:
        pass
    client.close()
