from __future__ import annotations

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.lock_contract import LockContract
from coordlock.testing.transaction_contract import TransactionContract
from testbed.servers.etcd import Etcd


@pytest.fixture
def url(etcd: Etcd, root: str) -> str:
    return etcd.url_for(root)


class TestBackend(BackendContract):
    backend = EtcdBackend


class TestLocks(LockContract):
    backend = EtcdBackend


class TestTransactions(TransactionContract):
    backend = EtcdBackend
