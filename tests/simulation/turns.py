"""Whose turn it was: which contenders the service's queue has ever let in."""

from __future__ import annotations

from coordlock.model.claim import Claim, Mode, Permit, in_force
from coordlock.model.contender import Contender

__all__ = ["Turns", "may_hold_together"]

COMPATIBLE = {
    "NL": "NL CR CW PR PW EX",
    "CR": "NL CR CW PR PW",
    "CW": "NL CR CW",
    "PR": "NL CR PR",
    "PW": "NL CR",
    "EX": "NL",
}


def may_hold_together(claims: list[Claim]) -> bool:
    """Whether these may be held at the same time, by the definitions alone."""
    for number, one in enumerate(claims):
        if isinstance(one, Permit):
            if len(claims) > one.of:
                return False
            continue
        for other in claims[number + 1 :]:
            assert isinstance(other, Mode)
            if other.name not in COMPATIBLE[one.name].split():
                return False
    return True


class Turns:
    """Looks at one queue after every event.

    A contender's turn comes when nobody is before it whom it must wait for, and it is still there.
    Nothing takes that back: who was before it never returns, and nobody new comes before it.
    """

    def __init__(self) -> None:
        self._come: set[int] = set()
        self._queue: tuple[Contender, ...] = ()

    def look(self, queue: tuple[Contender, ...]) -> None:
        """See who is there now."""
        if queue != self._queue:
            self._queue = queue
            for place, one in enumerate(queue):
                if one.order not in self._come and _may_enter(one, queue[:place]):
                    self._come.add(one.order)

    def has_come(self, contender: Contender) -> bool:
        """Whether it was ever the contender's turn."""
        return contender.order in self._come


def _may_enter(me: Contender, earlier: tuple[Contender, ...]) -> bool:
    if isinstance(me.claim, Permit):
        return len(earlier) < me.claim.of
    return all(may_hold_together([in_force(me.claim), in_force(one.claim)]) for one in earlier)
