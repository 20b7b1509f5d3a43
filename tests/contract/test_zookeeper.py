from __future__ import annotations

import pytest
from coordlock_zookeeper import ZookeeperBackend

from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.lock_contract import LockContract
from coordlock.testing.transaction_contract import TransactionContract
from testbed.servers.zookeeper import ZooKeeper


@pytest.fixture
def url(zookeeper: ZooKeeper, root: str) -> str:
    return zookeeper.url_for(root)


class TestBackend(BackendContract):
    backend = ZookeeperBackend


class TestLocks(LockContract):
    backend = ZookeeperBackend


class TestTransactions(TransactionContract):
    backend = ZookeeperBackend
