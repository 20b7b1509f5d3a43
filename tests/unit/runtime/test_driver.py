from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest
from coordlock_memory import VirtualTime
from hypothesis import given
from hypothesis import strategies as st

from coordlock.errors import BackendUnavailable
from coordlock.runtime import driver
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.deadline import Cancellation, Cancelled, Deadline, DeadlineReached
from coordlock.runtime.driver import (
    Call,
    Steps,
    bounded,
    completion,
    run,
    run_async,
    run_in_background,
)
from coordlock.runtime.log import flush
from coordlock.runtime.promise import Promise, resolved
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service, backend
from tests.unit.signals import Signal

#: One step of a made-up protocol: what its future gives, whether it is done when it is yielded,
#: and whether the protocol catches its error.
Script = list[tuple[int | None, bool, bool]]

scripts: st.SearchStrategy[Script] = st.lists(
    st.tuples(st.integers(0, 9) | st.none(), st.booleans(), st.booleans()), max_size=6
)


def protocol(
    script: Script, complete: Callable[[Callable[[], object]], object]
) -> Steps[list[str]]:
    """Follow ``script``; ``complete`` calls what completes a future, sooner or later."""
    seen: list[str] = []
    for value, at_once, catches in script:
        future: Promise[Any] = Promise()

        def finish(future: Promise[Any] = future, value: int | None = value) -> None:
            if value is None:
                future.fail(BackendUnavailable("memory", "as told"))
            else:
                future.resolve(value)

        if at_once:
            finish()
        else:
            complete(finish)
        try:
            seen.append(f"got {yield future}")
        except BackendUnavailable as error:
            if not catches:
                raise
            seen.append(f"caught {error.reason}")
    return seen


def outcome(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        return "returned", str(call())
    except BackendUnavailable as error:
        return "raised", str(error)


def in_thread(finish: Callable[[], object]) -> None:
    threading.Timer(0.0, finish).start()


@given(scripts)
def test_the_drivers_give_the_same_for_every_protocol(script: Script) -> None:
    expected = outcome(lambda: run(protocol(script, lambda finish: finish())))
    assert outcome(lambda: run(protocol(script, in_thread))) == expected

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        return await run_async(protocol(script, loop.call_soon))

    assert outcome(lambda: asyncio.run(main())) == expected
    waiting: list[Callable[[], object]] = []
    promise = run_in_background(protocol(script, waiting.append))
    while waiting:
        waiting.pop()()
    assert outcome(lambda: promise.result(0)) == expected


def test_a_long_protocol_of_kept_promises_does_not_recurse() -> None:
    def steps() -> Steps[int]:
        total = 0
        for _ in range(10_000):
            total += yield resolved(1)
        return total

    assert run(steps()) == 10_000
    assert run_in_background(steps()).result(0) == 10_000
    assert asyncio.run(run_async(steps())) == 10_000


def both(steps: Callable[[], Steps[Any]]) -> list[Any]:
    return [run(steps()), asyncio.run(run_async(steps()))]


def test_the_deadline_is_thrown_once_and_what_follows_is_not_bounded_by_it() -> None:
    def steps() -> Steps[list[str]]:
        seen = []
        (yield Call).deadline = Deadline.after(0.01, SYSTEM_CLOCK)
        try:
            yield Promise()
        except DeadlineReached:
            seen.append("deadline")
        slow: Promise[str] = Promise()
        threading.Timer(0.05, slow.resolve, ["cleaned up"]).start()
        seen.append((yield slow))
        return seen

    assert both(steps) == [["deadline", "cleaned up"]] * 2


def test_a_cancellation_wakes_the_driver_at_once_and_is_thrown_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "_LONGEST_WAIT_S", 600.0)

    def steps() -> Steps[list[str]]:
        seen = []
        stop = Cancellation()
        (yield Call).deadline = Deadline(SYSTEM_CLOCK, math.inf, (Cancellation(), stop))
        threading.Timer(0.01, stop.cancel, ["enough"]).start()
        begun = time.monotonic()
        try:
            yield Promise()
        except Cancelled as cancelled:
            seen.append(f"{cancelled} {time.monotonic() - begun < 60}")  # before it would look
        slow: Promise[str] = Promise()
        threading.Timer(0.05, slow.resolve, ["cleaned up"]).start()
        seen.append((yield slow))
        assert not stop._wakers
        return seen

    assert both(steps) == [["enough True", "cleaned up"]] * 2


def test_an_answer_that_is_there_is_taken_though_a_cancellation_came() -> None:
    def steps() -> Steps[str]:
        stop = Cancellation()
        (yield Call).deadline = Deadline(SYSTEM_CLOCK, math.inf, (stop,))
        stop.cancel()
        answer: str = yield resolved("granted")
        return answer

    assert both(steps) == ["granted"] * 2


def test_a_cancellation_that_meets_the_answer_harms_neither() -> None:
    def steps() -> Steps[str]:
        stop, answer = Cancellation(), Promise[str]()
        (yield Call).deadline = Deadline(SYSTEM_CLOCK, math.inf, (stop,))
        for thread in (
            threading.Timer(0.001, answer.resolve, ["granted"]),
            threading.Timer(0.001, stop.cancel),
            threading.Timer(0.001, stop.cancel),
        ):
            thread.start()
        try:
            outcome: str = yield answer
        except Cancelled:
            return "cancelled"
        return outcome

    for _ in range(50):
        assert set(both(steps)) <= {"granted", "cancelled"}


