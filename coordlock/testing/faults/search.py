"""The search for a linearization: one order that explains what everybody was told.

Wing and Gong, "Testing and verifying concurrent objects", 1993: of the calls that no other one
precedes, take one whose answer fits, and go on; go back where none fits. Lowe, "Testing for
linearizability", 2017: never visit the same set of calls with the same state twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

__all__ = ["Call", "Decision", "Outcome", "linearize"]

S = TypeVar("S", bound=Hashable)
O = TypeVar("O")  # noqa: E741


class Decision(Enum):
    """What a search says."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Call(Generic[O]):
    """An operation, with the moments of its invocation and its return.

    ``returned`` is None while it is pending: then it may take effect at any time, or never.
    """

    invoked: int
    returned: int | None
    operation: O


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S, O]):
    """The result of a search.

    Attributes:
        decision: what was found.
        states: how many pairs of a set of calls and a state were visited.
        longest: how many calls the longest order explains.
        state: the state after those.
        stuck: the calls of which one had to come next then, and none could.
    """

    decision: Decision
    states: int
    longest: int
    state: S
    stuck: tuple[O, ...]


def linearize(
    calls: Sequence[Call[O]], initial: S, step: Callable[[S, O], S | None], limit: int
) -> Outcome[S, O]:
    """Search for an order of ``calls`` in which each one fits to the state before it.

    ``step`` gives the state after an operation, or None where it does not fit. A call precedes
    another when it had returned before that was invoked, and must come before it; calls of one
    moment are in no order. All that returned are in the order, pending ones may be.

    Gives up after visiting ``limit`` states. What it costs is the number of sets of calls that
    can be in an order's beginning: linear in the calls if few overlap, exponential in how many do.
    """
    done = sorted((one for one in calls if one.returned is not None), key=lambda one: one.invoked)
    ends = [one.returned or 0 for one in done]
    pending = [one for one in calls if one.returned is None]
    # A set of calls: all the first ones, those among the others by bits, pending ones by bits.
    start = (0, 0, 0, initial)
    stack = [start]
    seen: set[tuple[int, int, int, S]] = set()
    deepest, longest = start, -1
    while stack:
        first, others, taken, state = here = stack.pop()
        if here in seen:
            continue
        if len(seen) >= limit:
            return _failed(Decision.UNDECIDED, len(seen), done, ends, deepest)
        seen.add(here)
        if first == len(done):
            return Outcome(Decision.LINEARIZABLE, len(seen), len(done), state, ())
        if (count := first + others.bit_count()) > longest:
            deepest, longest = here, count
        following: list[tuple[int, tuple[int, int, int, S]]] = []
        minimal, horizon = _minimal(done, ends, first, others)
        for number in minimal:
            if (after := step(state, done[number].operation)) is not None:
                there = _with(first, others, number)
                following.append((ends[number], (*there, taken, after)))
        for number, call in enumerate(pending):
            if taken >> number & 1 or call.invoked > horizon:
                continue
            if (after := step(state, call.operation)) is not None:
                following.append((horizon + 1, (first, others, taken | 1 << number, after)))
        # The likeliest comes last, to be taken first: what returned first.
        following.sort(key=lambda pair: -pair[0])
        stack.extend(one for _, one in following if one not in seen)
    return _failed(Decision.NOT_LINEARIZABLE, len(seen), done, ends, deepest)


def _minimal(
    done: list[Call[O]], ends: list[int], first: int, others: int
) -> tuple[list[int], int]:
    """The calls that are not in the set and that none such precedes; and the end of the first."""
    minimal: list[int] = []
    number, horizon = first, ends[first]
    while number < len(done) and done[number].invoked <= horizon:
        minimal.append(number)
        horizon = min(horizon, ends[number])
        number += 1
        number += _ones(others >> (number - first))
    return minimal, horizon


def _with(first: int, others: int, number: int) -> tuple[int, int]:
    """The set with ``number`` in it, too. One set has one form."""
    others |= 1 << (number - first)
    ones = _ones(others)
    return first + ones, others >> ones


def _ones(bits: int) -> int:
    """How many ones there are before the first zero, from the lowest bit on."""
    return (~bits & (bits + 1)).bit_length() - 1


def _failed(
    decision: Decision,
    states: int,
    done: list[Call[O]],
    ends: list[int],
    deepest: tuple[int, int, int, S],
) -> Outcome[S, O]:
    first, others, _, state = deepest
    minimal, _ = _minimal(done, ends, first, others)
    stuck = tuple(done[number].operation for number in minimal)
    return Outcome(decision, states, first + others.bit_count(), state, stuck)
