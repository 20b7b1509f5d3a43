"""What a candidate that was elected has: a grant that others know by its proposal."""

from __future__ import annotations

from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.contender import Owner
from coordlock.recipes.shared.announcing_grant import AnnouncingGrant, check_value
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking

__all__ = ["AsyncTerm", "Term", "check_proposal"]


def check_proposal(proposal: object) -> bytes:
    """``proposal``, which all services can publish and all clients read.

    Raises TypeError for what is not bytes, and ValueError for more than 65,536 of them and for what
    would be taken for the description of a lock's owner.
    """
    value = check_value(proposal, "proposal")
    if Owner.published(value) != value:
        raise ValueError(
            "the proposal has the fields host, pid, label and since, by which clients know a "
            "lock's owner: name one of them differently"
        )
    return value


class _BaseTerm(AnnouncingGrant, shown="Term"):
    """What sync and async terms share."""

    def _proclaim(self, proposal: bytes) -> Steps[None]:
        """Be known by ``proposal``, up to 65,536 bytes, from now on; the term goes on.

        Raises `LockLost` once the term has ended, and `BackendUnavailable` when no answer came
        within the client's ``request_timeout``: it is published as soon as the service is there, if
        the term lasts till then. So it is when Ctrl-C or a cancellation ends the call.
        """
        check_proposal(proposal)
        yield from self._announce(lambda: proposal)

    def _resign(self) -> Steps[bool]:
        """End the term, so that the next candidate leads; whether it had lasted: `release`.

        The body that leads must have ended before.
        """
        return (yield from self._release())


class Term(_BaseTerm, Grant):
    """Being the leader, from an election to the resignation or the loss: a grant, with its token.

    A context manager that resigns.
    """

    proclaim = blocking(_BaseTerm._proclaim)
    resign = blocking(_BaseTerm._resign)


class AsyncTerm(_BaseTerm, AsyncGrant):
    """Being the leader, from an election to the resignation or the loss: a grant, with its token.

    An async context manager that resigns.
    """

    proclaim = awaiting(_BaseTerm._proclaim)
    resign = awaiting(_BaseTerm._resign)
