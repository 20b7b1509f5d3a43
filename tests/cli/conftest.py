"""Fixtures for the command line."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.beating import Beating
from tests.cli.command import Cli, is_gone


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command line on this machine's backend, in a directory of the test's own."""
    return Cli(f"local://{tmp_path}/state?request_timeout=40s", tmp_path)


@pytest.fixture
def beating(tmp_path: Path) -> Iterator[Beating]:
    """A command with a grandchild that show when they were last alive."""
    beats = Beating(tmp_path)
    yield beats
    for pid in beats.pids():
        if not is_gone(pid):
            os.kill(pid, signal.SIGKILL)