def test_a_deadline_that_bounds_a_part_is_the_former_one_again_after_it() -> None:
    outer, inner = Deadline(SYSTEM_CLOCK, math.inf), Deadline(SYSTEM_CLOCK, 0.0)

    def part() -> Steps[None]:
        yield Promise[None]()

    def steps() -> Steps[list[object]]:
        call = yield Call
        call.deadline = outer
        with suppress(DeadlineReached):
            yield from bounded(part(), inner)
        return [call.deadline, (yield from bounded(deadline_of(call), inner)), call.deadline]

    def deadline_of(call: Call) -> Steps[object]:
        yield resolved(None)
        return call.deadline

    assert both(steps) == [[outer, inner, outer]] * 2


def test_a_protocol_in_the_background_has_no_deadline() -> None:
    slow: Promise[str] = Promise()

    def steps() -> Steps[str]:
        (yield Call).deadline = Deadline.after(-1, SYSTEM_CLOCK)
        answer: str = yield slow
        return answer

    outcome = run_in_background(steps())
    slow.resolve("late")
    assert outcome.result(0) == "late"


def test_a_deadline_that_is_past_leaves_what_is_done_its_result() -> None:
    def steps() -> Steps[str]:
        (yield Call).deadline = Deadline.after(-1, SYSTEM_CLOCK)
        answer: str = yield resolved("known")
        return answer

    assert both(steps) == ["known"] * 2


def test_a_deadline_that_is_past_ends_a_wait_at_once() -> None:
    def steps() -> Steps[None]:
        (yield Call).deadline = Deadline.after(-1, SYSTEM_CLOCK)
        yield Promise()

    with pytest.raises(DeadlineReached):
        run(steps())
    with pytest.raises(DeadlineReached):
        asyncio.run(run_async(steps()))


def test_a_deadline_is_kept_on_the_clock_it_is_given() -> None:
    # Real time passes; the given clock stands still, so the deadline never comes.
    answer: Promise[str] = Promise()
    threading.Timer(0.1, answer.resolve, ["late"]).start()

    def steps() -> Steps[str]:
        (yield Call).deadline = Deadline.after(0.001, VirtualTime())
        found: str = yield answer
        return found

    assert run(steps()) == "late"


@pytest.mark.parametrize("seconds", [1e10, 1e12, 1e300])
def test_a_deadline_beyond_what_threads_can_wait_for_is_a_long_wait(seconds: float) -> None:
    def steps() -> Steps[str]:
        (yield Call).deadline = Deadline.after(seconds, SYSTEM_CLOCK)
        answer: Promise[str] = Promise()
        threading.Timer(0.02, answer.resolve, ["answered"]).start()
        found: str = yield answer
        return found

    assert both(steps) == ["answered"] * 2


def test_a_future_of_another_kind_is_an_error_and_not_taken_for_kept() -> None:
    def steps() -> Steps[str]:
        yield Future()  # type: ignore[misc] # what a backend might return
        return "kept"

    with pytest.raises(AttributeError, match="Future"):
        run(steps())
    with pytest.raises(AttributeError, match="Future"):
        asyncio.run(run_async(steps()))
    with pytest.raises(AttributeError, match="Future"):
        run_in_background(steps()).result(1)


# Interrupts


def test_ctrl_c_while_the_service_is_silent_comes_out_at_once() -> None:
    service = Service()
    with service.client() as client:
        backend(client).faults.partition()
        timer = threading.Timer(
            0.05, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]
        )
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            client.lock("q").acquire()
        backend(client).faults.heal()


# asyncio


async def reaches(service: Service, size: int) -> None:
    """Wait until the queue has ``size`` contenders."""
    async with asyncio.timeout(30):
        while service.size("q") != size:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Generator[None, None, None]:
    """Fails the test when a loop or a future complained."""
    with caplog.at_level(logging.ERROR):
        yield
        gc.collect()
    assert flush(30)
    assert [record.getMessage() for record in caplog.records if record.levelno >= 40] == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("latency", [None, 0.0, 0.002])
def test_a_task_cancelled_anywhere_leaves_no_contender(latency: float | None) -> None:
    async def main() -> None:
        service = Service()
        async with service.async_client() as holder, service.async_client() as client:
            grant = await holder.lock("q").acquire()
            if latency is not None:
                backend(client).faults.latency = lambda: latency
            for turns in range(12):
                task = asyncio.create_task(client.lock("q").acquire())
                for _ in range(turns):
                    await asyncio.sleep(0 if latency is None else latency / 2)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await reaches(service, 1)
            assert await grant.release()
            again = await asyncio.wait_for(client.lock("q").acquire(), 30)
            await again.release()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_loop_that_ends_with_waiters_leaves_no_contender() -> None:
    service = Service()
    client = service.async_client()

    async def main() -> None:
        await client.lock("q").acquire()
        for _ in range(5):
            asyncio.create_task(client.lock("q").acquire())  # noqa: RUF006
        await reaches(service, 6)

    asyncio.run(main())
    eventually(lambda: service.size("q") == 1)
    asyncio.run(client.close())


def test_an_answer_for_a_loop_that_was_closed_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    answer: Promise[None] = Promise()
    loop = asyncio.new_event_loop()
    waiting = completion(answer)

    async def begin() -> None:
        waiting.send(None)

    loop.run_until_complete(begin())
    loop.close()
    answer.resolve(None)
    flush()
    assert not caplog.records
    waiting.close()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_protocol_that_ctrl_c_leaves_between_two_waits_cleans_up_at_once() -> None:
    for number in itertools.count(1):
        began: list[bool] = []
        over: list[bool] = []

        def steps() -> Steps[None]:
            began.append(True)  # noqa: B023
            try:
                for _ in range(3):
                    yield resolved(None)
            finally:
                over.append(True)  # noqa: B023

        traceback = None
        strike = Signal(number, interrupt)
        try:
            with strike:
                run(steps())
        except KeyboardInterrupt as error:
            traceback = error.__traceback__  # which keeps the generator
        assert began == over
        del traceback
        if not strike.came:
            break
    assert number > 5
