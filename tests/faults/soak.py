"""Run after run with faults for as long as you like, and a report on them.

    make soak MINUTES=60 ARGS=etcd

Every run has a seed of its own, counted up from --seed, and is judged on its own. The report goes
to standard output, and with JSON, a picture and the histories of runs that failed into --out.
Ctrl-C ends the soak early, with the report on the runs that were finished.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

from coordlock.testing.faults import MalformedHistory
from tests.faults.crew import ProcessFailed
from tests.faults.nemesis import FAULTS
from tests.faults.picture import draw
from tests.faults.plan import Plan
from tests.faults.report import Report
from tests.faults.run import run
from tests.faults.system import System
from tests.faults.systems import SYSTEMS
from tests.faults.truth import TruthIncomplete
from tests.faults.workloads import WORKLOADS
from tests.servers.process import ServerFailed

__all__ = ["main", "soak"]

#: What ends a run before it can be judged.
NO_VERDICT: Final = (
    MalformedHistory,
    OSError,  # TimeoutError among them
    ProcessFailed,
    ServerFailed,
    TruthIncomplete,
)
_STOPPED: Final = "stopped early"


def say(words: str) -> None:
    print(f"soak: {words}", file=sys.stderr, flush=True)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help="etcd or zookeeper; both")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each backend")
    parser.add_argument("--runs", type=int, help="end after so many runs, if that is earlier")
    parser.add_argument("--seconds", type=float, default=60.0, help="of faults in each run")
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--clients", type=int, default=4, help="client processes at a time")
    parser.add_argument("--ttl", type=float, default=2.0, help="of the sessions, in seconds")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--faults", nargs="+", choices=FAULTS, help="all that fit the backend")
    parser.add_argument("--calm", action="store_true", help="no faults at all")
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="a directory")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


def soak(backend: str, given: argparse.Namespace, out: Path) -> Report:
    """Do run after run on ``backend`` until the time is over; what came of them.

    Histories of runs that failed stay in ``out``.
    """
    report = Report(
        backend,
        {
            "nodes": "3",
            "clients": f"{given.clients} processes at a time",
            "ttl": f"{given.ttl:g} s",
            "each run": f"{given.seconds:g} s of faults",
            "seeds": f"from {given.seed}",
        },
    )
    began = time.monotonic()
    numbers = itertools.count() if given.runs is None else range(given.runs)
    faults = () if given.calm else given.faults
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coordlock-")))
        running = _Cluster(backend, directory)
        stack.callback(running.stop)
        try:
            for number in numbers:
                report.seconds = time.monotonic() - began
                if report.seconds >= given.minutes * 60:
                    break
                plan = Plan(
                    workload=given.workloads[number % len(given.workloads)],
                    seed=given.seed + number,
                    seconds=given.seconds,
                    clients=given.clients,
                    ttl=given.ttl,
                    faults=faults,
                )
                _one_run(running, plan, directory, out, report, began)
        except KeyboardInterrupt:
            say(_STOPPED)
            report.parameters["ended"] = _STOPPED
    report.seconds = time.monotonic() - began
    return report


class _Cluster:
    """The three nodes, started anew after a run that may have left them unwell."""

    def __init__(self, backend: str, directory: Path) -> None:
        self._backend = backend
        self._directory = directory
        self._stack = ExitStack()
        self._system: System | None = None
        self._started = 0

    def system(self) -> System:
        """The system, which is well."""
        if self._system is None:
            self._started += 1
            say(f"starting three nodes of {self._backend}")
            where = self._directory / f"cluster{self._started}"
            self._system = self._stack.enter_context(SYSTEMS[self._backend](where))
        return self._system

    def stop(self) -> None:
        """End all nodes."""
        self._system = None
        self._stack.close()


def _one_run(
    running: _Cluster, plan: Plan, directory: Path, out: Path, report: Report, began: float
) -> None:
    history = directory / plan.name
    starts = time.monotonic() - began
    try:
        outcome = run(running.system(), plan, history)
    except NO_VERDICT as error:
        report.fail(plan.name, plan.seed, f"{type(error).__name__}: {error}")
        running.stop()
        holds, told = False, f"no verdict: {error}"
    else:
        report.add(outcome, starts)
        told = (
            f"{outcome.summary.grants:,} grants, {sum(outcome.summary.faults.values())} faults, "
            f"{outcome.summary.overlaps} overlaps, {outcome.summary.late_refused} late refused"
        )
        holds = outcome.holds
        if outcome.excused:
            told += f", {len(outcome.excused)} violations by the server"
        if not holds:
            told += f"\n{outcome.verdict}"
    if not holds:
        out.mkdir(parents=True, exist_ok=True)
        kept = out / f"{report.backend}-{plan.name}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(history, kept, ignore=shutil.ignore_patterns("*.sock"))
        told += f"\nits history is in {kept}"
    shutil.rmtree(history, ignore_errors=True)
    minutes = (time.monotonic() - began) / 60
    verdict = "holds" if holds else "FAILED"
    say(f"{minutes:5.1f} min  {report.backend} {plan.name}: {verdict}, {told}")


def interrupt(*_: object) -> NoReturn:
    """End as Ctrl-C does: with a report."""
    raise KeyboardInterrupt


def main() -> int:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, interrupt)
    parser = arguments()
    given = parser.parse_args()
    backends = given.backends or list(SYSTEMS)
    if unknown := set(backends) - set(SYSTEMS):
        parser.error(
            f"no such backend: {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}"
        )
    holds = True
    for backend in backends:
        report = soak(backend, given, given.out)
        given.out.mkdir(parents=True, exist_ok=True)
        text = report.text()
        (given.out / f"{backend}.txt").write_text(text)
        (given.out / f"{backend}.json").write_text(report.to_json())
        if report.strips:
            draw(report, given.out / f"{backend}.svg")
        print(report.to_json() if given.json else text, end="", flush=True)
        holds &= report.holds
        if "ended" in report.parameters:
            break
    say(f"the report is in {given.out}/")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
