"""The fenced mutex: its holders, and the newest token of each mode."""

from __future__ import annotations

from dataclasses import dataclass

from coordlock.model.claim import Claim, Permit
from coordlock.testing.faults.overlap import conflict

__all__ = ["Acquire", "FencedMutex", "Release"]


@dataclass(frozen=True, slots=True)
class Acquire:
    """To become a holder."""

    attempt: str
    claim: Claim
    token: int


@dataclass(frozen=True, slots=True)
class Release:
    """To be one no more: by a release, a loss or death."""

    attempt: str


@dataclass(frozen=True, slots=True)
class FencedMutex:
    """The state of one lock, exclusive, with modes or with permits.

    Attributes:
        holders: the attempts that hold.
        newest: the newest token granted, by claim.
    """

    holders: frozenset[tuple[str, Claim]] = frozenset()
    newest: frozenset[tuple[Claim, int]] = frozenset()

    def step(self, operation: Acquire | Release) -> FencedMutex | None:
        """The state after ``operation``, or None where it cannot come now.

        Acquiring takes that no holder conflicts, and that conflicting grants before had smaller
        tokens. On a semaphore of n, that there are less than n holders.
        """
        match operation:
            case Acquire():
                return self._acquire(operation)
            case Release():
                rest = frozenset(one for one in self.holders if one[0] != operation.attempt)
                return None if rest == self.holders else FencedMutex(rest, self.newest)

    def _acquire(self, one: Acquire) -> FencedMutex | None:
        if any(conflict(one.claim, held) for _, held in self.holders):
            return None
        if isinstance(one.claim, Permit) and len(self.holders) >= one.claim.of:
            return None
        if any(conflict(one.claim, claim) and token >= one.token for claim, token in self.newest):
            return None
        newest = dict(self.newest)
        newest[one.claim] = max(one.token, newest.get(one.claim, 0))
        return FencedMutex(self.holders | {(one.attempt, one.claim)}, frozenset(newest.items()))
