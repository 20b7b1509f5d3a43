from __future__ import annotations

import pytest
from coordlock_zookeeper import ZookeeperBackend

from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.lock_contract import LockContract
from tests.servers.zookeeper import ZooKeeper


class _Zookeeper:
    backend = ZookeeperBackend

    @pytest.fixture
    def url(self, zookeeper: ZooKeeper, root: str) -> str:
        return zookeeper.url_for(root)


class TestBackend(_Zookeeper, BackendContract):
    """The zookeeper backend keeps the contract."""


class TestLocks(_Zookeeper, LockContract):
    """Locks over it keep theirs."""
