"""Terms: the grants of leaders, which others know by their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from coordlock.errors import LockLost
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.contender import Owner
from coordlock.recipes.shared.publishing_grant import PublishingGrant, check_value
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.methods import awaiting, blocking

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


class _BaseTerm(PublishingGrant, shown="Term"):
    """What sync and async terms share."""

    _kind = "term of election"

    def _publish_value(self, value: bytes) -> Steps[None]:
        """Be known by ``value``, up to 65,536 bytes, from now on; the term goes on.

        Raises `LockLost` once the term has ended, and `BackendUnavailable` when no answer came
        within the client's ``request_timeout``: it is published as soon as the service is there, if
        the term lasts till then. So it is when Ctrl-C or a cancellation ends the call.
        """
        check_candidate_value(value)
        yield from self._publish(value)

    def _resign(self) -> Steps[bool]:
        """End the term, so that the next candidate leads; whether it had lasted: `release`.

        The body that leads must have ended before.
        """
        return (yield from self._release())


class Term(_BaseTerm, Grant):
    """Being the leader, from an election to the resignation or the loss: a grant, with its token.

    A context manager that resigns.
    """

    publish = blocking(_BaseTerm._publish_value)
    resign = blocking(_BaseTerm._resign)


class AsyncTerm(_BaseTerm, AsyncGrant):
    """Being the leader, from an election to the resignation or the loss: a grant, with its token.

    An async context manager that resigns.
    """

    publish = awaiting(_BaseTerm._publish_value)
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
            log.warning("election %r: %s; campaigns again", election, lost)
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
