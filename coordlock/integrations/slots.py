"""The slots of intervals, on which all hosts agree whenever each of them has begun."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["multiple_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def multiple_of(interval: timedelta, moment: datetime) -> datetime:
    """The last multiple of ``interval`` since 1970 that is not after ``moment``, in UTC."""
    return _EPOCH + (moment.astimezone(UTC) - _EPOCH) // interval * interval
