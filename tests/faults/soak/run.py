"""One run with faults: clients at work, the nemesis at them, and the verdict on what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from coordlock.testing.faults.bounds import Bounds
from tests.faults.nemesis import Nemesis
from tests.faults.soak.judgement import Judgement
from tests.faults.soak.parties import at_work
from tests.faults.soak.plan import Plan
from tests.faults.systems.system import System

__all__ = ["BOUNDS", "run"]

#: A time-to-live is 2 s, a dead holder's ends within two of them, and a queue of dozens may hold
#: before a waiter; elections and restarts of Java take their time on two busy cores.
BOUNDS: Final = Bounds(signal=1_000_000_000, notice=5_000_000_000, recovery=30_000_000_000)


def run(system: System, plan: Plan, directory: Path, bounds: Bounds = BOUNDS) -> Judgement:
    """Do one run on a ``system`` that is well, and judge it. Its journals stay in ``directory``.

    Raises `ProcessFailed` when a client or the resource does, and TimeoutError when the system
    doesn't get well after the faults, or a client is granted nothing any more: such a run has no
    verdict.
    """
    act(system, plan, directory, bounds)
    return Judgement.of(directory, bounds)


def act(system: System, plan: Plan, directory: Path, bounds: Bounds) -> None:
    """Do one run, and write its history into ``directory``."""
    with at_work(system, plan, directory) as parties:
        assert parties.truth is not None
        nemesis = Nemesis(
            system,
            parties.crew,
            parties.journal("nemesis"),
            plan.seed,
            parties.root,
            plan.faults,
            parties.truth.seen,
        )
        try:
            nemesis.run(plan.seconds)
        except Exception:
            nemesis.heal()  # the next run needs a system that is well
            raise
        nemesis.heal()
        parties.drain(within=bounds.recovery / 1e9)
        parties.end()
