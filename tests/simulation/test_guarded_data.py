"""A number in the service that is counted up under the lock, on a bad day.

No write expects a version and nobody asks whether he still holds the lock: the guard alone has to
refuse those who are too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from coordlock_memory import Fault
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from coordlock.backend import Operation, Put, Written
from coordlock.errors import BackendUnavailable, LockLost
from coordlock.kernel.acquisition import acquisition
from coordlock.locks.grant import Grant
from coordlock.model.claim import Claim, Mode
from coordlock.model.contender import Contender
from coordlock.runtime.clock import sleep
from coordlock.runtime.driver import Steps
from tests.simulation.bad_day import HONEST, BadDay, delays, indices, search
from tests.simulation.world import Call, Party

KEY = "/number"

jobs = st.tuples(indices, st.sampled_from([Mode.EX, Mode.PW]), st.sampled_from([0.0, 0.3, 3.0, 20]))


class UpdateLost(AssertionError):
    """Somebody wrote over what he had not seen."""


class Guarded(BadDay):
    """Four processes that read the number, think, and write one more."""

    guarded: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call[None]] = []
        self.acknowledged: list[int] = []
        self.unknown = 0
        #: The token of each write that was made.
        self.accepted: list[int] = []
        self.lost = self.stale = False
        service: Any = self.world.service
        self.do_write = service.write
        service.write = self.write
        if not self.guarded:
            service._admit = lambda _: None

    @property
    def number(self) -> int:
        stored = self.world.service._state.data.get(KEY)
        return 0 if stored is None else int(stored.data)

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> Written:
        """The service's, which is looked at here."""
        (contender,) = guards
        before = self.number
        written: Written = self.do_write(operations, guards)
        # Who is called here may be a client, or a timer: neither passes an assertion on.
        self.lost |= self.number != before + 1
        assert contender.token is not None
        self.stale |= contender.token < max(self.accepted, default=0)
        self.accepted.append(contender.token)
        return written

    @rule(crowd=st.lists(jobs, min_size=1, max_size=4), seconds=delays)
    def work(self, crowd: list[tuple[int, Claim, float]], seconds: float) -> None:
        for who, claim, pause in crowd:
            party = self.pick(who)
            if not party.paused and sum(not call.done for call in self.calls) < 10:
                self.calls.append(party.run(self.count_up(party, claim, pause)))
        self.world.advance(seconds)

    @rule(who=indices, method=st.sampled_from(["read", "write"]), fault=st.sampled_from(Fault))
    def spoil_data(self, who: int, method: str, fault: Fault) -> None:
        self.pick(who).network.faults.inject(method, fault)

    def count_up(self, party: Party, claim: Claim, pause: float) -> Steps[None]:
        ticket = yield from acquisition(party.engine, {"q": claim})
        grant = party.grant(ticket)
        vars(grant)["check"] = lambda: None
        yield from self._count_up(party, grant, pause)
        yield party.run(grant._release(None)).outcome

    def _count_up(self, party: Party, grant: Grant, pause: float) -> Steps[None]:
        try:
            found = yield party.run(grant._read(KEY)).outcome
            number = 1 if found is None else int(found.data) + 1
            yield sleep(party.process, pause)
            yield party.run(grant._commit([Put(KEY, b"%d" % number)])).outcome
            self.acknowledged.append(number)
        except LockLost:
            pass
        except BackendUnavailable:
            # What may still come, comes under the guard of a contender that is withdrawn next.
            self.unknown += 1

    def check(self) -> None:
        if self.lost:
            raise UpdateLost
        assert not (self.stale and self.guarded), "an older token was accepted"

    def get_over(self) -> None:
        for _ in range(100):
            self.world.advance(20.0)
            if all(call.done for call in self.calls):
                break
        self.world.advance(300.0)  # late requests, too
        for call in self.calls:
            assert call.done
            assert call.error is None or isinstance(call.error, HONEST), call.error
        self.check()
        assert len(self.accepted) == self.number
        assert len(set(self.acknowledged)) == len(self.acknowledged)
        assert len(self.acknowledged) <= self.number <= len(self.acknowledged) + self.unknown


class Unguarded(Guarded):
    guarded = False


def test_no_fault_makes_a_guarded_write_come_after_a_later_holders() -> None:
    run_state_machine_as_test(Guarded, settings=settings(stateful_step_count=40))


def test_the_same_bad_days_lose_updates_without_the_guard() -> None:
    """The proof that the test above can fail."""
    with pytest.raises(UpdateLost):
        search(Unguarded)
