"""What can happen to clients on a bad day, as rules from which hypothesis makes one up."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from typing import ClassVar

from coordlock_memory import Fault, VirtualTime
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from coordlock.errors import (
    AcquireTimeout,
    BackendUnavailable,
    ClientClosed,
    Evicted,
    SessionLost,
    WaitCancelled,
)
from coordlock.model.contender import Contender
from coordlock.runtime.log import flush
from tests.simulation.world import TTL, Network, Party, World

__all__ = ["HONEST", "PARTIES", "BadDay", "BadDayForData", "delays", "indices", "search"]

PARTIES = 4
#: How an acquire may end without a grant.
HONEST = (
    WaitCancelled,
    AcquireTimeout,
    BackendUnavailable,
    SessionLost,
    Evicted,
    ClientClosed,
    asyncio.CancelledError,
)

indices = st.integers(0, 1000)
delays = st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0, 3.0, 6.0, 14.0])


def search(machine: type[BadDay], days: int = 2000) -> None:
    """Live through up to ``days`` bad days, the same ones every time, until one raises."""
    run_state_machine_as_test(
        seed(0)(machine),
        settings=settings(
            max_examples=days,
            stateful_step_count=40,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            derandomize=False,
            database=None,
        ),
    )


class WatchedTime(VirtualTime):
    """Virtual time with somebody who looks after every event."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look

    def step(self, until: float = math.inf) -> bool:
        stepped = super().step(until)
        self.look()
        return stepped


class Complaints(logging.Handler):
    """Keeps what the kernel or a future complained of."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


class BadDay(RuleBasedStateMachine):
    """Pauses, partitions, lost and late requests, expiries and evictions of a few processes."""

    #: The queue whose first ones `overtake` stops.
    overtaken: ClassVar[str] = "q"
    #: How the processes are connected.
    network: ClassVar[type[Network]] = Network

    def __init__(self) -> None:
        super().__init__()
        self.world = World(WatchedTime(self.check))
        #: Contenders that an operator removed: their owners cannot know before they are told.
        self.removed: set[int] = set()
        self.complaints = Complaints()
        for name in ("coordlock", "concurrent.futures"):
            logging.getLogger(name).addHandler(self.complaints)

    @initialize()
    def connect(self) -> None:
        for _ in range(PARTIES):
            self.world.party(TTL, network=self.network)

    @rule(seconds=delays)
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(who=indices, seconds=st.sampled_from([0.1, 3.0, 10.0, 15.0, 20.0]), stay=st.booleans())
    def pause(self, who: int, seconds: float, stay: bool) -> None:
        party = self.pick(who)
        party.pause()
        if not stay:
            self.world.advance(seconds)
            party.resume()
        self.check()

    @rule(
        many=st.integers(1, 2),
        paused=st.booleans(),
        seconds=st.sampled_from([10.0, 15.0, 20.0]),
    )
    def overtake(self, many: int, paused: bool, seconds: float) -> None:
        """The first in the queue stand still or are cut off, past their lease."""
        first = {one.session for one in self.world.queue(self.overtaken)[:many]}
        for party in self.world.parties:
            if party.network._session in first and not party.engine.closed:
                party.pause() if paused else party.cut_off()
        self.world.advance(seconds)

    @rule()
    def resume(self) -> None:
        for party in self.world.parties:
            party.resume()
        self.check()

    @rule(who=indices, seconds=st.sampled_from([0.1, 3.0, 10.0, 15.0, 20.0]), stay=st.booleans())
    def cut_off(self, who: int, seconds: float, stay: bool) -> None:
        party = self.pick(who)
        if not party.engine.closed:
            party.cut_off()
            if not stay:
                self.world.advance(seconds)
                party.heal()

    @rule()
    def heal(self) -> None:
        for party in self.world.parties:
            if not party.engine.closed:
                party.heal()

    @rule(who=indices, longest=st.sampled_from([0.0, 0.05, 0.5, 4.0]), seed=indices)
    def slow_down(self, who: int, longest: float, seed: int) -> None:
        dice = random.Random(seed)
        self.pick(who).network.faults.latency = lambda: dice.uniform(0, longest)

    @rule(
        who=indices,
        method=st.sampled_from(["enqueue", "enqueue", "withdraw", "snapshot", "heartbeat", "open"]),
        fault=st.sampled_from(Fault),
        times=st.integers(1, 3),
    )
    def spoil(self, who: int, method: str, fault: Fault, times: int) -> None:
        self.pick(who).network.faults.inject(method, fault, times)

    @rule(which=indices, how=st.sampled_from(["evict", "evict", "expire"]))
    def interfere(self, which: int, how: str) -> None:
        queue = self.world.everybody()
        if queue and which % 2:
            contender = queue[which % len(queue)]
            if how == "evict":
                self.remove(contender)
            else:
                self.expire(contender.session)
            self.check()

    def remove(self, contender: Contender) -> None:
        """As an operator does."""
        self.removed.add(contender.order)
        self.world.service.remove(contender)

    def expire(self, session: str) -> None:
        """Before its time."""
        self.removed |= {one.order for one in self.world.everybody() if one.session == session}
        self.world.service.expire(session)

    def check(self) -> None:
        """What must hold. Called after every single event."""
        raise NotImplementedError

    def get_over(self) -> None:
        """Let what must hold at the end hold: everybody is served, and nothing is left."""
        raise NotImplementedError

    def teardown(self) -> None:
        """The bad day ends."""
        try:
            for party in self.world.parties:
                party.network.faults.latency = lambda: 0.01
                party.resume()
                if party.network.faults.partitioned:
                    party.network.faults.heal()
            self.get_over()
            assert self.world.everybody() == []
            assert self.world.watches() == 0
            assert not any(party.engine.tickets for party in self.world.parties)
            assert flush(30)
            assert self.complaints.heard == []
        finally:
            for name in ("coordlock", "concurrent.futures"):
                logging.getLogger(name).removeHandler(self.complaints)

    def pick(self, who: int) -> Party:
        return self.world.parties[who % len(self.world.parties)]


class BadDayForData(BadDay):
    """A bad day on which what is read and written beside the queues is lost and late, too."""

    @rule(
        who=indices,
        method=st.sampled_from(["write", "write", "read", "follow", "follow", "snapshot"]),
        fault=st.sampled_from(Fault),
        times=st.integers(1, 3),
    )
    def spoil_data(self, who: int, method: str, fault: Fault, times: int) -> None:
        self.pick(who).network.faults.inject(method, fault, times)
