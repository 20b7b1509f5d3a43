"""The fenced register: what the resource accepted, and what it holds in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import FinalSet, Kind
from coordlock_faults.history import History
from coordlock_faults.operation import Operation, Resource
from coordlock_faults.violation import Violation, together

__all__ = ["LostAdd", "PhantomAdd", "StaleAccepted", "UnjustRefusal", "register"]


@dataclass(frozen=True, slots=True)
class StaleAccepted(Violation):
    """An operation was accepted after one with a newer, conflicting token."""


@dataclass(frozen=True, slots=True)
class LostAdd(Violation):
    """An add was acknowledged, and the resource does not hold it in the end."""


@dataclass(frozen=True, slots=True)
class PhantomAdd(Violation):
    """The resource holds what was never added, or what it had refused."""


@dataclass(frozen=True, slots=True)
class UnjustRefusal(Violation):
    """An operation was refused, and the newer token that was named had not come."""


def register(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """The resource accepts nothing stale and loses nothing, under all faults.

    * In the resource's own order, no accepted operation has a token below that of a conflicting one
      accepted before: an exclusive token below any, a shared one below an exclusive one.
    * Every acknowledged add is in the final set, and nothing is that was refused or never offered.
      Where the resource keeps a sum, it is at least that of the acknowledged adds, and at most that
      of all but the refused ones.
    * An operation was refused only because of a newer token that had come before. (The fence keeps
      out no holder.)

    What is accepted of a holder of the past, before a newer one has come, is no violation: the
    newer one reads it. Adds with unknown outcome may be there or not.
    """
    resources = history.resources.values()
    found = (violation for one in resources for violation in _all_of(one))
    return list(islice(found, bounds.findings))


def _all_of(resource: Resource) -> Iterator[Violation]:
    yield from _order(resource)
    yield from _refusals(resource)
    if resource.final_sets:
        yield from _set(resource)
    if resource.final_value is not None:
        yield from _sum(resource)


def _order(resource: Resource) -> Iterator[Violation]:
    accepted = [
        (one.accepted.order, one) for one in resource.operations if one.accepted is not None
    ]
    accepted.sort(key=lambda pair: pair[0])
    # The rule of fences once more and not theirs, which is under test.
    newest: dict[bool, Operation] = {}
    before = 0
    for order, one in accepted:
        if order == before:
            what = f"two operations on {resource.name} have the place {order}"
            yield StaleAccepted(what, one.events)
        before = order
        shared = one.offered.shared
        for theirs, other in newest.items():
            if not (shared and theirs) and one.token < other.token:
                what = (
                    f"{resource.name} accepted token {one.token} of {one.offered.process} after "
                    f"token {other.token} of {other.offered.process}"
                )
                yield StaleAccepted(what, together(other, one))
        if shared not in newest or one.token > newest[shared].token:
            newest[shared] = one


def _refusals(resource: Resource) -> Iterator[Violation]:
    came: dict[int, list[Operation]] = {}
    for one in resource.operations:
        came.setdefault(one.token, []).append(one)
    for one in resource.operations:
        if one.refused is None:
            continue
        newest = one.refused.newest
        just = newest > one.token and any(
            other.offered.at <= one.refused.at and not (one.offered.shared and other.offered.shared)
            for other in came.get(newest, ())
        )
        if not just:
            what = (
                f"{resource.name} refused token {one.token} because of token {newest}, "
                "with which nobody conflicting had come"
            )
            yield UnjustRefusal(what, one.events)


def _set(resource: Resource) -> Iterator[Violation]:
    final = Counter(value for event in resource.final_sets for value in event.values)
    adds: dict[int | None, list[Operation]] = {}
    for one in _adds(resource):
        adds.setdefault(one.offered.value, []).append(one)
        if one.accepted is not None and one.offered.value not in final:
            what = f"{resource.name} acknowledged the add of {one.offered.value} and has lost it"
            yield LostAdd(what, one.events)
    for value, times in final.items():
        tried = adds.get(value, [])
        possible = [one for one in tried if one.refused is None]
        if times > len(possible):
            what = (
                f"{resource.name} holds {value} {times} times; "
                f"{len(possible)} adds of it can have been made"
            )
            yield PhantomAdd(what, together(*(one.events for one in tried), _told(resource, value)))


def _sum(resource: Resource) -> Iterator[Violation]:
    assert resource.final_value is not None
    final = resource.final_value.value
    known = [one for one in _adds(resource) if one.accepted is not None]
    unknown = [one for one in _adds(resource) if one.accepted is None and one.refused is None]
    least = _total(known)
    most = least + _total(unknown)
    last = [one for operation in known[-3:] for one in operation.events]
    if final < least:
        what = f"{resource.name} is {final}; adds of {least} in all were acknowledged"
        yield LostAdd(what, together(last, resource.final_value))
    if final > most:
        what = f"{resource.name} is {final}; adds of {most} in all can have been made"
        yield PhantomAdd(what, together(last, resource.final_value))


def _adds(resource: Resource) -> list[Operation]:
    return [one for one in resource.operations if one.offered.kind is Kind.ADD]


def _total(adds: list[Operation]) -> int:
    return sum(one.offered.value or 0 for one in adds)


def _told(resource: Resource, value: int) -> tuple[FinalSet, ...]:
    return tuple(one for one in resource.final_sets if value in one.values)
