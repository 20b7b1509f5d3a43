"""Waits that are ended from outside, by a `Cancellation` or by a signal's handler."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import coordlock
from coordlock import Cancellation, Client, Mode, WaitCancelled
from coordlock.errors import WaitTimeout
from coordlock.runtime.deadline import ENDING
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service


@pytest.fixture
def ending() -> Iterator[None]:
    """This process looks out for a signal that ends it, as after `release_on_signals`."""
    ENDING.waits = Cancellation()
    yield
    ENDING.waits = ENDING.reason = None


def test_one_cancellation_ends_many_waits_of_threads_and_tasks(
    service: Service, client: Client
) -> None:
    stop = Cancellation()
    assert (stop.cancelled, stop.reason) == (False, None)

    async def wait_in_tasks() -> list[object]:
        async with service.async_client() as tasks:
            calls = (tasks.lock("q").acquire(cancellation=stop) for _ in range(20))
            return list(await asyncio.gather(*calls, return_exceptions=True))

    with client.lock("q"), ThreadPoolExecutor(21) as pool:
        acquire = partial(client.lock("q").acquire, cancellation=stop)
        threads = [pool.submit(acquire) for _ in range(20)]
        tasks = pool.submit(asyncio.run, wait_in_tasks())
        eventually(lambda: service.size("q") == 41)
        stop.cancel("enough")
        stop.cancel("a second reason is not told")
        ends = [*(one.exception(30) for one in threads), *tasks.result(30)]
        assert {str(end) for end in ends} == {
            "lock 'q' was not granted: the wait was cancelled (enough)"
        }
        assert {type(end) for end in ends} == {WaitCancelled}
        eventually(lambda: service.size("q") == 1)
    assert (stop.cancelled, stop.reason) == (True, "enough")
    assert repr(stop) == "<Cancellation: enough>"
    assert not stop._wakers


def test_what_is_no_cancellation_is_refused_by_every_call_that_waits() -> None:
    with coordlock.connect("memory://refused") as client, client.upgradeable_lock("u") as grant:
        calls: list[Callable[..., object]] = [
            client.lock("q").acquire,
            client.election("e").campaign,
            client.barrier("b", 2).wait,
            client.gate("g").wait,
            client.work_queue("w").take,
            grant.upgrade,
        ]
        for call, wrong in itertools.product(calls, (threading.Event(), "stop", 0, Cancellation)):
            with pytest.raises(TypeError, match=r"must be a coordlock\.Cancellation"):
                call(cancellation=wrong)


def test_a_reason_is_a_text_and_the_first_one_counts() -> None:
    stop = Cancellation()
    with pytest.raises(TypeError, match="reason must be a text"):
        stop.cancel(15)  # type: ignore[arg-type]
    assert not stop.cancelled
    stop.cancel("")
    stop.cancel("later")
    assert (stop.cancelled, stop.reason) == (True, "")


@pytest.mark.usefixtures("ending")
def test_a_process_that_is_to_end_ends_its_waits_and_begins_none(
    service: Service, client: Client
) -> None:
    with client.lock("q"), ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(client.lock("q").acquire) for _ in range(2)]
        eventually(lambda: service.size("q") == 3)
        ENDING.begin("the process received SIGTERM")
        for call in waiting:
            with pytest.raises(WaitCancelled, match="received SIGTERM"):
                call.result(30)
        eventually(lambda: service.size("q") == 1)
        with pytest.raises(WaitCancelled, match="received SIGTERM"):
            client.lock("q").acquire()
        assert client.lock("q").try_acquire() is None
        with client.lock("free"):  # code that cleans up may need one
            pass
        eventually(lambda: service.size("q") == 1)


@pytest.mark.usefixtures("ending")
def test_the_error_of_a_job_that_waits_calls_it_by_its_name() -> None:
    with coordlock.connect("memory://ends") as client, ThreadPoolExecutor(1) as pool:
        job = client.job("nightly", overlap="queue")

        def run() -> None:
            with job.run(2):
                pass

        with job.run(1):
            waiting = pool.submit(run)
            eventually(lambda: ENDING.waits is not None and ENDING.waits._wakers)
            ENDING.begin("the process received SIGTERM")
            with pytest.raises(WaitCancelled, match="job 'nightly' was not granted") as ended:
                waiting.result(30)
        assert ended.value.name == "nightly"


@pytest.mark.usefixtures("ending")
def test_a_process_that_is_to_end_begins_no_upgrade_that_would_wait(
    service: Service, client: Client
) -> None:
    reader = client.read_lock("q").acquire()
    with client.upgradeable_lock("q") as grant:
        ENDING.begin("the process received SIGTERM")
        with pytest.raises(WaitCancelled, match="received SIGTERM"):
            grant.upgrade(timeout=30)
        with pytest.raises(WaitTimeout):
            grant.upgrade(timeout=0)
        grant.check()
        assert grant.claim is Mode.PR
        reader.release()
        grant.upgrade()  # code that cleans up may need it
        assert str(grant.claim) == str(Mode.EX)
    eventually(lambda: service.size("q") == 0)


@pytest.mark.usefixtures("ending")
def test_a_cancellation_of_the_call_still_counts_in_a_process_that_looks_out_for_its_end(
    service: Service, client: Client
) -> None:
    stop = Cancellation()
    with client.lock("q"), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.lock("q").acquire, 30, cancellation=stop)
        eventually(lambda: service.size("q") == 2)
        stop.cancel("by hand")
        with pytest.raises(WaitCancelled, match="by hand"):
            waiting.result(30)
        with pytest.raises(coordlock.AcquireTimeout):
            client.lock("q").acquire(0.05)
