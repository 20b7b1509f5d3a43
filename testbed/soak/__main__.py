"""Run after run with faults for as long as you like, and a report on them.

    make soak MINUTES=60 ARGS=etcd

Every run has a seed of its own, counted up from --seed, and is judged on its own. A line for each
goes to standard output and into --out, and the history of each that failed or has no verdict.
Ctrl-C ends the soak with the sums of the runs that were finished.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from testbed.clients.workloads import WORKLOADS
from testbed.nemesis import FAULTS
from testbed.soak.plan import Plan
from testbed.soak.run import run
from testbed.systems import SYSTEMS
from testbed.systems.system import System
from testbed.truth.observer import ServiceBroken

__all__ = ["Soak", "main"]

#: After so many runs in a row without a verdict, more of them tell nothing.
_ENOUGH: Final = 3
N = TypeVar("N", int, float)


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
    names: list[tuple[str, Sequence[str], Sequence[str] | None]] = [
        ("WORKLOAD", list(WORKLOADS), list(WORKLOADS)),
        ("FAULT", list(FAULTS), None),
    ]
    for name, choices, default in names:
        option = f"--{name.lower()}s"
        listed = ", ".join(choices)
        add(option, nargs="+", choices=choices, default=default, metavar=name, help=listed)
    add("--calm", action="store_true", help="no faults at all")
    add("--out", type=Path, default=Path("build/soak"), metavar="DIRECTORY")
    return parser


def workloads(backend: str, names: Sequence[str]) -> list[str]:
    """Those of ``names`` whose promises the ``backend`` makes."""
    keeps = SYSTEMS[backend].keeps_data
    return [name for name in names if keeps or not WORKLOADS[name].keeps_data]


class Soak:
    """Run after run on one backend; ``holds`` says whether each did that has a verdict."""

    def __init__(self, backend: str, given: argparse.Namespace, directory: Path) -> None:
        self._backend = backend
        self._given = given
        self._directory = directory
        self._cluster = _Cluster(backend, directory)
        self._began = time.monotonic()
        self._report: Final[Path] = given.out / f"{backend}.txt"
        self._report.write_text("")
        self._counts: Counter[str] = Counter()
        self._in_vain = 0
        self._failed = False

    @property
    def holds(self) -> bool:
        """Whether there was a run, and none has failed."""
        return bool(self._counts) and not self._failed

    def run(self) -> None:
        """Do runs until the time is over; what is interrupted raises KeyboardInterrupt."""
        given = self._given
        names = workloads(self._backend, given.workloads)
        try:
            for number in itertools.count() if given.runs is None else range(given.runs):
                if time.monotonic() - self._began >= given.minutes * 60:
                    break
                self._one_run(
                    Plan(
                        workload=names[number % len(names)],
                        seed=given.seed + number,
                        seconds=given.seconds,
                        clients=given.clients,
                        ttl=given.ttl,
                        faults=() if given.calm else given.faults,
                    )
                )
                if self._in_vain == _ENOUGH:
                    self._failed = True
                    self._say(f"given up after {_ENOUGH} runs in a row without a verdict")
                    break
        finally:
            self._cluster.stop()
            sums = ", ".join(f"{count:,} {what}" for what, count in sorted(self._counts.items()))
            self._say(f"{'holds' if self.holds else 'FAILED'}: {sums}")

    def _one_run(self, plan: Plan) -> None:
        history = self._directory / plan.name
        verdict, why = "holds", ""
        try:
            judgement = run(self._cluster.system(), plan, history)
        except Exception as error:
            # Whatever it is: the soak goes on, and the report says that this has no verdict.
            self._in_vain += 1
            self._cluster.stop()
            is_the_servers = isinstance(error, ServiceBroken)
            self._failed |= not is_the_servers
            verdict = "no verdict, as the server contradicts itself" if is_the_servers else "FAILED"
            why = traceback.format_exc()
        else:
            self._in_vain = 0
            self._counts += judgement.counts + judgement.faults + Counter({"runs": 1})
            if not judgement.holds:
                self._failed = True
                verdict, why = "FAILED", str(judgement.verdict)
            verdict += f", {judgement}"
        self._say(f"{plan.name}: {verdict}")
        if why:
            kept = self._keep(history, plan)
            self._say(f"{why}\nits history is in {kept}; again: {plan.command(self._backend)}")
        shutil.rmtree(history, ignore_errors=True)

    def _keep(self, history: Path, plan: Plan) -> Path:
        """Where the history of a run that failed is kept."""
        kept: Path = self._given.out / f"{self._backend}-{plan.name}"
        shutil.rmtree(kept, ignore_errors=True)
        if history.exists():
            shutil.copytree(history, kept)
        return kept

    def _say(self, words: str) -> None:
        minutes = (time.monotonic() - self._began) / 60
        line = f"{minutes:5.1f} min  {self._backend} {words}"
        print(line, flush=True)
        with self._report.open("a") as report:
            report.write(f"{line}\n")


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


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments()
    given = parser.parse_args(words)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    # The operator's and the observer's connections break, as they should.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    backends = list(dict.fromkeys(given.backends)) or list(SYSTEMS)
    if unknown := set(backends) - set(SYSTEMS):
        known = ", ".join(SYSTEMS)
        parser.error(f"no such backend: {', '.join(sorted(unknown))}; there are {known}")
    for backend in backends:
        if not workloads(backend, given.workloads):
            parser.error(f"--workloads: {backend} loses data, so that there is nothing to judge")
    given.out.mkdir(parents=True, exist_ok=True)
    hold = True
    for backend in backends:
        with tempfile.TemporaryDirectory(prefix="coordlock-") as directory:
            soak = Soak(backend, given, Path(directory))
            try:
                soak.run()
            except KeyboardInterrupt:
                return 1
        hold &= soak.holds
    return 0 if hold else 1


if __name__ == "__main__":
    sys.exit(main())
