"""What a heartbeat on ZooKeeper proves, against a model of the leader's knowledge."""

from __future__ import annotations

import math

from coordlock_memory import MemoryBackend, MemoryService, VirtualTime, VirtualTimers
from coordlock_zookeeper.lifetime import BEAT_GAP, Lifetime
from hypothesis import given
from hypothesis import strategies as st

from coordlock.backend import SessionInfo, SessionListener
from coordlock.kernel.session import Session
from coordlock.kernel.tickets import Tickets
from coordlock.runtime.driver import run_in_background
from coordlock.runtime.promise import Promise, resolved

TTL = 8.0
HALF_TICK = TTL / 4  # a session takes at least two ticks


def seconds(least: float, most: float) -> st.SearchStrategy[float]:
    """Whole 64ths, whose sums are exact: the deadlines compared may be equal."""
    return st.integers(math.ceil(least * 64), int(most * 64)).map(lambda n: n / 64)


def test_a_first_heartbeat_counts_from_the_birth() -> None:
    assert Lifetime(born=10.0).proven(sent=11.0, acknowledged=11.1, ttl=TTL) == TTL - 1.0


def test_a_heartbeat_counts_when_the_report_of_it_was_due() -> None:
    lifetime = Lifetime(born=0.0)
    lifetime.proven(sent=1.0, acknowledged=1.5, ttl=TTL)
    assert lifetime.proven(sent=1.5 + HALF_TICK - 0.01, acknowledged=9.0, ttl=TTL) < TTL - 2.4
    assert lifetime.proven(sent=1.5 + HALF_TICK, acknowledged=9.0, ttl=TTL) == TTL - 2.5


@given(
    gaps=st.lists(seconds(0.01, 3.0), min_size=1, max_size=20),
    delays=st.lists(seconds(0.0, 0.5), min_size=20, max_size=20),
    phase=seconds(0.0, HALF_TICK),
)
def test_no_deadline_is_later_than_the_leaders_whenever_the_follower_dies(
    gaps: list[float], delays: list[float], phase: float
) -> None:
    lifetime, sent, beats = Lifetime(born=0.0), 0.0, []
    for gap, delay in zip(gaps, delays, strict=False):
        sent += gap
        heard, acknowledged = sent + delay / 2, sent + delay
        beats.append(heard)
        deadline = sent + lifetime.proven(sent, acknowledged, TTL)
        # The follower dies the moment that it has passed on the answer. Its last report told of
        # what it had heard till then; the one that was due when it heard this request has arrived.
        reports = [phase + n * HALF_TICK for n in range(100) if phase + n * HALF_TICK <= heard]
        known = [at for at in beats if reports and at <= reports[-1]]
        expiry = max(known, default=0.0) + TTL
        assert deadline <= expiry
        sent = acknowledged


class Reporting(MemoryBackend):
    """Answers heartbeats at once, and grants what they prove on ZooKeeper."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__(MemoryService(VirtualTimers(time)), TTL, VirtualTimers(time))
        self._time = time
        self._lifetime = Lifetime(born=time.now())

    def open(self, listener: SessionListener) -> Promise[SessionInfo]:
        return resolved(SessionInfo("reported", TTL, beat_gap=BEAT_GAP * TTL))

    def heartbeat(self) -> Promise[float]:
        now = self._time.now()
        return resolved(self._lifetime.proven(now, now + TTL / 100, TTL))


def test_more_than_a_third_of_the_time_to_live_remains_while_all_is_well() -> None:
    time = VirtualTime()
    backend = Reporting(time)
    timers = VirtualTimers(time)
    session = Session(backend, timers, Tickets("zookeeper", timers, 15.0))
    run_in_background(session.open())
    for _ in range(1000):
        assert session.remaining > TTL / 3
        time.advance(TTL / 100)
