"""The kernel among pauses, partitions, lost and late requests, expiries, evictions and quitters.

Hypothesis makes the faults up. What must hold, `Contention` says.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.contention import (
    KINDS,
    Contention,
    SeveralDoubts,
    SeveralModes,
)
from tests.simulation.converting import ConvertingIntentions, ConvertingReaders
from tests.simulation.electing import Electing
from tests.simulation.gathering import Gathering
from tests.simulation.scheduling import Scheduling
from tests.simulation.valuing import Valuing
from tests.simulation.working import Working

#: ``make test-fast`` leaves these to ``make test``: they are others' days with other claims.
LONGER: Final = {
    ConvertingIntentions,
    SeveralDoubts,
    SeveralModes,
}
ALL: Final[list[type[Contention]]] = [*KINDS, ConvertingReaders, ConvertingIntentions]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.__name__, marks=[pytest.mark.slow] if kind in LONGER else [])
        for kind in ALL
    ],
)
def test_no_fault_lets_conflicting_grants_overlap_or_a_contender_stay(
    kind: type[Contention],
) -> None:
    run_state_machine_as_test(kind, settings=settings(stateful_step_count=40))


def test_no_fault_shows_a_group_that_never_was_so_or_loses_a_member() -> None:
    run_state_machine_as_test(Gathering, settings=settings(stateful_step_count=40))


def test_no_fault_loses_an_item_or_lets_two_do_it() -> None:
    run_state_machine_as_test(Working, settings=settings(stateful_step_count=40))


def test_no_fault_shows_a_leader_of_before_or_lets_one_publish_too_late() -> None:
    run_state_machine_as_test(Electing, settings=settings(stateful_step_count=40))


def test_no_fault_loses_a_write_or_shows_a_part_of_a_transaction() -> None:
    run_state_machine_as_test(Valuing, settings=settings(stateful_step_count=40))


def test_no_fault_and_no_clock_starts_a_slot_again_or_loses_it() -> None:
    run_state_machine_as_test(Scheduling, settings=settings(stateful_step_count=40))
