"""The simulation can fail: it finds what is wrong with kernels that are."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.mutants.catalogue import SIMULATED
from tests.mutants.mutant import Mutant
from tests.simulation.bad_day import BadDay, search

pytestmark = pytest.mark.faults

#: So many bad days at most; most mutants are found within a few dozen.
DAYS = 3000


@pytest.fixture(autouse=True)
def nobody_complains() -> Iterator[None]:
    """What the broken kernels log is no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("mutant", "kind"),
    [
        pytest.param(
            *(mutant, kind),
            id=f"{mutant.name}-{kind.__name__}",
            marks=[pytest.mark.long] if mutant.rare else [],
        )
        for mutant, kind in SIMULATED
    ],
)
def test_a_kernel_that_is_wrong_is_found_out(mutant: Mutant, kind: type[BadDay]) -> None:
    with mutant(), pytest.raises(AssertionError):
        search(kind, DAYS)
