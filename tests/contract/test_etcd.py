from __future__ import annotations

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.lock_contract import LockContract
from tests.servers.etcd import Etcd


class _Etcd:
    backend = EtcdBackend

    @pytest.fixture
    def url(self, etcd: Etcd, root: str) -> str:
        return etcd.url_for(root)


class TestBackend(_Etcd, BackendContract):
    """The etcd backend keeps the contract."""


class TestLocks(_Etcd, LockContract):
    """Locks over it keep theirs."""
