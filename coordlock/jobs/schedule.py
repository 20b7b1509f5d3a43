"""Schedules: which slots a job has, computed from a time. Pure, and the same on every host.

A scheduled instant is known by itself, so hosts whose clocks differ name the same one. Each takes
the last one up to half a minute after its own present, or half the interval where that is less: a
host whose clock is behind by less than that takes the instant that the others take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Final, Protocol, runtime_checkable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from coordlock.errors import ConfigurationError
from coordlock.settings import Duration, seconds_of

__all__ = ["Cron", "Every", "Schedule", "interval_after", "latest", "zone_named"]

#: By how much a host's clock may be behind; at most half of what lies between two instants.
_LENIENCE: Final = timedelta(seconds=30)
_DAY: Final = 86_400
#: By how much clocks are set forward or back at most. cronsim counts by the local time, which says
#: less than that about the order of instants.
_SHIFT: Final = timedelta(hours=3)


@runtime_checkable
class Schedule(Protocol):
    """What tells the instants at which a job is due; `Every` and `Cron` do."""

    def before(self, instant: datetime) -> datetime:
        """The last scheduled instant at or before ``instant``, which is aware."""

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The scheduled instants after ``instant``, which is aware, in order."""


def zone_named(name: str) -> tzinfo:
    """The time zone ``name``; UTC also on a machine without the data of zones.

    Raises ValueError.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"this machine knows no time zone {name!r}: use a name such as Europe/Berlin, and "
            "`pip install tzdata` where the system has no time zones"
        ) from None


class Every:
    """A schedule: each day at midnight in UTC, and after each ``interval`` from then on.

    The interval divides the day, such as ``"15m"`` or ``"24h"``: otherwise the instants would
    depend on a beginning that the hosts would have to agree on. Raises ValueError.
    """

    def __init__(self, interval: Duration) -> None:
        try:
            seconds = seconds_of(interval)
        except ValueError as error:
            raise ValueError(f"interval: {interval!r} is not {error}") from None
        if not 1 <= seconds <= _DAY or seconds != int(seconds) or _DAY % int(seconds):
            raise ValueError(
                f"interval: {interval!r} does not divide the day into equal parts: use one that "
                "does, such as 15m, 1h or 24h"
            )
        #: In seconds.
        self.interval: Final = int(seconds)

    def before(self, instant: datetime) -> datetime:
        """The last scheduled instant at or before ``instant``."""
        seconds = math.floor(instant.timestamp())
        return datetime.fromtimestamp(seconds - seconds % self.interval, UTC)

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The scheduled instants after ``instant``."""
        step, found = timedelta(seconds=self.interval), self.before(instant)
        while True:
            found += step
            yield found

    def __repr__(self) -> str:
        return f"Every({self.interval})"


class Cron:
    """A schedule by a line of crontab's five fields, such as ``"0 3 * * *"``, in a time zone.

    Where clocks are set forward, a fixed time that is left out comes right after the gap. Where
    they are set back, a fixed time that comes twice counts once, the first time. Lines whose hour
    or minute is ``*`` or has a step run at every time that matches, also in an hour that comes
    twice. Debian's cron does the same. Needs the extra ``cron``. Raises ValueError.
    """

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        try:
            from cronsim import CronSim, CronSimError  # an extra
        except ImportError:
            problem = "schedules by cron expressions need cronsim"
            raise ConfigurationError.missing(problem, "cron") from None
        self._zone = zone_named(zone)
        if len(expression.split()) != 5:
            raise ValueError(
                f"{expression!r} must have the five fields of crontab: minute, hour, day of the "
                "month, month, day of the week"
            )
        self._sim = CronSim
        #: The five fields.
        self.expression: Final = expression
        #: The name of the time zone.
        self.zone: Final = zone
        try:
            next(self._sim(expression, datetime.now(self._zone)))
        except CronSimError as error:
            raise ValueError(f"{expression!r} is no cron expression: {error}") from None
        except StopIteration:
            raise ValueError(f"{expression!r} names no instant that ever comes") from None

    def before(self, instant: datetime) -> datetime:
        """The last scheduled instant at or before ``instant``."""
        local = (instant + _SHIFT).astimezone(self._zone)
        for found in self._sim(self.expression, local, reverse=True):
            if (utc := found.astimezone(UTC)) <= instant:
                return utc
        raise ValueError(f"{self.expression!r} names no instant before {instant.isoformat()}")

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The scheduled instants after ``instant``."""
        last = instant
        for found in self._sim(self.expression, (instant - _SHIFT).astimezone(self._zone)):
            if (utc := found.astimezone(UTC)) > last:
                yield utc
                last = utc

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, {self.zone!r})"


def latest(schedule: Schedule, now: float) -> datetime:
    """The last scheduled instant up to half a minute after ``now`` (seconds since 1970).

    Up to half the interval, where that is less. So a host whose clock is that late names the same
    instant as the others.
    """
    host = datetime.fromtimestamp(now, UTC)
    lenience = min(_LENIENCE, interval_after(schedule, host) / 2)
    return schedule.before(host + lenience).astimezone(UTC)


def interval_after(schedule: Schedule, instant: datetime) -> timedelta:
    """How long it is from one scheduled instant to the next, of the two after ``instant``."""
    first, second = islice(schedule.after(instant), 2)
    return second - first
