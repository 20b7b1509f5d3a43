"""The suites can fail: they find what is wrong with coordlocks that are."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.mutants.catalogue import FAILING, MUTANTS, SIMULATED
from tests.mutants.mutant import Mutant
from tests.simulation.bad_day import BadDay, search

pytestmark = pytest.mark.faults

#: So many bad days at most; most mutants are found within a few dozen.
DAYS: Final = 3000
ROOT: Final = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_log() -> Iterator[None]:
    """What the broken kernels log is no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_log")
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


def needs(test: str) -> list[pytest.MarkDecorator]:
    """The service that a test needs."""
    return [getattr(pytest.mark, one) for one in ("etcd", "zookeeper") if one in test.lower()]


@pytest.mark.long
@pytest.mark.parametrize(
    ("mutant", "test"),
    [pytest.param(one, test, id=one.name, marks=needs(test)) for one, test in FAILING],
)
def test_the_home_of_a_promise_fails_on_a_mutant(mutant: Mutant, test: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "tests.mutants.planted",
            "--timeout=60",
            test,
        ],
        cwd=ROOT,
        env={**os.environ, "COORDLOCK_MUTANT": mutant.name, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "1 failed" in done.stdout


def test_the_table_of_promises_names_what_there_is() -> None:
    """In CONTRIBUTING.md: files, suites, kinds of bad days, mutants and their modules."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| promise | home | mutants |")[2]
    rows = [row.split("|")[2:4] for row in table.splitlines() if row.startswith("| ")][1:]
    classes = {
        found
        for folder in ("coordlock/testing", "tests/contract", "tests/simulation")
        for file in (ROOT / folder).rglob("*.py")
        for found in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE)
    }
    modules = {file.stem for file in Path(__file__).parent.glob("*.py")}
    named: set[str] = set()
    for home, mutants in rows:
        for name in re.findall(r"`([^`]+)`", home):
            assert name in classes or (ROOT / name).exists(), name
        for name in re.findall(r"`([^`]+)`", mutants):
            assert name in classes | modules | MUTANTS.keys() or (ROOT / name).exists(), name
            named.add(name)
        assert "`" in mutants or "in the file" in mutants, home
    assert len(rows) > 25
    assert len(named & MUTANTS.keys()) > len(MUTANTS) / 2
