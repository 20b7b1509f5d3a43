"""Tokens: unique, ordered in real time, and those of the service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from coordlock_faults.attempt import WORKERS, Attempt
from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import FOREVER
from coordlock_faults.history import History
from coordlock_faults.truth import Life
from coordlock_faults.violation import Violation, together

__all__ = ["DisorderedTokens", "ForeignToken", "RepeatedToken", "tokens"]


@dataclass(frozen=True, slots=True)
class RepeatedToken(Violation):
    """Two contenders of a lock have had one token, or one contender two."""


@dataclass(frozen=True, slots=True)
class DisorderedTokens(Violation):
    """A contender has a token that is not above those of contenders before it."""


@dataclass(frozen=True, slots=True)
class ForeignToken(Violation):
    """A token is not that of such a contender in the service, or no token at all."""


def tokens(history: History, bounds: Bounds = DEFAULT_BOUNDS) -> list[Violation]:
    """Tokens are unique, ordered and the service's, under all faults and over the whole run.

    Also across restarts of the cluster, and deletions of the queue.

    * No two contenders of a lock have the same token; each is from 1 to 2**63 - 1. Those of a work
      queue's workers serve one item after the other: `items` checks the tokens of each item.
    * An attempt that was acknowledged (`Enqueued`, or else `Granted`) before another's acquire was
      invoked has a smaller token than that one.
    * By the ground truth: every token is that of a contender of this lock with this claim, and the
      service's own grow with its revisions.
    """
    found = (
        violation
        for lock, attempts in history.locks.items()
        for check in (
            (_foreign,) if lock.startswith(WORKERS) else (_repeated, _disordered, _foreign)
        )
        for violation in check(history, attempts)
    )
    return list(islice((*found, *_truth(history)), bounds.findings))


def _repeated(history: History, attempts: list[Attempt]) -> Iterator[Violation]:
    seen: dict[int, Attempt] = {}
    for one in attempts:
        if one.enqueued and one.granted and one.enqueued.token != one.granted.token:
            what = f"{one.name} was enqueued with one token and granted with another"
            yield RepeatedToken(what, one.events)
        if one.token is None:
            continue
        other = seen.setdefault(one.token, one)
        if other is not one:
            what = f"{one.lock}: {other.name} and {one.name} have the token {one.token}"
            yield RepeatedToken(what, together(other, one))


def _disordered(history: History, attempts: list[Attempt]) -> Iterator[Violation]:
    # One pass through the answers along with the invocations, both in the order of time.
    answers = sorted(
        ((one.acknowledged.at, one.token or 0, one) for one in attempts if one.acknowledged),
        key=lambda answer: answer[0],
    )
    newest: Attempt | None = None
    following = iter(answers)
    at, token, other = next(following, (FOREVER, 0, None))
    for one in sorted(attempts, key=lambda one: one.invoked.at):
        while other is not None and at < one.invoked.at:
            if newest is None or token > (newest.token or 0):
                newest = other
            at, token, other = next(following, (FOREVER, 0, None))
        if one.token is not None and newest is not None and one.token <= (newest.token or 0):
            what = (
                f"{one.lock}: {one.name} has token {one.token}, and was invoked after "
                f"{newest.name} had token {newest.token}"
            )
            yield DisorderedTokens(what, together(newest, one))


def _foreign(history: History, attempts: list[Attempt]) -> Iterator[Violation]:
    for one in attempts:
        if one.token is None:
            continue
        if not 0 < one.token <= FOREVER:
            yield ForeignToken(f"{one.name} has {one.token} for a token", one.events)
        elif history.has_truth:
            life = history.life(one)
            if life is None:
                what = f"{one.name} has token {one.token}, which the service never made"
                yield ForeignToken(what, one.events)
            elif life.appeared.claim != one.claim:
                what = f"{one.name} has token {one.token}, which is of {life.appeared.claim}"
                yield ForeignToken(what, together(one, life))


def _truth(history: History) -> Iterator[Violation]:
    """Where the service's tokens don't grow with its revisions.

    It can only find something where the record tells them apart. Tokens of etcd and ZooKeeper are
    revisions, and their records have them once; other services may number contenders on their own.
    """
    newest: dict[str, Life] = {}
    for one in history.truth.lives:
        before = newest.setdefault(one.appeared.lock, one)
        if before is not one and before.appeared.token >= one.appeared.token:
            what = (
                f"{one.appeared.lock}: token {one.appeared.token} came after "
                f"token {before.appeared.token}"
            )
            yield DisorderedTokens(what, together(before, one))
        else:
            newest[one.appeared.lock] = one
