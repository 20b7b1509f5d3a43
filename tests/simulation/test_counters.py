"""A counter that several clients add to on a bad day: each addition is made once, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from coordlock.errors import BackendUnavailable
from coordlock.recipes.counter import Counter
from coordlock.recipes.shared import exactly_once
from tests.simulation.bad_day import HONEST, BadDayForData, delays, indices, search
from tests.simulation.world import Call, Party


class AddedTwice(AssertionError):
    """The counter has gone further than was asked for, or two had the same number of it."""


class Counting(BadDayForData):
    """Four processes that add one, with several additions at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call[int]] = []
        self.asked = 0

    @rule(crowd=st.lists(indices, min_size=1, max_size=6), seconds=delays)
    def add(self, crowd: list[int], seconds: float) -> None:
        for who in crowd:
            party = self.pick(who)
            if not party.paused:
                self.asked += 1
                self.calls.append(party.run(added(party)))
        self.world.advance(seconds)

    @rule(which=indices)
    def give_up(self, which: int) -> None:
        under_way = [call for call in self.calls if not call.done]
        if under_way:
            under_way[which % len(under_way)].cancel()

    def check(self) -> None:
        """What is seen of a day in which requests are on their way is judged at its end."""

    def get_over(self) -> None:
        self.world.advance(300.0)  # late requests, too
        numbers = []
        for call in self.calls:
            assert call.done
            if call.error is None:
                numbers.append(call.result)
            else:
                assert isinstance(call.error, HONEST), call.error
        certain = sum(
            isinstance(call.error, BackendUnavailable) and "nothing was" in str(call.error)
            for call in self.calls
        )
        kept = self.world.service.read("/coordlock/@counters/").values.values()
        total = sum(json.loads(one.data)["value"] for one in kept)
        if len(set(numbers)) < len(numbers) or total > self.asked - certain:
            raise AddedTwice
        assert total >= len(numbers)
        assert all(0 < one <= total for one in numbers)


def added(party: Party) -> Any:
    return Counter(party.access, "n")._add()


@contextmanager
def remembering(writers: int) -> Iterator[None]:
    """Have records remember so many writers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactly_once, "_REMEMBERED", writers)
        yield


def test_no_fault_makes_a_counter_add_twice() -> None:
    run_state_machine_as_test(Counting, settings=settings(stateful_step_count=40))


def test_no_fault_makes_one_add_twice_that_remembers_a_single_writer() -> None:
    """Then others push a writer out all the time, and what cannot be told is said."""
    with remembering(1):
        run_state_machine_as_test(Counting, settings=settings(stateful_step_count=40))


def test_the_same_bad_days_add_twice_where_nobody_keeps_who_has_added() -> None:
    """The proof that the tests above can fail."""

    def without_writers(self: Any, writer: Any, value: Any, answer: Any) -> Any:
        return after(exactly_once._Content(value), exactly_once._Writer(), value, answer)

    after = exactly_once._Content.after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactly_once._Content, "after", without_writers)
        with pytest.raises(AddedTwice):
            search(Counting)
