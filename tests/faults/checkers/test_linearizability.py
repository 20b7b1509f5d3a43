from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordlock.model.claim import Claim, Mode, Permit
from coordlock.testing.faults.events import Reach
from coordlock.testing.faults.linearizability import linearizability
from coordlock.testing.faults.mutex import Acquire, FencedMutex, Release
from coordlock.testing.faults.search import Call, Decision, linearize
from tests.faults.checkers.story import BOUNDS, Story, broken

Calls = list[Call[Acquire | Release]]
LIMIT = 100_000


def search(calls: Calls, limit: int = LIMIT) -> Decision:
    return linearize(calls, FencedMutex(), FencedMutex.step, limit).decision


def orders(calls: Calls) -> Iterator[tuple[Call[Acquire | Release], ...]]:
    """All orders that time allows, by the definition."""
    for order in permutations(calls):
        if not any(
            later.returned < earlier.invoked
            for place, later in enumerate(order)
            for earlier in order[:place]
        ):
            yield order


def explains(order: tuple[Call[Acquire | Release], ...]) -> bool:
    state: FencedMutex | None = FencedMutex()
    for one in order:
        assert state is not None
        state = state.step(one.operation)
        if state is None:
            return False
    return True


@st.composite
def some_calls(draw: st.DrawFn) -> Calls:
    """A few calls of a few clients: each acquires, then perhaps releases.

    Times are small, so that many calls overlap and some share a moment.
    """
    claims: list[list[Claim]] = [[Mode.EX], [Mode.EX, Mode.PR], [Permit(2)], [Mode.PR, Mode.CW]]
    kinds = draw(st.sampled_from(claims))
    calls: Calls = []
    for number in range(draw(st.integers(1, 4))):
        name, claim = f"attempt{number}", draw(st.sampled_from(kinds))
        times = sorted(draw(st.lists(st.integers(0, 12), min_size=4, max_size=4)))
        calls.append(Call(times[0], times[1], Acquire(name, claim, draw(st.integers(1, 6)))))
        if draw(st.booleans()):
            calls.append(Call(times[2], times[3], Release(name)))
    return calls[:6]


@settings(max_examples=400)
@given(some_calls())
def test_the_search_finds_what_trying_all_orders_finds(calls: Calls) -> None:
    expected = any(explains(order) for order in orders(calls))
    assert (search(calls) is Decision.LINEARIZABLE) is expected


@given(some_calls())
def test_the_order_in_which_calls_are_given_does_not_matter(calls: Calls) -> None:
    assert search(calls) is search(calls[::-1])


def held(name: str, start: int, end: int, token: int, claim: Claim = Mode.EX) -> Calls:
    """Acquired within a moment from ``start`` on, released within one from ``end`` on."""
    return [
        Call(start, start + 1, Acquire(name, claim, token)),
        Call(end, end + 1, Release(name)),
    ]


def test_one_after_the_other_is_right() -> None:
    assert search(held("a", 0, 5, 1) + held("b", 7, 9, 2)) is Decision.LINEARIZABLE
    assert search(held("a", 0, 5, 1) + held("b", 6, 9, 2)) is Decision.LINEARIZABLE


def test_two_at_a_time_are_wrong() -> None:
    calls = held("a", 0, 5, 1) + held("b", 3, 9, 2)
    outcome = linearize(calls, FencedMutex(), FencedMutex.step, LIMIT)
    assert outcome.decision is Decision.NOT_LINEARIZABLE
    assert outcome.longest == 1
    assert outcome.state.holders == {("a", Mode.EX)}
    assert set(outcome.stuck) == {Acquire("b", Mode.EX, 2)}


def test_how_far_an_order_gets_is_told_though_somebody_waits_all_the_time() -> None:
    calls: Calls = [Call(0, 99, Acquire("last", Mode.EX, 9))]
    calls += [*held("a", 0, 5, 1), *held("b", 7, 20, 2), *held("c", 8, 12, 3)]
    outcome = linearize(calls, FencedMutex(), FencedMutex.step, LIMIT)
    assert outcome.decision is Decision.NOT_LINEARIZABLE
    assert outcome.longest == 3
    assert outcome.state.holders == {("b", Mode.EX)}


def test_tokens_in_the_wrong_order_are_wrong() -> None:
    assert search(held("a", 0, 5, 2) + held("b", 7, 9, 1)) is Decision.NOT_LINEARIZABLE
    assert search(held("a", 0, 5, 2) + held("b", 7, 9, 2)) is Decision.NOT_LINEARIZABLE
    readers = held("a", 0, 5, 2, Mode.PR) + held("b", 7, 9, 1, Mode.PR)
    assert search(readers) is Decision.LINEARIZABLE
    permits = held("a", 0, 5, 2, Permit(2)) + held("b", 7, 9, 1, Permit(2))
    assert search(permits) is Decision.LINEARIZABLE


@st.composite
def some_unanswered(draw: st.DrawFn) -> tuple[Calls, list[int]]:
    """Calls, and the places of releases among them that may come at any time or never."""
    calls = draw(some_calls())
    releases = [place for place, one in enumerate(calls) if isinstance(one.operation, Release)]
    return calls, draw(st.lists(st.sampled_from(releases), unique=True)) if releases else []


