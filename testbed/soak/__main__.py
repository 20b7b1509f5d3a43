"""Run after run with faults for as long as you like, and a report on them.

    make soak MINUTES=60 ARGS=etcd
    make soak ARGS='--judge build/soak/etcd-register-7'

Every run has a seed of its own, counted up from --seed, and is judged on its own. The report goes
to standard output and, after every run, into --out, with JSON and the histories of runs that failed
or have no verdict. Ctrl-C ends the soak with the report on the runs that were finished.
With --judge there is no run: the history of one that was kept is judged again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from coordlock_faults.journal import MalformedHistory

from testbed.clients.workloads import WORKLOADS
from testbed.nemesis import FAULTS
from testbed.soak.judgement import Judgement
from testbed.soak.plan import Plan
from testbed.soak.report import Report
from testbed.soak.run import BOUNDS, run
from testbed.systems import SYSTEMS
from testbed.systems.system import System
from testbed.truth.observer import ServiceBroken

__all__ = ["Soak", "main"]

_STOPPED: Final = "stopped early"
#: After so many runs in a row without a verdict, more of them tell nothing.
_ENOUGH: Final = 3
N = TypeVar("N", int, float)


def say(words: str) -> None:
    print(f"soak: {words}", file=sys.stderr, flush=True)


def positive(kind: type[N]) -> Callable[[str], N]:
    """A number above 0, for the parser."""

    def parse(given: str) -> N:
        number = kind(given)
        if number <= 0:
            raise argparse.ArgumentTypeError(f"{given} is not above 0")
        return number

    return parse


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("backends", nargs="*", metavar="BACKEND", help=f"{', '.join(SYSTEMS)}; all by default")
    add("--minutes", type=positive(float), default=10.0, help="for each backend")
    add("--runs", type=positive(int), help="end after so many runs, if that is earlier")
    add("--seconds", type=positive(float), default=60.0, help="of faults in each run")
    add("--seed", type=positive(int), default=1, help="of the first run")
    add("--clients", type=positive(int), default=4, help="client processes at a time")
    add("--ttl", type=positive(float), default=2.0, help="of the sessions, in seconds")
    parser.add_argument(
        "--workloads",
        nargs="+",
        choices=WORKLOADS,
        default=list(WORKLOADS),
        metavar="WORKLOAD",
        help=", ".join(WORKLOADS),
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--faults", nargs="+", choices=FAULTS, metavar="FAULT", help=", ".join(FAULTS)
    )
    what.add_argument("--calm", action="store_true", help="no faults at all")
    add("--out", type=Path, default=Path("build/soak"), metavar="DIRECTORY")
    add("--judge", type=Path, metavar="DIRECTORY", help="judge a kept history again; 1 if it fails")
    return parser


def workloads(backend: str, names: Sequence[str]) -> list[str]:
    """Those of ``names`` whose promises the ``backend`` makes."""
    keeps = SYSTEMS[backend].keeps_data
    return [name for name in names if keeps or not WORKLOADS[name].keeps_data]


class Soak:
    """Run after run on one backend; what came of them is in ``report``."""

    def __init__(self, backend: str, given: argparse.Namespace, directory: Path) -> None:
        self._backend = backend
        self._given = given
        self._directory = directory
        self._cluster = _Cluster(backend, directory)
        self._workloads = workloads(backend, given.workloads)
        self._began = time.monotonic()
        self._in_vain = 0
        self.report: Final = Report(
            backend,
            {
                "nodes": str(SYSTEMS[backend].size),
                "clients": f"{given.clients} processes at a time",
                "ttl": f"{given.ttl:g} s",
                "each run": f"{given.seconds:g} s of faults",
                "seeds": f"from {given.seed}",
            },
        )

    def run(self) -> None:
        """Do runs until the time is over, or somebody interrupts."""
        runs = self._given.runs
        try:
            for number in itertools.count() if runs is None else range(runs):
                if self._seconds() >= self._given.minutes * 60:
                    break
                self._one_run(self._plan(number))
                self._save()
                if self._in_vain == _ENOUGH:
                    self.report.in_vain = True
                    self._end(f"after {_ENOUGH} runs in a row without a verdict")
                    break
        except KeyboardInterrupt:
            self._end(_STOPPED)
        finally:
            self._cluster.stop()
        self._save()

    def _plan(self, number: int) -> Plan:
        given = self._given
        faults: tuple[str, ...] | None = tuple(given.faults) if given.faults else None
        if given.calm:
            faults = ()
        return Plan(
            workload=self._workloads[number % len(self._workloads)],
            seed=given.seed + number,
            seconds=given.seconds,
            clients=given.clients,
            ttl=given.ttl,
            faults=faults,
        )

    def _one_run(self, plan: Plan) -> None:
        history = self._directory / plan.name
        try:
            judgement = run(self._cluster.system(), plan, history)
        except ServiceBroken as error:
            self._in_vain += 1
            self._cluster.stop()
            verdict, told = "no verdict", f"the server contradicts itself: {error}"
            self.report.broken[plan.name] = f"{error} ({self._keep(history, plan)})"
        except Exception as error:
            # Whatever it is: the soak goes on, and the report says that this has no verdict.
            self._in_vain += 1
            self._cluster.stop()
            why, _, _ = str(error).partition("\n")
            verdict, told = "FAILED", f"no verdict: {why}"
            self.report.fail(plan, self._keep(history, plan), traceback.format_exc())
        else:
            self._in_vain = 0
            verdict, told = "holds", str(judgement)
            self.report.add(plan, judgement)
            if not judgement.holds:
                verdict = "FAILED"
                told += f"\n{judgement.verdict}"
                self.report.fail(plan, self._keep(history, plan), str(judgement.verdict))
        shutil.rmtree(history, ignore_errors=True)
        say(f"{self._seconds() / 60:5.1f} min  {self._backend} {plan.name}: {verdict}, {told}")

    def _keep(self, history: Path, plan: Plan) -> Path:
        """Where the history of a run that failed is kept."""
        kept: Path = self._given.out / f"{self._backend}-{plan.name}"
        shutil.rmtree(kept, ignore_errors=True)
        if history.exists():
            shutil.copytree(history, kept, ignore=shutil.ignore_patterns("*.sock"))
        return kept

    def _save(self) -> None:
        report, out = self.report, self._given.out
        report.seconds = self._seconds()
        (out / f"{self._backend}.txt").write_text(report.text())
        (out / f"{self._backend}.json").write_text(json.dumps(report.to_dict(), indent=2) + "\n")

    def _end(self, why: str) -> None:
        say(why)
        self.report.parameters["ended"] = why

    def _seconds(self) -> float:
        return time.monotonic() - self._began


class _Cluster:
    """The nodes, started anew after a run that may have left them unwell."""

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
            say(f"starting {self._backend}")
            where = self._directory / f"cluster{self._started}"
            self._system = self._stack.enter_context(SYSTEMS[self._backend](where))
        return self._system

    def stop(self) -> None:
        """End all nodes."""
        self._system = None
        self._stack.close()


def interrupt(*_: object) -> NoReturn:
    """End as Ctrl-C does: with a report."""
    raise KeyboardInterrupt


def judge_again(directory: Path) -> int:
    """Judge the run whose journals are in ``directory``; the exit status."""
    judgement = Judgement.of(directory, BOUNDS)
    print(judgement.verdict)
    if judgement.excused:
        print(f"{len(judgement.excused)} of them by a known defect of the server")
    say(f"{directory}: {'holds' if judgement.holds else 'FAILED'}, {judgement!s}")
    return 0 if judgement.holds else 1


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments()
    given = parser.parse_args(words)
    if given.judge is not None:
        if not any(given.judge.glob("*.jsonl")):
            parser.error(f"--judge: no journals are in {given.judge}")
        try:
            return judge_again(given.judge)
        except (MalformedHistory, OSError) as error:
            parser.error(f"--judge: {error}")
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, interrupt)
    # The operator's and the observer's connections break, as they should.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    backends = list(dict.fromkeys(given.backends)) or list(SYSTEMS)
    if unknown := set(backends) - set(SYSTEMS):
        known = ", ".join(SYSTEMS)
        parser.error(f"no such backend: {', '.join(sorted(unknown))}; there are {known}")
    for backend in backends:
        if not workloads(backend, given.workloads):
            parser.error(f"--workloads: {backend} loses data, so that there is nothing to judge")
    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {error}")
    reports: list[Report] = []
    for backend in backends:
        with tempfile.TemporaryDirectory(prefix="coordlock-") as directory:
            soak = Soak(backend, given, Path(directory))
            soak.run()
        reports.append(soak.report)
        print(soak.report.text(), flush=True)
        if soak.report.parameters.get("ended") == _STOPPED:
            break
    say(f"the report is in {given.out}/")
    return 0 if all(one.holds for one in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
