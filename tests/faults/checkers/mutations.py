"""What can go wrong in a history that was right: each takes one and gives a broken one.

``None`` where a history has nothing to which it could happen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeVar

from coordlock_faults.attempt import Attempt
from coordlock_faults.events import (
    ContenderAppeared,
    ContenderDisappeared,
    Event,
    FinalSet,
    Granted,
    Kind,
    LossSignalled,
    OperationOffered,
    ReleaseAcknowledged,
    ReleaseSent,
)
from coordlock_faults.history import History
from coordlock_faults.operation import Operation
from coordlock_faults.overlap import conflict

from tests.faults.checkers.reference import BOUNDS, MS

E = TypeVar("E", bound=Event)
Events = list[Event]

#: Far more than any signal may be late.
LATE: Final = 100 * MS


class Impossible(Exception):
    """The history has nothing to which this could happen."""


@dataclass(frozen=True)
class Mutation:
    """``change`` breaks a history; one of ``caught`` must be found, and beside them ``also``."""

    change: Callable[[History, random.Random], Events]
    caught: frozenset[str]
    also: frozenset[str]


MUTATIONS: Final[dict[str, Mutation]] = {}


def mutation(
    caught: str, also: str = ""
) -> Callable[[Callable[[History, random.Random], Events]], None]:
    def enter(change: Callable[[History, random.Random], Events]) -> None:
        name = change.__name__.replace("_", " ")
        MUTATIONS[name] = Mutation(change, frozenset(caught.split()), frozenset(also.split()))

    return enter


def swapped(events: Sequence[Event], old: Event, new: Event | None) -> Events:
    """``events`` with ``new`` in the place of ``old``, or nothing."""
    return [one for event in events if (one := new if event is old else event) is not None]


def one_of(choices: Sequence[E], chance: random.Random) -> E:
    if not choices:
        raise Impossible
    return chance.choice(choices)


def successions(history: History) -> list[tuple[Attempt, Attempt]]:
    """Grants that exclude each other, each with the next one of its lock."""
    found: list[tuple[Attempt, Attempt]] = []
    for attempts in history.locks.values():
        granted = [(one.granted.at, one) for one in attempts if one.granted]
        granted.sort(key=lambda pair: pair[0])
        pairs = ((one, other) for (_, one), (_, other) in pairwise(granted))
        found += [pair for pair in pairs if conflict(pair[0].claim, pair[1].claim)]
    return found


def pair_of(
    history: History, chance: random.Random, fits: Callable[[Attempt, Attempt], Any]
) -> tuple[Attempt, Attempt]:
    pairs = [pair for pair in successions(history) if fits(*pair)]
    if not pairs:
        raise Impossible
    return chance.choice(pairs)


def quiet(history: History, one: Attempt) -> bool:
    """Whether nothing excuses what ``one`` does."""
    reaches = [fault.began.reach.name for fault in history.faults]
    return not {"PAUSED", "OPERATOR"} & set(reaches) and one.killed is None


@mutation("HeldTogether", "EarlyRemoval FalselyHeld")
def a_holder_that_goes_on_after_the_next_one_was_granted(
    history: History, chance: random.Random
) -> Events:
    one, other = pair_of(
        history,
        chance,
        lambda one, other: one.release_sent and quiet(history, one) and not one.lost,
    )
    assert one.release_sent
    assert other.granted
    late = replace(one.release_sent, at=other.granted.at + 1)
    events = swapped(history.events, one.release_sent, late)
    answer = one.release_answer
    # The answer moves along, so that it is not the answer to nothing.
    return swapped(events, answer, replace(answer, at=late.at + 1)) if answer else events


@mutation("HeldTogether", "Overtaken EarlyRemoval")
def a_grant_before_the_holders_release(history: History, chance: random.Random) -> Events:
    one, other = pair_of(
        history,
        chance,
        lambda one, other: (
            one.granted
            and one.end
            and quiet(history, one)
            and other.invoked.at < one.end.at - 1
            and (other.enqueued is None or other.enqueued.at < one.end.at - 1)
            and one.granted.at < one.end.at - 1
        ),
    )
    assert one.end
    assert other.granted
    return swapped(history.events, other.granted, replace(other.granted, at=one.end.at - 1))


@mutation(
    "Overtaken DisorderedTokens RepeatedToken",
    "NeverFirst EarlyRemoval FalselyHeld ForeignToken",
)
def two_grants_that_have_changed_their_tokens(history: History, chance: random.Random) -> Events:
    one, other = pair_of(
        history, chance, lambda one, other: quiet(history, one) and quiet(history, other)
    )
    assert one.granted
    assert other.granted
    first, second = one.granted.token, other.granted.token
    events = swapped(history.events, one.granted, replace(one.granted, token=second))
    return swapped(events, other.granted, replace(other.granted, token=first))


@mutation(
    "RepeatedToken",
    "DisorderedTokens Overtaken NeverFirst HeldTogether EarlyRemoval FalselyHeld ForeignToken",
)
def a_token_that_two_have(history: History, chance: random.Random) -> Events:
    one, other = pair_of(history, chance, lambda one, other: True)
    assert one.granted
    assert other.granted
    again = replace(other.granted, token=one.granted.token)
    return swapped(history.events, other.granted, again)


@mutation("ForeignToken", "Overtaken HeldTogether")
def a_token_that_is_not_the_services(history: History, chance: random.Random) -> Events:
    if not history.has_truth:
        raise Impossible
    granted = [one.granted for one in history.granted if one.granted and one.enqueued is None]
    one = one_of(granted, chance)
    # Between two revisions of the service, so that only the service knows.
    known = {life.appeared.token for life in history.truth.lives}
    if one.token + 1 in known:
        raise Impossible
    return swapped(history.events, one, replace(one, token=one.token + 1))


@mutation("StaleAccepted", "UnjustRefusal")
def an_operation_with_a_stale_token_that_was_accepted(
    history: History, chance: random.Random
) -> Events:
    late: list[OperationOffered] = []
    for resource in history.resources.values():
        newest = 0
        accepted = [one for one in resource.operations if one.accepted]
        for one in sorted(accepted, key=_order):
            if newest > 1:
                late.append(one.offered)
            if not one.offered.shared:
                newest = max(newest, one.token)
    stale = one_of(late, chance)
    return swapped(history.events, stale, replace(stale, token=1))


def _order(one: Operation) -> int:
    assert one.accepted
    return one.accepted.order


@mutation("LostAdd")
def an_acknowledged_add_that_is_lost(history: History, chance: random.Random) -> Events:
    finals = [event for event in history.events if isinstance(event, FinalSet)]
    acknowledged = {
        one.offered.value
        for resource in history.resources.values()
        for one in resource.operations
        if one.accepted is not None and one.offered.kind is Kind.ADD
    }
    final = one_of([one for one in finals if set(one.values) & acknowledged], chance)
    lost = chance.choice([value for value in final.values if value in acknowledged])
    rest = tuple(value for value in final.values if value != lost)
    return swapped(history.events, final, replace(final, values=rest))


@mutation("PhantomAdd")
def a_refused_add_that_was_made(history: History, chance: random.Random) -> Events:
    refused = [
        one.offered
        for resource in history.resources.values()
        for one in resource.operations
        if one.refused is not None and one.offered.kind is Kind.ADD
    ]
    one = one_of(refused, chance)
    final = next(
        event
        for event in history.events
        if isinstance(event, FinalSet) and event.resource == one.resource
    )
    assert one.value is not None
    more = replace(final, values=(*final.values, one.value))
    return swapped(history.events, final, more)


@mutation("LateSignal", "HeldTogether")
def a_loss_that_was_signalled_late(history: History, chance: random.Random) -> Events:
    losses = [
        one.lost
        for one in history.granted
        if one.lost
        and one.lost.reason == "expired"
        and one.lost.deadline is not None
        and history.faults.running(one.process, one.lost.deadline, BOUNDS.signal)
        == one.lost.deadline
        and history.faults.pause(one.process, one.lost.deadline, one.lost.at + LATE) is None
    ]
    one: LossSignalled = one_of(losses, chance)
    return swapped(history.events, one, replace(one, at=one.at + LATE))


@mutation("EarlyRemoval", "HeldTogether")
def a_deadline_that_is_later_than_the_services(history: History, chance: random.Random) -> Events:
    losses = []
    for one in history.granted:
        life = history.life(one)
        if life and one.lost and one.lost.reason == "expired" and life.disappeared:
            gone = history.times.not_after(life.gone)
            evicted = history.eviction(one, gone)
            if evicted is None and (one.killed is None or one.killed.at > gone):
                losses.append(replace(one.lost, deadline=gone + 1))
    new = one_of(losses, chance)
    old = history.attempts[new.attempt].lost
    assert old
    return swapped(history.events, old, new)


@mutation("Leaked", "NeverFirst Overtaken")
def a_contender_that_is_left_over(history: History, chance: random.Random) -> Events:
    gone = [one for one in history.events if isinstance(one, ContenderDisappeared)]
    return swapped(history.events, one_of(gone, chance), None)


@mutation("NeverFirst", "EarlyRemoval FalselyHeld")
def a_grant_of_who_was_gone_before_its_turn(history: History, chance: random.Random) -> Events:
    def fits(one: Attempt, other: Attempt) -> bool:
        first, second = history.life(one), history.life(other)
        return bool(first and second and second.appeared.revision < first.gone - 1)

    one, other = pair_of(history, chance, fits)
    first, second = history.life(one), history.life(other)
    assert first
    assert second
    assert second.disappeared
    early = replace(second.disappeared, revision=first.gone - 1)
    return swapped(history.events, second.disappeared, early)


@mutation("DisorderedTokens", "ForeignToken NeverFirst Overtaken HeldTogether")
def a_token_of_the_service_that_is_lower_than_one_before(
    history: History, chance: random.Random
) -> Events:
    lives = [
        after.appeared
        for before, after in pairwise(history.truth.lives)
        if before.appeared.lock == after.appeared.lock
    ]
    one: ContenderAppeared = one_of(lives, chance)
    return swapped(history.events, one, replace(one, token=1))


@mutation("Unanswered")
def a_waiter_that_is_never_answered(history: History, chance: random.Random) -> Events:
    failed = [one.failed for one in history.attempts.values() if one.failed and one.killed is None]
    return swapped(history.events, one_of(failed, chance), None)


@mutation("Unanswered")
def a_release_that_is_never_answered(history: History, chance: random.Random) -> Events:
    answers = [
        one.release_answer for one in history.granted if one.release_answer and not one.killed
    ]
    return swapped(history.events, one_of(answers, chance), None)


@mutation("FalselyLost")
def a_release_that_says_lost_of_what_was_held(history: History, chance: random.Random) -> Events:
    answers = [
        answer
        for one in history.granted
        if isinstance(answer := one.release_answer, ReleaseAcknowledged)
        and answer.held
        and one.granted
        and (one.granted.deadline or 0) > answer.at
        and not one.lost
        # Whose contender an operator removed, nobody knows without the ground truth.
        and (history.life(one) or not history.faults.all)
    ]
    untrue = one_of(answers, chance)
    return swapped(history.events, untrue, replace(untrue, held=False))


@mutation("FalselyHeld")
def a_release_that_says_held_of_what_was_lost(history: History, chance: random.Random) -> Events:
    lost = one_of([one.lost for one in history.granted if one.lost and not one.killed], chance)
    sent = ReleaseSent(lost.at + 1, lost.process, lost.attempt)
    answer = ReleaseAcknowledged(lost.at + 2, lost.process, lost.attempt, held=True)
    return [*history.events, sent, answer]


@mutation("UnjustRefusal")
def a_refusal_without_a_reason(history: History, chance: random.Random) -> Events:
    refused = [
        one.refused
        for resource in history.resources.values()
        for one in resource.operations
        if one.refused
    ]
    one = one_of(refused, chance)
    return swapped(history.events, one, replace(one, newest=2**62))


@mutation("Incomplete", "Unanswered")
def a_grant_that_nobody_wrote_down(history: History, chance: random.Random) -> Events:
    granted: list[Granted] = [
        one.granted for one in history.granted if one.granted and one.end and one.end != one.killed
    ]
    return swapped(history.events, one_of(granted, chance), None)


@mutation("Incomplete", "HeldTogether Missing EarlyRemoval")
def a_release_that_nobody_wrote_down(history: History, chance: random.Random) -> Events:
    sent: list[ReleaseSent] = [
        one.release_sent for one in history.granted if one.release_sent and one.release_answer
    ]
    return swapped(history.events, one_of(sent, chance), None)
