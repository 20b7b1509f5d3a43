from __future__ import annotations

import pytest
from coordlock_memory import MemoryBackend

from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.lock_contract import LockContract


class _Memory:
    backend = MemoryBackend

    @pytest.fixture
    def url(self, root: str) -> str:
        return f"memory://{root}"


class TestBackend(_Memory, BackendContract):
    """The memory backend keeps the contract."""


class TestLocks(_Memory, LockContract):
    """Locks in memory keep theirs."""
