from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from coordlock import AsyncClient, AsyncGrant, Client, Grant, GrantState, LockLost
from coordlock.errors import AuthenticationFailed
from coordlock.locks.lock import AcquireOptions, Lock
from coordlock.model.claim import Mode
from coordlock.runtime.log import flush
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise, failed
from coordlock.testing.waiting import eventually
from tests.simulation.world import TTL, Party, World
from tests.unit.clients import Service, backend

pytestmark = pytest.mark.usefixtures("no_leaks")


# Release


def test_a_release_without_a_timeout_waits_until_the_lock_is_free(
    world: World, party: Party
) -> None:
    grant = party.held()
    party.cut_off()
    release = party.run(grant._release(None))
    world.advance(party.engine.settings.request_timeout + 1)
    assert not release.done
    party.heal()
    world.advance(5)
    assert release.result is True
    assert world.queue() == ()


def test_a_release_is_bounded_while_cut_off_and_goes_on_in_the_background(
    world: World, party: Party
) -> None:
    grant = party.held()
    party.cut_off()
    release = party.run(grant._release())
    world.advance(party.engine.settings.request_timeout - 0.1)
    assert not release.done
    world.advance(0.1)
    assert release.result is True
    assert grant.state is GrantState.RELEASED
    party.heal()
    world.advance(5)
    assert world.queue() == ()


def test_releasing_a_lost_lock_waits_for_nothing(world: World, party: Party) -> None:
    grant = party.held()
    party.cut_off()
    world.advance(TTL)
    release = party.run(grant._release())
    world.settle()
    assert release.result is False


def test_a_cancelled_release_goes_on_in_the_background(world: World, party: Party) -> None:
    grant = party.held()
    party.network.faults.latency = lambda: 1.0
    release = party.run(grant._release())
    release.cancel()
    world.advance(5)
    assert world.queue() == ()
    assert grant.state is GrantState.RELEASED


# With blocks


@pytest.mark.parametrize("bound", [0.0, 5.0])
def test_a_second_release_waits_for_the_answer_of_the_first(
    world: World, party: Party, bound: float
) -> None:
    grant = party.held()
    party.network.faults.latency = lambda: 0.3
    world.service.remove(world.queue()[0])
    first, second = (party.run(grant._release(seconds)) for seconds in (bound, 5.0))
    assert not second.done
    world.advance(0.4)
    assert second.result is False
    assert first.result is (bound == 0.0)  # which did not wait
    third = party.run(grant._release())
    world.settle()
    assert third.result is False
    assert party.network.requests.count("withdraw") == 1


@pytest.mark.parametrize("max_hold", [None, 10.0])
def test_a_lock_whose_time_is_over_is_not_owned_though_no_timer_has_run(
    world: World, party: Party, max_hold: float | None
) -> None:
    lock = Lock(party.access, "q", Mode.EX, AcquireOptions(None, None, max_hold))
    call = party.run(lock._acquire())
    world.settle()
    assert lock.owned()
    party.pause()
    world.advance(TTL - 1)
    assert lock.owned() is (max_hold is None)
    world.advance(1)
    assert not lock.owned()
    assert call.result.state is GrantState.LOST


def test_a_loss_that_the_body_raised_itself_is_not_chained_again(
    service: Service, client: Client
) -> None:
    def work() -> None:
        with client.lock("q").acquire() as grant:
            service.evict("q")
            assert grant.lost.wait(30)
            grant.check()

    with pytest.raises(LockLost) as caught:
        work()
    assert caught.value.__context__ is None


# Callbacks and signals


