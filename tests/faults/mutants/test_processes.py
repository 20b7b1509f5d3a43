"""A mutant in the client processes of a run: the run fails, though nobody plays to its weakness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from coordlock_faults.journal import read
from coordlock_faults.verdict import judge
from coordlock_faults.violation import Violation

from coordlock.testing.waiting import eventually
from testbed.servers.endpoint import Endpoint
from testbed.soak.crew import NoAnswer
from testbed.soak.parties import at_work
from testbed.soak.plan import Plan
from testbed.soak.run import BOUNDS, run
from testbed.systems import SYSTEMS
from testbed.systems.undisturbed import Undisturbed
from tests.mutants.admission import misses_some_departures
from tests.mutants.catalogue import WORKED
from tests.mutants.mutant import Mutant

#: It says who waits, for what, and where.
_MESSAGE: Final = (
    r"(?s)did not say 'drained'.* has asked for 'lock\d' .*\nlock\d: .* is doing:\nThread "
)
#: Who waits for good also waits for less than a run gives it, and the test need not wait for more.
BOUNDED: Final = replace(BOUNDS, recovery=15_000_000_000)
#: So many calls show each mistake many times.
_CALLS: Final = 300


@pytest.mark.parametrize(
    "service",
    [
        pytest.param("etcd", marks=[pytest.mark.etcd, pytest.mark.long]),
        pytest.param("zookeeper", marks=[pytest.mark.zookeeper, pytest.mark.long]),
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("mutant", "workload", "violation"),
    [pytest.param(*one, id=one[0].name) for one in WORKED],
)
def test_clients_at_work_show_a_mutant(
    mutant: Mutant, workload: str, violation: type[Violation], tmp_path: Path
) -> None:
    subject = Undisturbed("local", Endpoint("local", (str(tmp_path / "state"),)).url)
    plan = Plan(workload, 1, clients=2, mutant=mutant.path, ttl=5.0)
    with at_work(subject, plan, tmp_path / "run") as parties:
        journals = parties.directory
        eventually(lambda: len(read(journals.glob("*.jsonl")).calls) > _CALLS, within=60)
        parties.drain(within=60)
        parties.end()
    found = judge(read(journals.glob("*.jsonl"))).all()
    assert violation in {type(one) for one in found}
