"""What a client claims next: which clients meet, how long items wait, in which order one goes."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from coordlock.work.layout import LANES, ItemId, Layout, Serial
from coordlock.work.ready import WINDOW, Candidate, Ready
from coordlock.work.records import Lane, Record, State, Tail
from coordlock.work.store import Outcome

LAYOUT = Layout("/root", "q")


class Queue:
    """A queue with items, and the lanes as the service has them."""

    def __init__(self, items: int) -> None:
        self.tail = items + 1
        self.lanes = [Lane.new(lane) for lane in range(LANES)]

    @property
    def state(self) -> State:
        return State(Tail(self.tail), 1, tuple(self.lanes), 0)

    def claim(self, candidate: Candidate) -> Outcome:
        """What comes of the claim."""
        lane = candidate.lane
        assert lane is not None
        if self.lanes[lane.lane] != lane:
            return Outcome.REFUSED
        self.lanes[lane.lane] = lane.after
        return Outcome.MADE

    @property
    def first(self) -> int:
        """The smallest number that no client has claimed."""
        return min(lane.number for lane in self.lanes)


def client(queue: Queue, seed: int = 0) -> Ready:
    ready = Ready(LAYOUT, random.Random(seed).randrange)
    ready.learn(queue.state, 0.0)
    return ready


def numbers(ready: Ready, count: int) -> list[int | None]:
    """Of the next candidates, whose claims stay under way."""
    chosen = [ready.choose(0.0) for _ in range(count)]
    return [None if one is None else one.before.id.number for one in chosen]


@given(st.integers(0, 300))
def test_a_consumer_that_is_alone_keeps_the_order(items: int) -> None:
    queue, taken = Queue(items), []
    ready = client(queue)
    while (candidate := ready.choose(0.0)) is not None:
        ready.ended(candidate, queue.claim(candidate), 0.0)
        taken.append(candidate.before.id.number)
    assert taken == list(range(1, items + 1))


@settings(deadline=None)
@given(st.integers(2, LANES), st.integers(0, 2**32))
def test_several_consumers_claim_each_item_once_and_soon_meet_seldom(
    consumers: int, seed: int
) -> None:
    dice = random.Random(seed)
    queue = Queue(40 * LANES)
    crowd = [client(queue, dice.randrange(1000)) for _ in range(consumers)]
    taken: list[int] = []
    refused = idle = 0
    while idle < consumers:
        ready = dice.choice(crowd)
        candidate = ready.choose(0.0)
        if candidate is None or dice.random() < 0.1:
            if candidate is not None:
                ready.ended(candidate, Outcome.UNCLEAR, 0.0)
            ready.learn(queue.state, 0.0)
            candidate = ready.choose(0.0)
        if candidate is None:
            idle += 1
            continue
        outcome, first = queue.claim(candidate), queue.first
        ready.ended(candidate, outcome, 0.0)
        if outcome is Outcome.MADE:
            assert candidate.before.id.number < first + 5 * WINDOW
            taken.append(candidate.before.id.number)
        else:
            ready.learn(queue.state, 0.0)
            refused += 1
    assert sorted(taken) == list(range(1, queue.tail))
    assert refused < len(taken) / 2


def test_two_calls_of_one_client_never_claim_the_same_number() -> None:
    assert numbers(client(Queue(3)), 4) == [1, 2, 3, None]


def test_what_was_claimed_or_delayed_comes_before_new_items_in_the_order_in_which_it_is_due() -> (
    None
):
    ready = client(Queue(1))
    due = {Serial(ItemId(7), 1): ("/7", Record(2.0)), Serial(ItemId(9), 1): ("/9", Record(1.0))}
    ready.learn_due(0, due, 3.0, 0.0)
    assert ready.count == 3
    assert numbers(ready, 4) == [9, 7, 1, None]
