"""Values: what was written follows each other, and is seen as a whole and in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.call import Call
from coordlock_faults.events import Act, Event, Raised, Returned
from coordlock_faults.history import History
from coordlock_faults.violation import Violation, together

__all__ = ["ForkedChain", "LostWrite", "NeverWritten", "SeenInPart", "chains"]

#: An error that says that nothing was written.
_REFUSED = "VersionMismatch"


@dataclass(frozen=True, slots=True)
class ForkedChain(Violation):
    """Two writes have replaced the same version of a key."""


@dataclass(frozen=True, slots=True)
class NeverWritten(Violation):
    """A client was told of what nobody wrote, or of what was refused."""


@dataclass(frozen=True, slots=True)
class LostWrite(Violation):
    """A client has read what is older than a write that was acknowledged before."""


@dataclass(frozen=True, slots=True)
class SeenInPart(Violation):
    """Of several keys that were written together, some were seen without the others."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Keys as a client was told of them."""

    call: Call
    event: Event
    triples: tuple[tuple[int, int, int], ...]

    @property
    def versions(self) -> dict[int, int]:
        """By key."""
        return {key: version for key, version, _ in self.triples}


def chains(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Writes that expect versions make one chain for each key, whatever the faults.

    * No two writes have replaced the same version of a key: neither two that were acknowledged, nor
      two that were seen.
    * What is seen is what was written, in place of the version that it expected; nothing that was
      refused, or is not written yet.
    * What was read shows all that was acknowledged before the call.
    * Keys that were written together are seen together: who sees one of them, or what replaced it,
      sees them all, or what replaced those.

    Of a write that raised, as long as nobody sees it, nobody knows whether it was made.
    """
    writes = {
        mark: (call, key, version + 1)
        for call in history.called(Act.WRITE)
        for key, version, mark in _triples(call.passed)
    }
    seen = list(_seen(history))
    marks = {mark for one in seen for _, _, mark in one.triples}
    made = [
        call
        for call in history.called(Act.WRITE)
        if call.returned or any(mark in marks for _, _, mark in _triples(call.passed))
    ]
    # What is of one key says nothing of the others.
    folders = {call.of for call in made}
    whole = [one for one in seen if one.call.of in folders]
    found = (
        *_forks(made),
        *_unwritten(writes, seen),
        *_outdated(made, whole),
        *_in_part(made, whole),
    )
    return list(islice(found, bounds.findings))


def _triples(values: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Each key with its version and its mark."""
    numbers = iter(values)
    return zip(numbers, numbers, numbers, strict=True)


def _given(call: Call) -> dict[int, int]:
    """The version that a write gives to each of its keys."""
    return {key: version + 1 for key, version, _ in _triples(call.passed)}


def _seen(history: History) -> Iterator[_Seen]:
    for call in history.called(Act.OBSERVE, Act.READ):
        if call.of in history.locks:
            continue
        for state in call.states:
            yield _Seen(call, state, tuple(_triples(state.values)))


def _forks(made: list[Call]) -> Iterator[Violation]:
    places: dict[tuple[int, int], Call] = {}
    for call in made:
        for place in _given(call).items():
            other = places.setdefault(place, call)
            if other is not call:
                key, version = place
                what = f"two writes have replaced version {version - 1} of key {key}"
                yield ForkedChain(what, together(other, call))


def _unwritten(writes: dict[int, tuple[Call, int, int]], seen: list[_Seen]) -> Iterator[Violation]:
    for one in seen:
        for key, version, mark in one.triples:
            call, *place = writes.get(mark, (None,))
            if call is None or place != [key, version] or call.called.at > one.event.at:
                what = f"{one.call.process} was told of {mark}, version {version} of key {key}"
                yield NeverWritten(f"{what}: nobody wrote that", together(call, one.event))
            elif isinstance(call.answer, Raised) and call.answer.error == _REFUSED:
                what = f"{one.call.process} was told of {mark} in key {key}, which was refused"
                yield NeverWritten(what, together(call, one.event))


def _outdated(made: list[Call], seen: list[_Seen]) -> Iterator[Violation]:
    # By key: when a version was acknowledged, and the newest that was by then.
    acknowledged: dict[int, list[tuple[int, int, Call]]] = {}
    answered = ((call.returned.at, call) for call in made if call.returned is not None)
    for at, call in sorted(answered, key=lambda pair: pair[0]):
        for key, version in _given(call).items():
            newest = acknowledged.setdefault(key, [])
            if not newest or version > newest[-1][1]:
                newest.append((at, version, call))
    for one in seen:
        if one.call.act is not Act.READ or not isinstance(one.event, Returned):
            continue
        versions = one.versions
        for key, newest in acknowledged.items():
            place = bisect_right(newest, one.call.called.at, key=lambda known: known[0])
            if place and versions.get(key, 0) < newest[place - 1][1]:
                _, version, call = newest[place - 1]
                what = (
                    f"{one.call.process} read version {versions.get(key, 0)} of key {key} "
                    f"after version {version} was acknowledged"
                )
                yield LostWrite(what, together(call, one.call))


def _in_part(made: list[Call], seen: list[_Seen]) -> Iterator[Violation]:
    # By two keys: the versions of the first that were written together with the second, in order,
    # and which version of the second is there from each of them on.
    pairs: dict[tuple[int, int], list[tuple[int, int, Call]]] = {}
    for call in made:
        given = _given(call)
        for key, version in given.items():
            for other, beside in given.items():
                if other != key:
                    pairs.setdefault((key, other), []).append((version, beside, call))
    for known in pairs.values():
        known.sort(key=lambda one: one[:2])
    for one in seen:
        versions = one.versions
        for (key, other), known in pairs.items():
            place = bisect_right(known, versions.get(key, 0), key=lambda it: it[0])
            if place and versions.get(other, 0) < known[place - 1][1]:
                version, beside, call = known[place - 1]
                what = (
                    f"{one.call.process} saw version {versions.get(other, 0)} of key {other} "
                    f"beside {versions[key]} of key {key}; {beside} was written with {version}"
                )
                yield SeenInPart(what, together(call, one.call.called, one.event))
