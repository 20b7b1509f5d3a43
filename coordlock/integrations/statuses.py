"""The HTTP status of a request that did not get its lock, the same in all frameworks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple

import coordlock

__all__ = ["Refusal", "refusal_of"]


class Refusal(NamedTuple):
    """What the client of a request is told.

    Attributes:
        status: 423 where another one has the lock, 503 where the service of locks does not answer,
            or the lock was lost. 409 is for stale tokens alone: these are never accepted again.
        detail: what to do.
        retry_after: in how many seconds to try again, for the header ``Retry-After``.
    """

    status: int
    detail: str
    retry_after: int

    @property
    def body(self) -> dict[str, str]:
        """The answer's JSON."""
        return {"detail": self.detail}

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers."""
        return {"Retry-After": str(self.retry_after)}


_BUSY: Final = Refusal(HTTPStatus.LOCKED, "locked by another; try again", 1)


def refusal_of(error: BaseException) -> Refusal | None:
    """The answer to a request that failed with ``error``; None if that is not about a lock."""
    if isinstance(error, coordlock.AcquireTimeout):
        return _BUSY
    if isinstance(error, coordlock.WaitError | coordlock.BackendUnavailable | coordlock.LockLost):
        seconds = _retry_after(getattr(error, "away", None))
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return Refusal(status, "the lock is not available; try again", seconds)
    return None


def _retry_after(away: float | None) -> int:
    """Seconds: about as long as the service has been away, where that is known."""
    return 5 if away is None else min(30, max(1, round(away)))
