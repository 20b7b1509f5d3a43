"""A mutant in the client processes of a run: the run fails, though nobody plays to its weakness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from testbed.soak.crew import NoAnswer
from testbed.soak.plan import Plan
from testbed.soak.run import BOUNDS, run
from testbed.systems import SYSTEMS
from tests.mutants.admission import misses_some_departures

#: It says who waits, for what, and where.
_MESSAGE: Final = (
    r"(?s)did not say 'drained'.* has asked for 'lock\d' .*\nlock\d: .* is doing:\nThread "
)
#: Who waits for good also waits for less than a run gives it, and the test need not wait for more.
BOUNDED: Final = replace(BOUNDS, recovery=15_000_000_000)


@pytest.mark.parametrize(
    "service",
    [
        pytest.param("etcd", marks=[pytest.mark.etcd, pytest.mark.long]),
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
    ],
)
def test_a_run_fails_whose_clients_miss_some_departures(service: str, tmp_path: Path) -> None:
    # Who waits does so for good, and not until the session of a holder is lost.
    plan = Plan("register", 1, seconds=3.0, faults=(), mutant=misses_some_departures.path, ttl=60.0)
    with (
        SYSTEMS[service](tmp_path / "cluster") as system,
        pytest.raises(NoAnswer, match=_MESSAGE),
    ):
        run(system, plan, tmp_path / "run", BOUNDED)
