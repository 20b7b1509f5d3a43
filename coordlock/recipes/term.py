"""Terms: the grants of leaders, each with a published value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from coordlock.errors import LockLost
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.publishing import PublishingGrant, check_value
from coordlock.model.contender import Owner
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.log import Log

__all__ = ["AsyncTerm", "LeadingBodies", "Term", "check_candidate_value"]

log = Log("coordlock")


def check_candidate_value(value: object) -> bytes:
    """``value``, which all services can publish and all clients read.

    Raises TypeError for what is not bytes, and ValueError for more than 65,536 of them and for what
    would be taken for the description of a lock's owner.
    """
    value = check_value(value, "value")
    if Owner.published(value) != value:
        raise ValueError(
            "the value has the fields host, pid, label and since, by which clients know a "
            "lock's owner: name one of them differently"
        )
    return value


class _BaseTerm(PublishingGrant):
    """What sync and async terms share."""

    _kind = "term of election"

    def _check_value(self, value: bytes) -> None:
        check_candidate_value(value)

    def _leave_queue(self, seconds: float | None) -> Steps[None]:
        if self._ticket.lost is None and not self._ticket.is_leaving:
            log.info("election %r: resigns, token %s", self.name, self._first_token)
        yield from super()._leave_queue(seconds)

    def _resign(self) -> Steps[bool]:
        """End the term, so that the next candidate leads; returns whether it had lasted.

        The same as `release`. Stop all work of the leader before.
        """
        return (yield from self._release())


class Term(_BaseTerm, Grant):
    """The grant of a leader, from the election to the resignation or the loss.

    A context manager that resigns.
    """

    publish = blocking(PublishingGrant._publish)
    resign = blocking(_BaseTerm._resign)


class AsyncTerm(_BaseTerm, AsyncGrant):
    """The grant of a leader, from the election to the resignation or the loss, for asyncio.

    An async context manager that resigns.
    """

    publish = awaiting(PublishingGrant._publish)
    resign = awaiting(_BaseTerm._resign)


class LeadingBodies:
    """The bodies that an election's `run` calls, and how long they go on after the loss."""

    def __init__(self) -> None:
        #: By the term of each body: when that was found to be lost; empty while it lasts.
        self._lost_at: Final[dict[Term | AsyncTerm, list[float]]] = {}

    @contextmanager
    def leading(self, election: str, term: Term | AsyncTerm) -> Iterator[None]:
        """While a body leads ``election``. The loss of its ``term`` ends just the body."""
        lost_at: list[float] = []
        clock = term._engine.clock
        try:
            term._when_lost(lambda: lost_at.append(clock.now()))
            self._lost_at[term] = lost_at
            yield
        except LockLost as lost:
            if (lost.name, lost.token) != (term.name, term._first_token):
                raise
            log.info("election %r: campaigns again", election)  # the loss has a line of its own
        finally:
            self._lost_at.pop(term, None)

    def are_healthy(self, grace: float, now: float) -> bool:
        """Whether none leads on ``grace`` seconds after its loss."""
        for term, lost_at in list(self._lost_at.items()):
            if not lost_at and term.remaining() == 0.0:
                lost_at.append(now)  # the process was stopped together with its timers
            if lost_at and now - lost_at[0] > grace:
                return False
        return True
