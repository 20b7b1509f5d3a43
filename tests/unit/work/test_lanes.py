"""Lanes: who meets whom, who waits for how long, and in which order one consumer goes."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from coordlock.work.lanes import WINDOW, Lane, Lanes, first_number
from coordlock.work.layout import LANES


class Queue:
    """A queue with items, and the lanes as the service has them."""

    def __init__(self, items: int) -> None:
        self.tail = items + 1
        self.lanes = [Lane(lane, first_number(lane), 0) for lane in range(LANES)]

    def claim(self, lane: Lane) -> bool:
        """Whether the claim is made."""
        if self.lanes[lane.lane] != lane:
            return False
        self.lanes[lane.lane] = lane.after
        return True

    @property
    def first(self) -> int:
        """The smallest number that nobody has claimed."""
        return min(one.number for one in self.lanes)


@given(st.integers(0, 300))
def test_a_consumer_that_is_alone_keeps_the_order(items: int) -> None:
    queue, lanes, taken = Queue(items), Lanes(random.Random(0).randrange), []
    lanes.learn(queue.lanes, queue.tail, 0.0)
    while (lane := lanes.choose()) is not None:
        assert queue.claim(lane)
        lanes.taken(lane)
        taken.append(lane.number)
    assert taken == list(range(1, items + 1))


@settings(deadline=None)
@given(st.integers(2, LANES), st.integers(0, 2**32))
def test_several_consumers_claim_each_item_once_and_soon_meet_seldom(
    consumers: int, seed: int
) -> None:
    dice = random.Random(seed)
    queue = Queue(40 * LANES)
    crowd = [Lanes(dice.randrange) for _ in range(consumers)]
    taken: list[int] = []
    refused = idle = 0
    while idle < consumers:
        lanes = dice.choice(crowd)
        lanes.learn(queue.lanes, queue.tail, 0.0) if dice.random() < 0.1 else None
        lane = lanes.choose()
        if lane is None:
            lanes.learn(queue.lanes, queue.tail, 0.0)
            lane = lanes.choose()
        if lane is None:
            idle += 1
        elif queue.claim(lane):
            assert lane.number < queue.first + 5 * WINDOW
            lanes.taken(lane)
            taken.append(lane.number)
        else:
            lanes.refused(lane, 0.0)
            lanes.learn(queue.lanes, queue.tail, 0.0)
            refused += 1
    assert sorted(taken) == list(range(1, queue.tail))
    assert refused < len(taken) / 2


def test_after_a_refusal_a_client_goes_on_in_a_lane_that_nobody_serves() -> None:
    for seed in range(20):
        queue, lanes = Queue(8 * LANES), Lanes(random.Random(seed).randrange)
        lanes.learn(queue.lanes, queue.tail, 0.0)
        lane = lanes.choose()
        assert lane is not None
        for served in queue.lanes[:-2]:
            assert queue.claim(served)
        lanes.refused(lane, 0.0)
        lanes.learn(queue.lanes, queue.tail, 0.0)
        lane = lanes.choose()
        assert lane is not None
        assert lane.lane >= LANES - 2


def test_two_calls_of_one_client_never_claim_the_same_number() -> None:
    queue, lanes = Queue(3), Lanes(random.Random(0).randrange)
    lanes.learn(queue.lanes, queue.tail, 0.0)
    chosen = [lanes.choose() for _ in range(4)]
    assert [one and one.number for one in chosen] == [1, 2, 3, None]


def test_an_old_reading_changes_nothing() -> None:
    queue, lanes = Queue(2 * LANES), Lanes(random.Random(0).randrange)
    before = list(queue.lanes)
    lanes.learn(before, queue.tail, 0.0)
    lane = lanes.choose()
    assert lane is not None
    lanes.taken(lane)
    lanes.learn(before, queue.tail, 0.0)
    assert [one.number for _ in range(3) if (one := lanes.choose())] == [2, 3, 4]
    assert lanes.is_alone


def test_a_client_is_alone_again_when_nobody_else_claims_for_a_second() -> None:
    queue, lanes = Queue(LANES), Lanes(random.Random(0).randrange)
    lanes.learn(queue.lanes, queue.tail, 0.0)
    lane = lanes.choose()
    assert lane is not None
    lanes.refused(lane, 0.0)
    lanes.learn(queue.lanes, queue.tail, 0.5)
    assert not lanes.is_alone
    lanes.learn(queue.lanes, queue.tail, 1.0)
    assert lanes.is_alone