def test_a_callback_that_raises_or_exits_is_logged_and_the_others_are_called(
    service: Service, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Event()
    grant = client.lock("q").acquire()
    grant.on_lost(lambda _: 1 // 0)
    grant.on_lost(lambda _: sys.exit(1))
    grant.on_lost(lambda _: called.set())
    service.evict("q")
    assert called.wait(30)
    assert flush(30)
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_that_blocks_keeps_neither_the_client_nor_its_close(service: Service) -> None:
    blocked, over = threading.Event(), threading.Event()
    with service.client() as client:
        grant = client.lock("q").acquire()

        def block(_: Grant) -> None:
            blocked.set()
            over.wait(60)

        grant.on_lost(block)
        service.evict("q")
        assert blocked.wait(30)
        assert grant.release() is False
        client.lock("q").acquire(timeout=30).release()
    assert not over.is_set()
    over.set()


def test_a_callback_given_after_the_loss_is_called_too(service: Service, client: Client) -> None:
    called = threading.Event()
    grant = client.lock("q").acquire()
    service.evict("q")
    assert grant.lost.wait(30)
    grant.on_lost(lambda _: called.set())
    assert called.wait(30)


def test_a_callback_may_wait_for_the_client(service: Service, client: Client) -> None:
    told: list[tuple[int, bool]] = []
    grant = client.lock("q").acquire()

    def acquire_again(_: Grant) -> None:
        with client.lock("q") as new:
            told.append((new.token, THREAD.must_not_wait))

    grant.on_lost(acquire_again)
    service.evict("q")
    eventually(lambda: told)
    [(token, is_needed_for_heartbeats)] = told
    assert token > grant.token
    assert not is_needed_for_heartbeats


def test_a_callback_for_which_no_thread_could_be_started_is_called_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, called = world.party().engine, threading.Event()
    start, is_at_limit = threading.Thread.start, True

    def start_below_limit(thread: threading.Thread) -> None:
        if is_at_limit and thread.name == "coordlock-callbacks":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_below_limit)
    with monkeypatch.context() as patch:
        patch.setattr(THREAD, "must_not_wait", True)
        engine.call_back(called.set)
        world.advance(3)
        assert not called.is_set()
        is_at_limit = False
        world.advance(1)
    assert called.wait(30)


def test_closing_in_a_callback_does_not_hang(service: Service) -> None:
    client = service.client()
    grant = client.lock("q").acquire()
    closed = threading.Event()

    def close(_: Grant) -> None:
        client.close()
        closed.set()

    grant.on_lost(close)
    service.evict("q")
    assert closed.wait(30)


def test_closing_the_client_calls_no_callback_of_a_loss(service: Service) -> None:
    told: list[Grant] = []
    with service.client() as client:
        grant = client.lock("q").acquire()
        grant.on_lost(told.append)
        reentrant = client.reentrant_lock("r").acquire()
        reentrant.on_lost(told.append)
    grant.on_lost(told.append)
    client._engine.callbacks.finish(30)
    assert told == []
    assert grant.lost.wait(0)
    with pytest.raises(LockLost, match="closed"):
        grant.check()


# asyncio


Body = Callable[[Service, AsyncClient, AsyncGrant], Awaitable[None]]


def in_loop(body: Body) -> None:
    """Run ``body`` with a service, a client and its grant; complaints of the loop are failures."""
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        service = Service()
        async with service.async_client() as client:
            await body(service, client, await client.lock("q").acquire())

    asyncio.run(main())
    assert complaints == []


def is_not_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


def test_in_a_forked_child_nobody_waits_for_a_loss_that_nobody_tells(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = client.lock("q").acquire()
    with monkeypatch.context() as child:
        child.setattr(grant._engine, "_pid", 0)
        waiter = threading.Thread(target=grant.lost.wait, daemon=True)
        waiter.start()
        waiter.join(60)
        assert not waiter.is_alive()
        assert "forked" in (grant.lost.reason or "")


def test_the_body_is_cancelled_at_the_loss_and_the_loss_is_raised() -> None:
    async def body(service: Service, client: AsyncClient, grant: AsyncGrant) -> None:
        reached = []

        async def work() -> None:
            async with grant.cancel_on_loss():
                service.evict("q")
                await asyncio.sleep(30)
                reached.append("the end")

        with pytest.raises(LockLost) as caught:
            await work()
        assert reached == []
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        assert is_not_cancelled()
        await asyncio.sleep(0)

    in_loop(body)


def test_closing_the_client_does_not_cancel_the_body_that_ends_in_the_loss() -> None:
    async def body(service: Service, client: AsyncClient, grant: AsyncGrant) -> None:
        reached = []

        async def work() -> None:
            async with grant.cancel_on_loss():
                await client.close()
                await asyncio.sleep(0)
                reached.append("the end")

        with pytest.raises(LockLost, match="closed"):
            await work()
        assert reached == ["the end"]

    in_loop(body)


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def body(service: Service, client: AsyncClient, grant: AsyncGrant) -> None:

        async def work() -> None:
            async with grant.cancel_on_loss():
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert await grant.release()

    in_loop(body)


def test_a_cancellation_beside_a_loss_stays_a_cancellation() -> None:
    async def body(service: Service, client: AsyncClient, grant: AsyncGrant) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with grant.cancel_on_loss():
                inside.set()
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    task.cancel()
                    raise

        task = asyncio.create_task(work())
        await inside.wait()
        service.evict("q")
        with pytest.raises(asyncio.CancelledError):
            await task

    in_loop(body)


def test_a_body_that_swallows_its_cancellation_still_ends_in_the_loss() -> None:
    async def body(service: Service, client: AsyncClient, grant: AsyncGrant) -> None:

        async def work() -> None:
            async with grant.cancel_on_loss():
                service.evict("q")
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(30)

        with pytest.raises(LockLost):
            await work()
        assert is_not_cancelled()

    in_loop(body)


def test_a_body_that_raises_when_it_is_cancelled_raises_that() -> None:
    async def body(service: Service, client: AsyncClient, grant: AsyncGrant) -> None:
        async def work() -> None:
            async with grant, grant.cancel_on_loss():
                service.evict("q")
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    raise KeyError from None

        with pytest.raises(KeyError) as caught:
            await work()
        assert "lock 'q'" in caught.value.__notes__[0]  # its context is another error
        assert is_not_cancelled()

    in_loop(body)


def test_a_loss_after_the_body_cancels_nothing() -> None:
    async def body(service: Service, client: AsyncClient, grant: AsyncGrant) -> None:
        async with grant.cancel_on_loss():
            pass
        service.evict("q")
        assert await grant.lost.wait()
        await asyncio.sleep(0.01)

    in_loop(body)


def test_an_async_callback_runs_in_the_loop_and_its_error_reaches_the_loops_handler() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, what: complaints.append(what))
        service = Service()
        async with service.async_client() as client:
            grant = await client.lock("q").acquire()
            where: list[object] = []
            grant.on_lost(lambda _: where.append(asyncio.get_running_loop()))
            grant.on_lost(lambda _: 1 // 0)
            service.evict("q")
            assert await grant.lost.wait()
            await asyncio.sleep(0.01)
            assert where == [loop]
            assert isinstance(complaints[0]["exception"], ZeroDivisionError)

    asyncio.run(main())


def test_waiting_for_a_loss_in_small_steps_gathers_nothing() -> None:
    async def body(service: Service, client: AsyncClient, grant: AsyncGrant) -> None:
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(grant.lost.wait(), 0.001)
        assert len(grant._ticket.end._callbacks) <= 2
        await grant.release()
        assert await grant.lost.wait() is False

    in_loop(body)


def test_a_loop_that_is_closed_before_the_loss_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service()
    client = service.async_client()
    grants = []

    async def main() -> None:
        grant = await client.lock("q").acquire()
        grants.append(grant)
        grant.on_lost(lambda _: None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(grant.lost.wait(), 0.01)

    asyncio.run(main())
    with caplog.at_level(logging.ERROR):
        service.evict("q")
        eventually(lambda: grants[0].state is GrantState.LOST)
        asyncio.run(client.close())
    assert flush(30)
    assert caplog.text == ""


def test_a_block_whose_release_the_service_refuses_raises_no_loss(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Promise[bool]] = [failed(AuthenticationFailed("memory", "no right to delete"))]
    withdraw = backend(client).withdraw
    monkeypatch.setattr(
        backend(client),
        "withdraw",
        lambda entries: answers.pop() if answers else withdraw(entries),
    )
    with client.lock("q") as grant:
        pass
    assert not answers
    eventually(lambda: not client.admin.contenders("q"))
    assert grant.state is GrantState.RELEASED
