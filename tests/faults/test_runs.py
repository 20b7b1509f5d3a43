"""A short run of each workload on each service; every fault is dealt out to one of them.

Seeds are fixed, so that the nemesis does the same every time; ``make soak`` goes on from there.
Some of them are in ``make test``, all in ``make test-faults``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from testbed.clients.workloads import WORKLOADS
from testbed.nemesis import FAULTS, fitting
from testbed.soak import run
from testbed.soak.judgement import Judgement
from testbed.soak.plan import Plan
from testbed.systems import SYSTEMS
from testbed.truth.observer import ServiceBroken

#: Several tests at a time make a machine busy, and signals late.
BOUNDS: Final = replace(run.BOUNDS, signal=5_000_000_000)
#: Long enough for a workload's share of the faults.
SECONDS: Final = 20.0
#: ZooKeeper 3.8.0 did it in 5 of some 160 runs on a busy machine: see `server_defects`.
ATTEMPTS: Final = 3
#: In ``make test``: processes, links and clocks are broken.
ALWAYS: Final = {("etcd", "register")}
RUNS: Final = [
    pytest.param(
        *(service, number, workload),
        marks=[
            getattr(
                pytest.mark, {"postgresql": "postgres"}.get(kind := service.partition("-")[0], kind)
            ),
            *(() if (service, workload) in ALWAYS else [pytest.mark.long]),
        ],
    )
    for service, system in SYSTEMS.items()
    for number, workload in enumerate(WORKLOADS)
    if system.keeps_data or not WORKLOADS[workload].keeps_data
]


def share(service: str, number: int, workload: str) -> list[str]:
    """The faults of the workload with that number."""
    suitable = fitting(FAULTS, service, keeps_data=WORKLOADS[workload].keeps_data)
    return suitable[number % len(suitable) :: len(WORKLOADS)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("service", "number", "workload"), RUNS)
def test_the_promises_hold_under_faults(
    service: str, number: int, workload: str, tmp_path: Path
) -> None:
    faults = share(service, number, workload)
    plan = Plan(workload, seed=number + 1, seconds=SECONDS, faults=faults)
    judgement = judged(service, plan, tmp_path)
    print(judgement)
    assert judgement.holds, str(judgement.verdict)
    # Not all: an operator may find nobody to strike.
    assert len(judgement.faults.keys() & set(faults)) >= len(faults) / 2
    assert judgement.counts["grants"]


def judged(service: str, plan: Plan, directory: Path) -> Judgement:
    """What comes of ``plan``, with another seed where the service broke its own promises."""
    for attempt in range(ATTEMPTS):
        where = directory / str(attempt)
        again = replace(plan, seed=plan.seed + 1000 * attempt)
        try:
            with SYSTEMS[service](where / "cluster") as system:
                return run.run(system, again, where / "run", BOUNDS)
        except ServiceBroken as broken:
            print(f"no verdict, once more: {broken}")
    pytest.fail(f"{service} broke its own promises in {ATTEMPTS} of {ATTEMPTS} runs")
