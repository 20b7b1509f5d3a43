"""The faults of a run: when what was touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from coordlock_faults.events import FOREVER, Event, FaultBegan, FaultHealed, Reach

__all__ = ["Fault", "Faults"]


@dataclass(eq=False, slots=True)
class Fault:
    """One fault, from ``begins`` to ``ends`` (nanoseconds; forever, if it was never healed)."""

    began: FaultBegan
    healed: FaultHealed | None = None

    @property
    def begins(self) -> int:
        """The moment before it was made."""
        return self.began.at

    @property
    def ends(self) -> int:
        """The moment after it was healed."""
        return FOREVER if self.healed is None else self.healed.at

    @property
    def events(self) -> tuple[Event, ...]:
        """Beginning and end."""
        return (self.began,) if self.healed is None else (self.began, self.healed)

    def meets(self, start: int, end: int) -> bool:
        """Whether it was there at any moment from ``start`` to ``end``."""
        return self.begins <= end and self.ends >= start


class Faults:
    """All faults of a run, in the order of their beginnings."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.all: Final = tuple(sorted(faults, key=lambda one: one.begins))
        self._pauses: dict[str, list[Fault]] = {}
        self._operators: dict[str, list[Fault]] = {}
        self._kills: dict[str, FaultBegan] = {}
        self._losses = [one for one in self.all if one.began.reach is Reach.DATA]
        for one in self.all:
            for target in one.began.targets:
                match one.began.reach:
                    case Reach.PAUSED:
                        self._pauses.setdefault(target, []).append(one)
                    case Reach.OPERATOR:
                        self._operators.setdefault(target, []).append(one)
                    case Reach.KILLED:
                        self._kills.setdefault(target, one.began)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.all)

    def kill(self, process: str) -> FaultBegan | None:
        """What ended ``process``, if something did."""
        return self._kills.get(process)

    def pause(self, process: str, start: int, end: int) -> Fault | None:
        """A pause of ``process`` that was there at any moment from ``start`` to ``end``."""
        pauses = self._pauses.get(process, ())
        return next((one for one in pauses if one.meets(start, end)), None)

    def losses(self, start: int, end: int) -> Iterator[Fault]:
        """Losses of the service's data in the time from ``start`` to ``end``."""
        return (one for one in self._losses if one.meets(start, end))

    def running(self, process: str, since: int, slack: int) -> int:
        """The first moment from ``since`` on at which ``process`` runs, undisturbed for ``slack``.

        What is due at ``since`` is due then, give or take ``slack``: a pause that comes within the
        slack may have come before the process got to it.
        """
        for one in self._pauses.get(process, ()):
            if one.meets(since, since + slack):
                since = max(since, one.ends)
        return since

    def acts(self, touched: Iterable[str], start: int, end: int) -> Iterator[Fault]:
        """An operator's acts on any of ``touched``, in the time from ``start`` to ``end``."""
        for target in touched:
            yield from (one for one in self._operators.get(target, ()) if one.meets(start, end))

    def calm(self, until: int) -> list[tuple[int, int]]:
        """The times before ``until`` in which there was no fault, in order."""
        calm: list[tuple[int, int]] = []
        since = 0
        for one in self.all:
            if one.begins > since:
                calm.append((since, one.begins))
            since = max(since, one.ends)
        if since < until:
            calm.append((since, until))
        return calm
