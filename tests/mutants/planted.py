"""A plugin of pytest that runs tests on a mutant: ``pytest -p tests.mutants.planted``.

``COORDLOCK_MUTANT`` names the mutant. It is planted in the tests' process and in the commands that
they run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from coordlock.cli import script
from tests.cli.command import Cli
from tests.mutants.catalogue import MUTANTS


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[None]:
    name = os.environ["COORDLOCK_MUTANT"]

    def command(_: Cli, *arguments: str) -> list[str]:
        return [sys.executable, "-m", __name__, name, *arguments]

    with MUTANTS[name](), patch.object(Cli, "command", command):
        return (yield)


if __name__ == "__main__":
    with MUTANTS[sys.argv.pop(1)]():
        script()
