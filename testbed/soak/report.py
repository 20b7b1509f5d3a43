"""The report on the runs on one backend: their figures added up, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed.soak.judgement import Judgement
from testbed.soak.plan import Plan

__all__ = ["Failure", "Report"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that does not hold, or that came to no verdict.

    Attributes:
        run: its name.
        why: the violations, or the error.
        again: the command that does it again.
        history: where its journals are.
    """

    run: str
    why: str
    again: str
    history: str


@dataclass(slots=True)
class Report:
    """What came of the runs on one backend so far.

    Attributes:
        backend: its name.
        parameters: what all runs have in common.
        workloads: how many runs there were of each that have a verdict.
        counts, faults: of all these runs; see `Judgement`.
        excused: how many violations are the server's own.
        broken: runs without a verdict, because the service contradicted itself; how it did, and
            where their journals are.
        in_vain: whether it was given up, as no more verdicts were to be had.
        failures: of the runs.
        seconds: how long it took, starts and checks included.
    """

    backend: str
    parameters: dict[str, str]
    workloads: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    excused: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    in_vain: bool = False
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, plan: Plan, judgement: Judgement) -> None:
        """Count a run in."""
        self.workloads[plan.workload] += 1
        self.counts += judgement.counts
        self.faults += judgement.faults
        self.excused += len(judgement.excused)

    def fail(self, plan: Plan, history: Path, why: str) -> None:
        """Note a run that does not hold, or has no verdict."""
        again = plan.command(self.backend)
        self.failures.append(Failure(plan.name, why, again, str(history)))

    @property
    def holds(self) -> bool:
        """Whether there was a run, and every one holds that has a verdict."""
        return bool(self.workloads) and not self.failures and not self.in_vain

    def to_dict(self) -> dict[str, object]:
        """All figures, for JSON."""
        return asdict(self) | {"holds": self.holds}

    def text(self) -> str:
        """All figures for people."""
        rows = {
            "backend": self.backend,
            **self.parameters,
            "runs": f"{self.workloads.total()} judged{_table(self.workloads)}",
            "minutes": f"{self.seconds / 60:.1f}",
            **{name: f"{count:,}" for name, count in self.counts.items()},
            "faults": f"{self.faults.total():,}{_table(self.faults)}",
            "violations by the server": str(self.excused),
            "without a verdict": f"{len(self.broken)}, as the server contradicted itself",
            "runs that failed": str(len(self.failures)),
        }
        width = max(map(len, rows)) + 2
        lines = [f"{name:<{width}}{value}" for name, value in rows.items()]
        lines += [f"\nrun {run}: {how}" for run, how in self.broken.items()]
        for failure in self.failures:
            lines += ["", f"run {failure.run}, whose history is in {failure.history}:", failure.why]
            lines += [f"once more: {failure.again}"]
        return "\n".join(lines) + "\n"


def _table(counts: Counter[str]) -> str:
    listed = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    return f" ({listed})" if listed else ""
