"""The report on many runs: their figures added up, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from testbed.soak.figures import Summary
from testbed.soak.judgement import Judgement
from testbed.soak.plan import Plan
from testbed.soak.strip import Strip

__all__ = ["Failure", "Report"]

#: Figures of a summary that add up, and those of which the greatest counts.
_SUMS: Final = (
    "events",
    "processes",
    "acquires",
    "grants",
    "losses",
    "releases",
    "offered",
    "accepted",
    "refused",
    "late",
    "late_refused",
    "late_failed",
    "late_accepted",
    "overlaps",
    "overlaps_by_loss",
    "leaks",
)
_MAXIMA: Final = (
    "longest_overlap",
    "longest_by_loss",
    "slowest_recovery",
    "longest_wait",
    "latest_signal",
)


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
        summaries: one for each run that has a verdict.
        workloads: how many runs there were of each.
        excused: how many violations are the server's own.
        broken: runs without a verdict, because the service contradicted itself; how it did, and
            where their journals are.
        in_vain: whether it was given up, as no more verdicts were to be had.
        failures: of the runs.
        strips: what happened when, for the picture.
        seconds: how long it took, starts and checks included.
    """

    backend: str
    parameters: dict[str, str]
    summaries: list[Summary] = field(default_factory=list)
    workloads: Counter[str] = field(default_factory=Counter)
    excused: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    in_vain: bool = False
    failures: list[Failure] = field(default_factory=list)
    strips: list[Strip] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, plan: Plan, judgement: Judgement, began: float) -> None:
        """Count a run in that began ``began`` seconds after the first one."""
        self.summaries.append(judgement.summary)
        self.workloads[plan.workload] += 1
        self.strips.append(Strip.of(judgement, began))
        self.excused += len(judgement.excused)

    def fail(self, plan: Plan, history: Path, why: str) -> None:
        """Note a run that does not hold, or has no verdict."""
        again = plan.command(self.backend)
        self.failures.append(Failure(plan.name, why, again, str(history)))

    @property
    def holds(self) -> bool:
        """Whether there was a run, and every one holds that has a verdict."""
        return bool(self.summaries) and not self.failures and not self.in_vain

    def figures(self) -> dict[str, object]:
        """All figures, for JSON."""
        each = [asdict(one) for one in self.summaries]
        versions: dict[str, str] = {}
        for one in self.summaries:
            versions |= one.versions
        figures: dict[str, object] = {
            "backend": self.backend,
            "versions": versions,
            "parameters": self.parameters,
            "holds": self.holds,
            "runs": len(each),
            "runs_by_workload": dict(sorted(self.workloads.items())),
            "seconds": round(self.seconds, 1),
            "seconds_of_runs": round(sum(one.seconds for one in self.summaries), 1),
        }
        figures |= {name: sum(one[name] for one in each) for name in _SUMS}
        figures |= {name: max((one[name] or 0.0 for one in each), default=0.0) for name in _MAXIMA}
        return figures | {
            "acquires_failed": _added(one.failures for one in self.summaries),
            "calls": _added(one.calls for one in self.summaries),
            "faults": _added(one.faults for one in self.summaries),
            "violations": _added(one.violations for one in self.summaries),
            "violations_by_the_server": self.excused,
            "runs_broken_by_the_server": self.broken,
            "unchecked": _added(dict.fromkeys(one.unchecked, 1) for one in self.summaries),
            "failures": [asdict(one) for one in self.failures],
        }

    def to_dict(self) -> dict[str, object]:
        """All figures, and those of each run, for JSON."""
        return self.figures() | {"each_run": [asdict(one) for one in self.summaries]}

    def text(self) -> str:
        """All figures for people."""
        told = self.figures()
        faults = _added(one.faults for one in self.summaries)
        calls = _added(one.calls for one in self.summaries)
        versions = ", ".join(sorted({v for one in self.summaries for v in one.versions.values()}))
        by_workload = told["runs_by_workload"]
        violations = _added(one.violations for one in self.summaries)
        unchecked = _added(dict.fromkeys(one.unchecked, 1) for one in self.summaries)
        rows = {
            "backend": f"{self.backend} {versions}".strip(),
            **self.parameters,
            "runs": f"{told['runs']} judged{_table(by_workload)}",
            "time": f"{self.seconds / 60:.1f} minutes, "
            f"{sum(one.seconds for one in self.summaries) / 60:.1f} of them in runs",
            "events": f"{told['events']:,} in the histories of {told['processes']} processes",
            "acquires": f"{told['acquires']:,}, {told['grants']:,} granted"
            f"{_table(told['acquires_failed'])}",
            "losses": f"{told['losses']:,}",
            "releases": f"{told['releases']:,}",
            "operations": f"{told['offered']:,}, {told['accepted']:,} accepted, "
            f"{told['refused']:,} refused",
            "calls": f"{sum(calls.values()):,}{_table(calls)}",
            "late operations": f"{told['late']:,}, {told['late_refused']:,} refused, "
            f"{told['late_failed']:,} failed, {told['late_accepted']:,} before the newer one's own",
            "faults": f"{sum(faults.values()):,}{_table(faults)}",
            "overlaps": f"{told['overlaps']}, the longest {told['longest_overlap']:.3f} s",
            "by lost data": f"{told['overlaps_by_loss']}, "
            f"the longest {told['longest_by_loss']:.3f} s",
            "slowest recovery": f"{told['slowest_recovery']:.3f} s",
            "longest wait": f"{told['longest_wait']:.3f} s",
            "latest signal": f"{told['latest_signal']:.3f} s after the deadline",
            "leaks": f"{told['leaks']}",
            "violations": f"{sum(violations.values())}{_table(violations)}"
            + (f", {self.excused} of them by a known defect of the server" if self.excused else ""),
            "not checked": ", ".join(f"{name}: {count} runs" for name, count in unchecked.items())
            or "nothing",
            "runs that failed": f"{len(self.failures)}",
        }
        if self.broken:
            rows["without a verdict"] = f"{len(self.broken)}, as the server contradicted itself"
        width = max(map(len, rows)) + 2
        lines = [f"{name:<{width}}{value}" for name, value in rows.items()]
        for run, how in self.broken.items():
            lines += ["", f"run {run}: {how}"]
        for failure in self.failures:
            lines += ["", f"run {failure.run}, whose history is in {failure.history}:", failure.why]
            lines += [f"once more: {failure.again}"]
        return "\n".join(lines) + "\n"


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


def _table(counts: object) -> str:
    assert isinstance(counts, dict)
    told: Sequence[str] = [f"{count:,} {name}" for name, count in counts.items() if count]
    return f" ({', '.join(told)})" if told else ""
