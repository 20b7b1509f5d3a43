"""Mistakes in telling that a lock is lost: of the deadline, of the session's end, of evictions."""

from __future__ import annotations

import math

import coordlock_local.session

from coordlock.kernel.session import Session
from coordlock.kernel.ticket import Ticket
from coordlock.kernel.tickets import Tickets
from coordlock.runtime.promise import Promise
from coordlock.runtime.worker import Worker
from tests.mutants.mutant import SUITES, Changes, mutant, nothing
from tests.simulation.contention import Contention


@mutant(
    "A session counts as alive for longer than the service keeps it.",
    simulated=(Contention,),
)
def counts_the_time_to_live_from_the_reply() -> Changes:
    beaten = Session._beaten

    def beaten_now(self: Session, _: float, answer: Promise[float], future: Promise[float]) -> None:
        beaten(self, self._timers.clock.now(), answer, future)

    return [(Session, "_beaten", beaten_now)]


@mutant(
    "A holder that is cut off goes on, when another holder has the lock.",
    simulated=(Contention,),
)
def has_no_deadline() -> Changes:
    schedule = Session._schedule

    def schedule_for_ever(self: Session, when: float) -> None:
        deadline, self.deadline = self.deadline, math.inf  # else its timer looks again and again
        schedule(self, when)
        self.deadline = deadline

    return [
        (Session, "ended", property(lambda self: self._end)),
        (Session, "_schedule", schedule_for_ever),
    ]


@mutant(
    "A process that stood still believes in its session until a timer runs.",
    simulated=(Contention,),
)
def leaves_the_deadline_to_its_timers() -> Changes:
    beat_on_time = Session._beat_on_time

    def watch_the_clock(self: Session) -> None:
        if self._timers.clock.now() >= self.deadline:
            self.end(self._too_late())
        beat_on_time(self)

    return [
        (Session, "ended", property(lambda self: self._end)),
        (Session, "_beat_on_time", watch_the_clock),
    ]


@mutant("A holder is not told that its session has ended.", simulated=(Contention,))
def tells_no_holder_of_the_end_of_its_session() -> Changes:
    return [(Tickets, "lose_session", nothing)]


@mutant(
    "A holder that was evicted is not told.",
    simulated=(Contention,),
)
def does_not_hear_of_its_own_removal() -> Changes:
    return [(Ticket, "removed_by_service", nothing)]


@mutant(
    "A process that died keeps its locks.",
    SUITES + "TestKillOnLocal::test_what_a_killed_process_held_goes_together",
)
def takes_the_dead_for_living() -> Changes:
    return [(coordlock_local.session, "is_locked", lambda _: True)]


@mutant(
    "A callback that waits keeps heartbeats from being sent.",
    "tests/unit/test_grant.py::test_a_callback_may_wait_for_the_client",
)
def calls_back_in_any_thread() -> Changes:
    return [(Worker, "run", lambda _, call: call())]
