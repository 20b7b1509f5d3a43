"""A short run of each workload on each service, with the whole catalogue of faults to choose from.

Seeds are fixed, so that the nemesis does the same every time; ``make soak`` goes on from there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.plan import Plan
from tests.faults.run import run
from tests.faults.systems import SYSTEMS
from tests.faults.workloads import WORKLOADS


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("seed", "workload"), list(enumerate(WORKLOADS, start=1)))
@pytest.mark.parametrize(
    "service", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in SYSTEMS]
)
def test_the_promises_hold_under_faults(
    service: str, seed: int, workload: str, tmp_path: Path
) -> None:
    with SYSTEMS[service](tmp_path / "cluster") as system:
        outcome = run(system, Plan(workload, seed), tmp_path / "run")
    print(outcome.summary.text())
    assert outcome.holds, str(outcome.verdict)
    assert outcome.summary.faults
    assert outcome.summary.grants
