"""One run with faults: clients at work, the nemesis at them, and the verdict on what happened."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from coordlock_faults.bounds import Bounds
from coordlock_faults.events import Reach
from coordlock_faults.exclusion import exclusion
from coordlock_faults.journal import read
from coordlock_faults.register import register

from testbed.clients.workloads import WORKLOADS
from testbed.nemesis import FAULTS, Nemesis, Scene, fitting
from testbed.soak.crew import NoAnswer
from testbed.soak.judgement import Judgement
from testbed.soak.parties import Parties, at_work
from testbed.soak.plan import Plan
from testbed.systems.system import System
from testbed.truth.observer import ServiceBroken, TruthIncomplete

__all__ = ["BOUNDS", "blame", "run"]

#: A time-to-live is 2 s, a dead holder's ends within two of them, and a queue of dozens may hold
#: before a waiter; elections and restarts of Java take their time on two busy cores.
BOUNDS: Final = Bounds(signal=1_000_000_000, notice=5_000_000_000, recovery=30_000_000_000)


def run(system: System, plan: Plan, directory: Path, bounds: Bounds = BOUNDS) -> Judgement:
    """Do one run on a ``system`` that is well, and judge it. Its journals stay in ``directory``.

    Raises `ProcessFailed` when a client or the resource does, `NoAnswer` when one doesn't answer
    any more, TimeoutError when the system doesn't get well after the faults, and `ServiceBroken`
    when the run cannot be judged because the service contradicts itself: it has no verdict.
    """
    act(system, plan, directory, bounds)
    return Judgement.of(directory, bounds)


def act(system: System, plan: Plan, directory: Path, bounds: Bounds) -> None:
    """Do one run, and write its history into ``directory``."""
    with at_work(system, plan, directory) as parties:
        names = fitting(
            FAULTS if plan.faults is None else plan.faults,
            system.name,
            keeps_data=WORKLOADS[plan.workload].keeps_data,
        )
        scene = Scene(
            system,
            parties.crew,
            parties.root,
            parties.journal("nemesis"),
            parties.truth.seen if parties.truth else lambda: 0,
        )
        nemesis = Nemesis(scene, plan.seed, names)
        with system.watched(parties.journal("servers")):
            try:
                nemesis.run(plan.seconds)
            finally:
                nemesis.heal()  # the next run needs a system that is well
        try:
            parties.drain(within=bounds.recovery / 1e9)
        except NoAnswer as error:
            blame(parties, parties.impasse().locks, error)
            raise
        try:
            parties.end()
        except TruthIncomplete as error:
            blame(parties, error.locks, error)
            raise


def blame(parties: Parties, locks: Collection[str], error: Exception) -> None:
    """Raise `ServiceBroken` if it is the service that causes ``error`` on each of these ``locks``.

    Not where a client has failed, or what was promised whatever the service does is violated.
    """
    parties.crew.check()
    contradictions = parties.truth.contradictions() if parties.truth else {}
    if not locks or not contradictions.keys() >= set(locks):
        return
    history = read(sorted(parties.directory.glob("*.jsonl")))
    # Without the service's record nobody can say whom an operator has evicted.
    evicted = any(fault.began.reach is Reach.OPERATOR for fault in history.faults)
    if not register(history) and (evicted or not exclusion(history)):
        raise ServiceBroken("; ".join(contradictions[lock] for lock in sorted(locks))) from error
