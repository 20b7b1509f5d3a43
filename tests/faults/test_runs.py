"""A short run of each workload on each backend under the whole catalogue of faults.

The seed is fixed, so that the nemesis does the same every time; ``make soak`` goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.plan import Plan
from tests.faults.run import run
from tests.faults.system import System
from tests.faults.systems import SYSTEMS
from tests.faults.workloads import WORKLOADS

# All runs on one cluster, one after the other, also where tests run in several processes.
ON_ONE_CLUSTER = [
    pytest.param(name, marks=(getattr(pytest.mark, name), pytest.mark.xdist_group(f"on {name}")))
    for name in SYSTEMS
]


@pytest.fixture(scope="module", params=ON_ONE_CLUSTER)
def system(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    with SYSTEMS[request.param](tmp_path_factory.mktemp(request.param)) as system:
        yield system


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_promises_hold_under_faults(system: System, workload: str, tmp_path: Path) -> None:
    outcome = run(system, Plan(workload, seed=1), tmp_path / "run")
    print(outcome.summary.text())
    assert outcome.holds, outcome.verdict
    assert outcome.summary.faults
    assert outcome.summary.grants
