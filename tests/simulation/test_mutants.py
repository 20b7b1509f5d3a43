"""The simulation can fail: it finds what is wrong with kernels that are."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.bad_day import search
from tests.simulation.mutants import MUTANTS

pytestmark = pytest.mark.faults

#: So many bad days at most; most mutants are found within a few dozen.
DAYS = 3000


@pytest.fixture(autouse=True)
def nobody_complains() -> Iterator[None]:
    """What the broken kernels log is no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_kernel_that_is_wrong_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.change(monkeypatch)
    with pytest.raises(AssertionError):
        search(mutant.kind, DAYS)
