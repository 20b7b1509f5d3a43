from __future__ import annotations

from pathlib import Path

import pytest
from coordlock_local import LocalBackend

from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.lock_contract import LockContract


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"local://{tmp_path}/state"


class TestBackend(BackendContract):
    backend = LocalBackend


class TestLocks(LockContract):
    backend = LocalBackend
