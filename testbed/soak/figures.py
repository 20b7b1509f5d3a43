"""The figures of a run, for a report."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Final

from coordlock_faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock_faults.events import Reach, ReleaseAcknowledged
from coordlock_faults.history import History
from coordlock_faults.operation import Operation
from coordlock_faults.overlap import Overlap, conflict, overlaps
from coordlock_faults.verdict import Verdict

from coordlock.model.claim import Claim

__all__ = ["Summary", "summary"]

#: So many overlaps are looked at. A history with more of them is not worth counting.
_OVERLAPS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Summary:
    """What happened in a run. Times are in seconds.

    Attributes:
        backend, seed, versions, parameters: what the run says of itself.
        seconds: how long it took.
        events, torn: how many lines were read; how many last lines were not whole.
        processes: client processes, those that were restarted counted again.
        acquires: calls of acquire.
        grants, losses, releases: how many were granted; lost; released and acknowledged.
        failures: acquires that failed, by error.
        offered, accepted, refused: operations on the resources. Others had no known outcome.
        calls: how many calls of elections, groups, values and work queues have returned, by kind.
        late: operations offered when a newer, conflicting grant had been made already.
        late_refused, late_failed, late_accepted: how many of them were refused; failed, as they do
            where the service itself refuses; were accepted, because they came before the newer
            one's own.
        faults: how many were made, by kind.
        overlaps: conflicting grants held together and excused by a fault; the longest such time;
            and both for those that lost data of the service excuse.
        slowest_recovery: the longest time from the end of a fault, when there was no other one, to
            the next grant of a call that waited then; None where none waited.
        longest_wait: the longest time from invocation to grant.
        latest_signal: the longest time from a deadline to the signal of the loss, of processes that
            were not paused then.
        leaks: what was left when it was over.
        violations: how many, by invariant; ``unchecked`` says which were not checked, and why.
    """

    backend: str
    seed: int
    versions: dict[str, str]
    parameters: dict[str, str]
    seconds: float
    events: int
    torn: int
    processes: int
    acquires: int
    grants: int
    losses: int
    releases: int
    failures: dict[str, int]
    offered: int
    accepted: int
    refused: int
    calls: dict[str, int]
    late: int
    late_refused: int
    late_failed: int
    late_accepted: int
    faults: dict[str, int]
    overlaps: int
    longest_overlap: float
    overlaps_by_loss: int
    longest_by_loss: float
    slowest_recovery: float | None
    longest_wait: float
    latest_signal: float
    leaks: int
    violations: dict[str, int]
    unchecked: dict[str, str]

    def to_json(self) -> str:
        """All figures as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def text(self) -> str:
        """All figures for people."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        recovery = self.slowest_recovery
        lines = {
            "backend": f"{self.backend} ({versions})" if versions else self.backend,
            "seed": str(self.seed),
            **self.parameters,
            "time": f"{self.seconds:.1f} s",
            "events": f"{self.events}" + (f", {self.torn} torn" if self.torn else ""),
            "processes": str(self.processes),
            "acquires": f"{self.acquires}, {self.grants} granted{_table(self.failures)}",
            "losses": str(self.losses),
            "releases": str(self.releases),
            "operations": f"{self.offered}, {self.accepted} accepted, {self.refused} refused",
            "calls": f"{sum(self.calls.values())}{_table(self.calls)}",
            "late operations": f"{self.late}, {self.late_refused} refused, "
            f"{self.late_failed} failed, {self.late_accepted} before the newer one's own",
            "faults": f"{sum(self.faults.values())}{_table(self.faults)}",
            "overlaps": f"{self.overlaps}, the longest {self.longest_overlap:.3f} s",
            "by lost data": f"{self.overlaps_by_loss}, the longest {self.longest_by_loss:.3f} s",
            "slowest recovery": "nobody waited" if recovery is None else f"{recovery:.3f} s",
            "longest wait": f"{self.longest_wait:.3f} s",
            "latest signal": f"{self.latest_signal:.3f} s after the deadline",
            "leaks": str(self.leaks),
            "violations": f"{sum(self.violations.values())}{_table(self.violations)}",
        }
        width = max(map(len, lines)) + 2
        told = [f"{name:<{width}}{value}" for name, value in lines.items()]
        told += [f"not checked: {name}, as {why}" for name, why in self.unchecked.items()]
        return "\n".join(told)


def summary(history: History, verdict: Verdict, bounds: Bounds = DEFAULT_BOUNDS) -> Summary:
    """The figures of ``history``, on which ``verdict`` is."""
    began = history.began
    attempts = history.attempts.values()
    operations = [one for kept in history.resources.values() for one in kept.operations]
    waits = [one.granted.at - one.invoked.at for one in attempts if one.granted]
    excused = [one for one in islice(overlaps(history, bounds), _OVERLAPS) if one.excuses]
    by_loss = [
        one for one in excused if any(fault.began.reach is Reach.DATA for fault in one.excuses)
    ]
    recovery = _slowest_recovery(history)
    late = _late(history, operations)
    return Summary(
        backend=began.backend if began else "",
        seed=began.seed if began else 0,
        versions=dict(began.versions) if began else {},
        parameters=dict(began.parameters) if began else {},
        seconds=(history.end - history.origin) / 1e9,
        events=len(history.events),
        torn=len(history.torn),
        processes=len(history.clients),
        acquires=len(attempts),
        grants=len(waits),
        losses=sum(one.lost is not None for one in attempts),
        releases=sum(isinstance(one.release_answer, ReleaseAcknowledged) for one in attempts),
        failures=dict(Counter(one.failed.error for one in attempts if one.failed)),
        offered=len(operations),
        accepted=sum(one.accepted is not None for one in operations),
        refused=sum(one.refused is not None for one in operations),
        calls=dict(Counter(one.act.value for one in history.calls.values() if one.returned)),
        late=len(late),
        late_refused=sum(one.refused is not None for one in late),
        late_failed=sum(one.accepted is None and one.refused is None for one in late),
        late_accepted=sum(one.accepted is not None for one in late),
        faults=dict(Counter(fault.began.kind for fault in history.faults)),
        overlaps=len(excused),
        longest_overlap=_longest(excused),
        overlaps_by_loss=len(by_loss),
        longest_by_loss=_longest(by_loss),
        slowest_recovery=None if recovery is None else recovery / 1e9,
        longest_wait=max(waits, default=0) / 1e9,
        latest_signal=max(_lateness(history, bounds), default=0) / 1e9,
        leaks=len(verdict.violations.get("leaks", ())),
        violations={name: len(found) for name, found in verdict.violations.items()},
        unchecked=dict(verdict.unchecked),
    )


def _table(counts: dict[str, int]) -> str:
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count)
    return f" ({told})" if told else ""


def _longest(overlaps: list[Overlap]) -> float:
    return max((one.end - one.start for one in overlaps), default=0) / 1e9


def _slowest_recovery(history: History) -> int | None:
    """The longest time from the end of all faults to the grant of a call that waited then."""
    grants = sorted((one.granted.at, one.invoked.at) for one in history.granted if one.granted)
    slowest: int | None = None
    for healed, until in history.faults.calm(history.end):
        for number in range(bisect_left(grants, (healed, 0)), len(grants) if healed else 0):
            granted, invoked = grants[number]
            if granted >= until:
                break
            if invoked < healed:
                slowest = max(slowest or 0, granted - healed)
                break
    return slowest


def _lateness(history: History, bounds: Bounds) -> Iterator[int]:
    for attempt in history.granted:
        lost = attempt.lost
        if lost is not None and lost.deadline is not None and attempt.end is lost:
            due = history.faults.running(attempt.process, lost.deadline, bounds.signal)
            yield max(0, lost.at - due)


def _late(history: History, operations: list[Operation]) -> list[Operation]:
    """The operations that were offered when a newer, conflicting grant had been made already."""
    # By lock and claim, the grants in the order of time and the newest token up to each.
    grants: dict[tuple[str, Claim], list[tuple[int, int]]] = {}
    for at, one in sorted(
        ((one.granted.at, one) for one in history.granted if one.granted), key=lambda pair: pair[0]
    ):
        made = grants.setdefault((one.lock, one.claim), [])
        made.append((at, max(one.token or 0, made[-1][1] if made else 0)))
    late: list[Operation] = []
    for operation in operations:
        attempt = history.attempts.get(operation.offered.attempt)
        for (lock, claim), made in grants.items() if attempt else ():
            if attempt and lock == attempt.lock and conflict(attempt.claim, claim):
                number = bisect_left(made, (operation.offered.at, 0))
                if number and made[number - 1][1] > operation.token:
                    late.append(operation)
                    break
    return late