@settings(max_examples=400)
@given(some_unanswered())
def test_an_end_that_may_come_at_any_time_or_never_may_be_taken_to_come_at_once(
    given: tuple[Calls, list[int]],
) -> None:
    """What `linearizability` does with them, against the definition."""
    calls, places = given
    expected = False
    for number in range(len(places) + 1):
        for never in combinations(places, number):
            some = [
                replace(one, returned=99) if place in places else one
                for place, one in enumerate(calls)
                if place not in never
            ]
            expected = expected or any(explains(order) for order in orders(some))
    for place in places:
        calls[place] = replace(calls[place], returned=calls[place].invoked)
    assert (search(calls) is Decision.LINEARIZABLE) is expected


def test_permits_are_as_many_as_there_are() -> None:
    two = held("a", 0, 9, 1, Permit(2)) + held("b", 0, 9, 2, Permit(2))
    assert search(two) is Decision.LINEARIZABLE
    assert search(two + held("c", 5, 9, 3, Permit(2))) is Decision.NOT_LINEARIZABLE


def test_long_histories_need_no_recursion_and_not_much_more_states_than_calls() -> None:
    """Also when somebody waits during all of it, and when many wait."""
    calls: Calls = [Call(0, 10**6, Acquire("last", Mode.EX, 10**6))]
    for number in range(5000):
        # Everybody asks ten turns before his own.
        at = number * 10
        calls.append(Call(max(0, at - 100), at + 1, Acquire(f"a{number}", Mode.EX, number + 1)))
        calls.append(Call(at + 7, at + 8, Release(f"a{number}")))
    outcome = linearize(calls, FencedMutex(), FencedMutex.step, LIMIT)
    assert outcome.decision is Decision.LINEARIZABLE
    assert outcome.states <= len(calls) + 1


def hard(number: int) -> Calls:
    """Readers who all overlap, and a writer before they release: all sets of readers are tried."""
    readers: Calls = [Call(0, 100, Acquire(f"r{one}", Mode.CR, one + 1)) for one in range(number)]
    return readers + held("a", 101, 110, number + 1)


def test_a_search_that_takes_too_long_is_undecided_and_never_passes() -> None:
    assert search(hard(8)) is Decision.NOT_LINEARIZABLE
    assert search(hard(40), limit=1000) is Decision.UNDECIDED
    assert search(held("a", 0, 5, 1), limit=1) is Decision.UNDECIDED


# The checker


def test_a_search_that_was_given_up_is_a_violation() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    bounds = replace(BOUNDS, states=2)
    (found,) = linearizability(story.history(), bounds)
    assert type(found).__name__ == "Undecided"
    assert "a: undecided after 2 states" in str(found)
    assert broken(story) == []


def test_who_holds_and_who_is_stuck_is_told() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=30)
    story.attempt("c2", 6, invoked=2, granted=21, released=25)
    (found,) = linearizability(story.history(), BOUNDS)
    assert str(found).splitlines()[0] == (
        "NotLinearizable: a: of 4 calls no more than 1 can be put in an order; then attempt1 "
        "(token 5) holds it, and what comes next is of attempt2 (token 6)"
    )


def test_a_loss_and_a_death_end_a_hold_when_they_are_told_or_later() -> None:
    for at, right in ((21, True), (23, False)):
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=1, granted=10, lost=at)
        story.attempt("c2", 6, invoked=2, granted=22, released=25)
        assert (linearizability(story.history(), BOUNDS) == []) is right
        story = Story(truth=False)
        story.attempt("c1", 5, invoked=1, granted=10)
        story.attempt("c2", 6, invoked=2, granted=22, released=25)
        story.fault(Reach.KILLED, at, at, "c1")
        assert (linearizability(story.history(), BOUNDS) == []) is right


def test_who_is_granted_while_it_is_being_killed_holds_for_no_time() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=20)
    story.attempt("c2", 6, invoked=2, granted=21)
    story.fault(Reach.KILLED, 19, 22, "c2")
    story.attempt("c3", 7, invoked=3, granted=25, released=30)
    assert linearizability(story.history(), BOUNDS) == []


def test_attempts_without_an_answer_or_with_an_error_are_nobodys_way() -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, failed=30)
    story.attempt("c3", 7, invoked=1, enqueued=3)
    story.attempt("c2", 6, invoked=2, granted=22, released=25)
    assert linearizability(story.history(), BOUNDS) == []


@pytest.mark.parametrize("reach", Reach)
def test_it_decides_histories_in_which_holders_run_and_nothing_is_taken_from_them(
    reach: Reach,
) -> None:
    story = Story(truth=False)
    story.attempt("c1", 5, invoked=1, granted=10, released=22)
    story.attempt("c2", 6, invoked=2, granted=21, released=30)
    story.fault(reach, 5, 40, "c1" if reach is not Reach.OPERATOR else "a")
    decided = reach in {Reach.SERVERS, Reach.NETWORK, Reach.CLOCKS}
    assert ("NotLinearizable" in broken(story)) is decided
