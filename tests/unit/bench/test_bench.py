"""What the benchmark's figures rest on: its statistics, its turns, its workers."""

from __future__ import annotations

import pytest

from bench.contended import _SECONDS, _rate, _unfairness
from bench.contestants import ENTRANTS
from bench.field import in_turns
from bench.figures import Spread, percentile, ratios


def test_a_percentile_is_the_smallest_sample_that_so_many_do_not_exceed() -> None:
    samples = list(range(100, 0, -1))
    assert percentile(samples, 99) == 99
    assert percentile(samples, 50) == 50
    assert percentile([7.0], 99) == 7.0


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was ten times as slow in the second round, for both.
    assert ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == Spread(2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="argument 2 is longer"):
        ratios([1.0], [1.0, 2.0])


def test_a_lock_is_unfair_by_its_longest_wait() -> None:
    assert _unfairness([[(0.0, 0.1), (0.1, 0.1)], [(0.2, 0.1), (0.3, 0.5)]]) == pytest.approx(5)


def test_grants_after_the_end_count_for_the_waits_alone() -> None:
    grants = [[(0.0, 0.1), (_SECONDS + 0.1, 0.4)], [(0.2, 0.1)]]
    assert _rate(grants) == pytest.approx(2 / _SECONDS)
    assert _unfairness(grants) == pytest.approx(4)


def test_each_takes_part_in_every_round_and_goes_first_in_turn() -> None:
    three = list(ENTRANTS[:3])
    order = [one for _, one in in_turns(three, 1)]  # later ones go by the time that each has taken
    assert order[:3] == three
    assert order[3:] == [three[1], three[2], three[0]]
