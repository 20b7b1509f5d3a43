from __future__ import annotations

import pytest
from coordlock_memory import MemoryBackend

from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.lock_contract import LockContract
from coordlock.testing.transaction_contract import TransactionContract


@pytest.fixture
def url(root: str) -> str:
    return f"memory://{root}"


class TestBackend(BackendContract):
    backend = MemoryBackend


class TestLocks(LockContract):
    backend = MemoryBackend


class TestTransactions(TransactionContract):
    backend = MemoryBackend
