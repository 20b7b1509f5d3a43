"""A short run of each workload on each service; every fault is dealt out to one of them.

Seeds are fixed, so that the nemesis does the same every time; ``make soak`` goes on from there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.faults.clients.workloads import WORKLOADS
from tests.faults.nemesis import FAULTS
from tests.faults.soak import run
from tests.faults.soak.plan import Plan
from tests.faults.systems import SYSTEMS

#: Several tests at a time make a machine busy, and signals late.
BOUNDS: Final = replace(run.BOUNDS, signal=5_000_000_000)
#: Long enough for a workload's share of the faults.
SECONDS: Final = 25.0


def share(service: str, number: int) -> tuple[str, ...]:
    """The faults of the workload with that number."""
    fitting = sorted(name for name, fault in FAULTS.items() if service in fault.systems)
    return tuple(fitting[number :: len(WORKLOADS)])


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("number", "workload"), list(enumerate(WORKLOADS)))
@pytest.mark.parametrize(
    "service", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in SYSTEMS]
)
def test_the_promises_hold_under_faults(
    service: str, number: int, workload: str, tmp_path: Path
) -> None:
    plan = Plan(workload, seed=number + 1, seconds=SECONDS, faults=share(service, number))
    with SYSTEMS[service](tmp_path / "cluster") as system:
        judgement = run.run(system, plan, tmp_path / "run", BOUNDS)
    print(judgement.summary.text())
    assert judgement.holds, str(judgement.verdict)
    # Not all: an operator may find nobody to strike.
    assert (
        len(judgement.summary.faults.keys() & set(plan.faults or ())) > len(plan.faults or ()) / 2
    )
    assert judgement.summary.grants
