"""What came of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from coordlock_faults.bounds import Bounds
from coordlock_faults.history import History
from coordlock_faults.journal import read
from coordlock_faults.verdict import Verdict, judge
from coordlock_faults.violation import Violation

from testbed.soak.figures import Summary, summary
from testbed.soak.server_defects import is_the_servers

__all__ = ["Judgement"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A run, its history, and what the checkers say of it.

    Attributes:
        bounds: how late something might be.
        history: all that was written down.
        verdict: what the checkers found.
        summary: the figures.
        excused: the violations among them that are the server's own; see `is_the_servers`.
    """

    bounds: Bounds
    history: History
    verdict: Verdict
    summary: Summary
    excused: tuple[Violation, ...]

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
        return cls(bounds, history, verdict, summary(history, verdict, bounds), tuple(excused))

    def told(self) -> str:
        """The most important figures, in a line."""
        figures = self.summary
        late = f"{figures.late_refused + figures.late_failed} of {figures.late} late ones refused"
        told = (
            f"{figures.grants:,} grants, {sum(figures.faults.values())} faults, "
            f"{figures.overlaps} overlaps, {figures.offered:,} operations, {late}"
        )
        if self.excused:
            told += f", {len(self.excused)} violations by the server"
        return told
