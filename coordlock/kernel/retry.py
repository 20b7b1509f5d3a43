"""Repeating what is idempotent: tenacity decides when, the protocol's driver waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from coordlock.errors import BackendUnavailable
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

__all__ = ["retried"]

log = Log("coordlock")

T = TypeVar("T")

#: Seconds between two attempts at most.
_LONGEST_PAUSE_S: Final = 1.0


def retried(
    call: Callable[[], Promise[T]],
    timers: Timers,
    *,
    on_failure: Callable[[BackendUnavailable], None] | None = None,
    pause: Callable[[float], Promise[None]] | None = None,
) -> Steps[T]:
    """The result of ``call``, repeated while the service is unavailable.

    For idempotent requests only. It ends with the caller's deadline, whose `DeadlineReached` then
    has the last failure as its cause. Waits up to 0.1 s before the second attempt, then up to
    twice as long each time, up to 1 s, at random (full jitter); where a wait may end otherwise,
    ``pause`` makes it. Each failure goes to ``on_failure``.
    """
    pauses: Iterator[float] | None = None  # made only where it is needed: most requests succeed
    last: BackendUnavailable | None = None
    try:
        while True:
            try:
                answer: T = yield call()
                return answer
            except BackendUnavailable as error:
                last = error
            if on_failure is not None:
                on_failure(last)
            log.debug("retrying after: %s", last)
            pauses = pauses or _pauses(timers)
            seconds = next(pauses)
            yield sleep(timers, seconds) if pause is None else pause(seconds)
    except DeadlineReached as late:
        raise late from last


def _pauses(timers: Timers) -> Iterator[float]:
    """Seconds to wait before each attempt after the first."""
    import tenacity  # slow to import; it says how long to wait, and does not wait

    bound = tenacity.wait_exponential(multiplier=0.1, max=_LONGEST_PAUSE_S)
    attempt = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    while True:
        yield timers.jitter(bound(attempt))
        attempt.attempt_number += 1
