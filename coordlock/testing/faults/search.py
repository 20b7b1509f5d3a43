"""The search for a linearization: one order that explains all answers.

Wing and Gong, "Testing and verifying concurrent objects", 1993: of the calls that no other one
precedes, take one whose answer fits, and go on; go back where none fits. Lowe, "Testing for
linearizability", 2017: never visit the same set of calls with the same state twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
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
    """An operation, with the moments of its invocation and its return."""

    invoked: int
    returned: int
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
    """Search for an order of all ``calls`` in which each one fits to the state before it.

    ``step`` gives the state after an operation, or None where it does not fit. A call precedes
    another when it had returned before that was invoked, and must come before it; calls of one
    moment are in no order.

    Gives up after visiting ``limit`` states. What it costs is the number of sets of calls that
    can be in an order's beginning: linear in the calls if few overlap, exponential in how many do.
    """
    ordered = sorted(calls, key=lambda one: one.invoked)
    # A set of calls: all before the first that is not in it, and of those after it some, by bits.
    start = (0, 0, initial)
    seen: set[tuple[int, int, S]] = set()
    deepest, longest = start, -1

    def following(first: int, others: int, state: S) -> Iterator[tuple[int, int, S]]:
        """What can come next, the likeliest first: what returned first."""
        minimal = _minimal(ordered, first, others)
        for number in sorted(minimal, key=lambda number: ordered[number].returned):
            after = step(state, ordered[number].operation)
            if after is not None:
                yield (*_with(first, others, number), after)

    def failed(decision: Decision) -> Outcome[S, O]:
        first, others, state = deepest
        stuck = tuple(ordered[number].operation for number in _minimal(ordered, first, others))
        return Outcome(decision, len(seen), longest, state, stuck)

    path = [iter([start])]
    while path:
        here = next(path[-1], None)
        if here is None:
            path.pop()
            continue
        if here in seen:
            continue
        if len(seen) >= limit:
            return failed(Decision.UNDECIDED)
        seen.add(here)
        first, others, state = here
        if first == len(ordered):
            return Outcome(Decision.LINEARIZABLE, len(seen), first, state, ())
        if (count := first + others.bit_count()) > longest:
            deepest, longest = here, count
        path.append(following(first, others, state))
    return failed(Decision.NOT_LINEARIZABLE)


def _minimal(ordered: list[Call[O]], first: int, others: int) -> list[int]:
    """The calls that are not in the set and that none such precedes."""
    minimal: list[int] = []
    number, horizon = first, ordered[first].returned
    while number < len(ordered) and ordered[number].invoked <= horizon:
        minimal.append(number)
        horizon = min(horizon, ordered[number].returned)
        number += 1
        number += _ones(others >> (number - first))
    return minimal


def _with(first: int, others: int, number: int) -> tuple[int, int]:
    """The set with ``number`` in it, too. One set has one form."""
    others |= 1 << (number - first)
    ones = _ones(others)
    return first + ones, others >> ones


def _ones(bits: int) -> int:
    """How many ones there are before the first zero, from the lowest bit on."""
    return (~bits & (bits + 1)).bit_length() - 1
