from __future__ import annotations

from pathlib import Path

import pytest
from coordlock_local import LocalBackend

from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.lock_contract import LockContract


class _Local:
    backend = LocalBackend

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"local://{tmp_path}/state"


class TestBackend(_Local, BackendContract):
    """The local backend keeps the contract."""


class TestLocks(_Local, LockContract):
    """Locks over it keep theirs."""
