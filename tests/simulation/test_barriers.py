"""A barrier on a bad day: those who pass, pass together, and no other does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from coordlock.backend import Operation, Put
from coordlock.errors import Evicted, SessionLost, WaitTimeout
from coordlock.model.contender import Contender
from coordlock.recipes.shared.participant import Participant
from coordlock.recipes.shared.rendezvous import Rendezvous
from tests.simulation.bad_day import HONEST, BadDayForData, delays, indices, search
from tests.simulation.world import Call

SIZE = 3


class Apart(AssertionError):
    """Somebody has passed without the others, or heard that he has not passed though he has."""


class Meeting(BadDayForData):
    """Four processes with parties of a barrier of three."""

    #: Whether the service checks that the parties are there.
    guarded: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Participant, Call[None]]] = []
        #: The contenders of each generation.
        self.generations: list[tuple[Contender, ...]] = []
        service: Any = self.world.service
        self.do_write = service.write
        service.write = self.write

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> int:
        """The service's, which is looked at here."""
        revision: int = self.do_write(operations, guards if self.guarded else ())
        if any(isinstance(one, Put) for one in operations):
            self.generations.append(tuple(guards))
        return revision

    @rule(
        crowd=st.lists(
            st.tuples(indices, st.sampled_from([None, 0.0, 0.05, 1.0, 20.0])),
            min_size=1,
            max_size=4,
        ),
        seconds=delays,
    )
    def arrive(self, crowd: list[tuple[int, float | None]], seconds: float) -> None:
        for who, timeout in crowd:
            process = self.pick(who)
            under_way = sum(not call.done for _, call in self.calls)
            if not process.paused and under_way < 10:
                one = Participant(process.engine, Rendezvous("q", SIZE))
                self.calls.append((one, process.run(self.passing(one, timeout))))
        self.world.advance(seconds)

    def passing(self, one: Participant, timeout: float | None) -> Any:
        yield from one.arrive(timeout)
        one.leave()

    @rule(which=indices)
    def give_up(self, which: int) -> None:
        under_way = [call for _, call in self.calls if not call.done]
        if under_way:
            under_way[which % len(under_way)].cancel()

    def check(self) -> None:
        """What is seen of a day in which parties wait is judged at its end."""

    def get_over(self) -> None:
        self.world.advance(300.0)
        waiting = [call for _, call in self.calls if not call.done]
        assert len(waiting) < SIZE, "enough are there, and wait"
        for call in waiting:
            call.cancel()
        self.world.advance(300.0)  # late requests, too
        passed = [(one.id, one.order) for generation in self.generations for one in generation]
        if len(set(passed)) < len(passed):
            raise Apart
        for one, call in self.calls:
            assert call.done
            self.judge(one, call.error, set(passed))

    def judge(
        self, one: Participant, error: BaseException | None, passed: set[tuple[str, int]]
    ) -> None:
        ticket = one._ticket
        mine = {(each.id, each.order) for each in ticket.contenders} if ticket else set()
        if error is None:
            if one._generation - {id for id, _ in passed} or not mine & passed:
                raise Apart
        elif isinstance(error, WaitTimeout | SessionLost | Evicted):
            if mine & passed:
                raise Apart
        else:
            assert isinstance(error, HONEST), error


class Unguarded(Meeting):
    guarded = False


def test_no_fault_parts_those_who_pass_together() -> None:
    run_state_machine_as_test(Meeting, settings=settings(stateful_step_count=40))


@pytest.mark.long
def test_the_same_bad_days_part_them_where_nobody_checks_that_they_are_there() -> None:
    """The proof that the test above can fail."""
    with pytest.raises(Apart):
        search(Unguarded)
