from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import pytest
from coordlock_memory import VirtualTime, VirtualTimers

from coordlock.errors import BackendUnavailable, SessionLost
from coordlock.kernel.removal import removal
from coordlock.kernel.retry import retried
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, failed, resolved


def unavailable(number: int) -> BackendUnavailable:
    return BackendUnavailable("memory", f"failure {number}")


class Flaky:
    """A request that fails some times, and then answers."""

    def __init__(self, time: VirtualTime, failures: float, answer: Promise[bool]) -> None:
        self.time = time
        self.failures = failures
        self.answer = answer
        self.asked: list[float] = []

    def __call__(self) -> Promise[bool]:
        self.asked.append(self.time.now())
        return (
            failed(unavailable(len(self.asked)))
            if len(self.asked) <= self.failures
            else self.answer
        )


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def timers(time: VirtualTime) -> VirtualTimers:
    return VirtualTimers(time)


def test_an_answer_is_asked_for_once(time: VirtualTime, timers: VirtualTimers) -> None:
    flaky = Flaky(time, 0, resolved(True))
    assert run_in_background(retried(flaky, timers)).result(0) is True
    assert flaky.asked == [0.0]


def test_failures_are_repeated_until_there_is_an_answer(
    time: VirtualTime, timers: VirtualTimers
) -> None:
    flaky = Flaky(time, 5, resolved(True))
    told: list[str] = []
    answer = run_in_background(retried(flaky, timers, on_failure=lambda e: told.append(e.reason)))
    time.advance(60)
    assert answer.result(0) is True
    assert told == [f"failure {number}" for number in range(1, 6)]


def test_the_waits_grow_and_stay_bounded(time: VirtualTime, timers: VirtualTimers) -> None:
    longest = 1.0
    flaky = Flaky(time, float("inf"), resolved(True))
    run_in_background(retried(flaky, timers))
    time.advance(2000)
    waits = [later - sooner for sooner, later in itertools.pairwise(flaky.asked)]
    assert waits[0] <= 0.1
    assert all(
        wait <= min(longest, 0.1 * 2 ** min(number, 20)) + 1e-6 for number, wait in enumerate(waits)
    )
    assert max(waits) > longest / 3
    assert len(flaky.asked) < 2000 / longest * 20


def test_other_errors_are_not_repeated(time: VirtualTime, timers: VirtualTimers) -> None:
    flaky = Flaky(time, 2, failed(SessionLost("memory", "it expired")))
    answer = run_in_background(retried(flaky, timers))
    time.advance(60)
    assert isinstance(answer.exception(0), SessionLost)
    assert len(flaky.asked) == 3


def test_the_deadline_takes_the_last_failure_along(
    time: VirtualTime, timers: VirtualTimers
) -> None:
    flaky = Flaky(time, 3, resolved(True))
    steps = retried(flaky, timers)
    future = next(steps)
    for _ in range(3):
        assert isinstance(future, Promise)
        time.advance(0)
        error = future.exception(0) if future.done() else None
        future = (
            steps.throw(error) if error else steps.send(future.result(0) if future.done() else None)
        )
    with pytest.raises(DeadlineReached) as caught:
        steps.throw(DeadlineReached())
    assert isinstance(caught.value.__cause__, BackendUnavailable)


def test_the_deadline_of_a_first_request_has_no_failure_to_tell(timers: VirtualTimers) -> None:
    steps: Steps[bool] = retried(Promise, timers)
    next(steps)
    with pytest.raises(DeadlineReached) as caught:
        steps.throw(DeadlineReached())
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, ZeroDivisionError])
def test_interrupts_pass_through(timers: VirtualTimers, error: type[BaseException]) -> None:
    steps: Steps[bool] = retried(Promise, timers)
    next(steps)
    with pytest.raises(error):
        steps.throw(error())
    closed: Steps[bool] = retried(Promise, timers)
    next(closed)
    closed.close()


@pytest.mark.parametrize(
    ("failures", "found", "answer"),
    [(0, True, True), (0, False, False), (2, True, True), (1, False, True)],
)
def test_a_removal_in_doubt_that_then_finds_nothing_was_a_removal(
    time: VirtualTime, timers: VirtualTimers, failures: int, found: bool, answer: bool
) -> None:
    request: Callable[[], Promise[bool]] = Flaky(time, failures, resolved(found))
    removed = run_in_background(removal(request, timers))
    time.advance(60)
    assert removed.result(0) is answer


def test_pauses_that_cannot_be_made_end_the_retry(
    time: VirtualTime, timers: VirtualTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the modules of a running program were replaced."""
    monkeypatch.setitem(sys.modules, "tenacity", None)
    answer = run_in_background(retried(Flaky(time, 1, resolved(True)), timers))
    time.advance(1)
    with pytest.raises(ImportError):
        answer.result(0)
