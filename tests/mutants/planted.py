"""A plugin of pytest that runs tests on a mutant: ``pytest -p tests.mutants.planted``.

``COORDLOCK_MUTANT`` names the mutant.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.mutants.catalogue import MUTANTS


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[None]:
    with MUTANTS[os.environ["COORDLOCK_MUTANT"]]():
        return (yield)
