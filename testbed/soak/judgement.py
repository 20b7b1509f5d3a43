"""What came of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Self

from coordlock_faults.bounds import Bounds
from coordlock_faults.history import History
from coordlock_faults.journal import read
from coordlock_faults.overlap import overlaps
from coordlock_faults.verdict import Verdict, judge
from coordlock_faults.violation import Violation

from testbed.soak.server_defects import is_the_servers

__all__ = ["Judgement"]

#: So many overlaps are looked at. A history with more of them is not worth counting.
_OVERLAPS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """A run, and what the checkers say of it.

    Attributes:
        verdict: what the checkers found.
        excused: the violations among them that are the server's own; see `is_the_servers`.
        counts: how many grants, losses, operations on the resource and so on there were, and
            conflicting grants held together that a fault excuses.
        faults: how many were made, by kind.
    """

    verdict: Verdict
    excused: tuple[Violation, ...]
    counts: Counter[str]
    faults: Counter[str]

    @property
    def holds(self) -> bool:
        """Whether nothing was violated but by the server."""
        return len(self.verdict.all()) == len(self.excused)

    @classmethod
    def of(cls, directory: Path, bounds: Bounds) -> Self:
        """Judge the run whose journals are in ``directory``.

        Raises `MalformedHistory` for what is no journal, and OSError.
        """
        history = read(sorted(directory.glob("*.jsonl")))
        verdict = judge(history, bounds)
        excused = (one for one in verdict.all() if is_the_servers(history, one))
        faults = Counter(fault.began.kind for fault in history.faults)
        return cls(verdict, tuple(excused), _counts(history, bounds), faults)

    def __str__(self) -> str:
        told = [f"{count:,} {what}" for what, count in self.counts.items()]
        told.append(f"{self.faults.total()} faults")
        if self.excused:
            told.append(f"{len(self.excused)} violations by the server")
        return ", ".join(told)


def _counts(history: History, bounds: Bounds) -> Counter[str]:
    operations = [one for kept in history.resources.values() for one in kept.operations]
    together = islice(overlaps(history, bounds), _OVERLAPS)
    return Counter(
        {
            "events": len(history.events),
            "acquires": len(history.attempts),
            "grants": len(history.granted),
            "losses": sum(one.lost is not None for one in history.granted),
            "overlaps": sum(bool(one.excuses) for one in together),
            "operations": len(operations),
            "refused operations": sum(one.refused is not None for one in operations),
            "other calls": sum(one.returned is not None for one in history.calls.values()),
        }
    )
