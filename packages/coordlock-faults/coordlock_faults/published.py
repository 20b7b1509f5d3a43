"""Elections and groups: who is shown as leader or member is so, with what it has published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.attempt import Attempt
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.call import Call
from coordlock_faults.events import Act
from coordlock_faults.history import History
from coordlock_faults.observers import second_by_first
from coordlock_faults.overlap import conflict
from coordlock_faults.violation import Violation, together

__all__ = ["LatePublication", "NeverPublished", "NotThere", "published"]


@dataclass(frozen=True, slots=True)
class NeverPublished(Violation):
    """A client was told of a leader or a member that had published no such thing."""


@dataclass(frozen=True, slots=True)
class LatePublication(Violation):
    """A proclamation was acknowledged that was made after a later term had begun."""


@dataclass(frozen=True, slots=True)
class NotThere(Violation):
    """In the end, those whom the service tells are not those who are there."""


def published(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Leaders and members are real, and what they are known by is theirs, under all faults.

    * Whoever is shown by an observer, or told by a read, has campaigned or joined before, and has
      published the mark; nobody else has the token. It is another one than its client knows where
      a request whose answer was lost was done all the same, before or, as etcd may, much later: its
      client removes what that has made as soon as it finds it.
    * What a leader publishes after a later one was elected is never acknowledged, unless the
      service has lost data meanwhile.
    * In the end, those are told who lead, or are members, as far as their own clients know; with
      what they had acknowledged last, or tried to publish since.
    """
    publications = {call.passed[0]: call for call in history.called(Act.PUBLISH)}
    found = (
        *_unreal(history, publications),
        *_late(history, bounds, list(publications.values())),
        *_absent(history, publications),
    )
    return list(islice(found, bounds.findings))


def _unreal(history: History, publications: dict[int, Call]) -> Iterator[Violation]:
    owners = {(one.lock, one.token): one.name for one in history.attempts.values() if one.token}
    for call in history.called(Act.OBSERVE, Act.READ):
        if call.of not in history.locks:
            continue
        for state in call.states:
            for token, mark in second_by_first(state.values, 2).items():
                made = publications.get(mark)
                if made is None or made.of != call.of or made.called.at > state.at:
                    what = f"{call.process} was told of {mark} in {call.of}: nobody published it"
                    yield NeverPublished(what, together(call.called, state, made))
                    continue
                if history.has_truth and history.truth.find(call.of, token) is None:
                    what = f"{call.process} was told of {token} in {call.of}: it was never there"
                    yield NeverPublished(what, together(made, state))
                mine = history.attempts[made.called.attempt]
                if owners.setdefault((call.of, token), mine.name) != mine.name:
                    what = f"{call.process} was told of {mark} with {token}, and that is another's"
                    yield NeverPublished(what, together(made, mine, state))


def _late(history: History, bounds: Bounds, publications: list[Call]) -> Iterator[Violation]:
    for call in publications:
        mine = history.attempts[call.called.attempt]
        if call.returned is None or mine.granted is None:
            continue
        for other in history.locks[call.of]:
            if (
                other.granted is not None
                and conflict(mine.claim, other.claim)
                and other.granted.token > mine.granted.token
                and other.granted.at < call.called.at
                and not any(history.faults.losses(other.granted.at - bounds.notice, call.called.at))
            ):
                what = (
                    f"{call.of} took {call.passed[0]} of token {mine.token} after "
                    f"token {other.token} was granted"
                )
                yield LatePublication(what, together(call, mine, other.granted))
                break


def _absent(history: History, publications: dict[int, Call]) -> Iterator[Violation]:
    for of, present in history.presents.items():
        if of not in history.locks:
            continue
        there = {one.token or 0: one for one in history.locks[of] if _is_there(one)}
        told = second_by_first(present.values, 2)
        for token in sorted(told.keys() - there.keys()):
            yield NotThere(f"{of} has {token}, and nobody is there by it", (present,))
        for token, attempt in there.items():
            if token not in told:
                what = f"{attempt.process} is in {of} by {token}, and is not told"
                yield NotThere(what, together(attempt, present))
                continue
            newest = _acknowledged(list(publications.values()), attempt)
            if newest is not None and told[token] < newest.passed[0]:
                what = f"{of} has {told[token]} of {attempt.process}, which published another since"
                yield NotThere(what, together(attempt, newest, present))


def _is_there(attempt: Attempt) -> bool:
    return attempt.granted is not None and attempt.end is None


def _acknowledged(publications: list[Call], attempt: Attempt) -> Call | None:
    """What ``attempt`` had acknowledged last. Its marks grow."""
    mine = (one for one in publications if one.called.attempt == attempt.name and one.returned)
    return max(mine, key=lambda one: one.passed[0], default=None)
