from __future__ import annotations

from collections.abc import Iterator

import pytest
from coordlock_zookeeper import ZookeeperBackend

from coordlock.testing.backend_contract import BackendContract, Party
from coordlock.testing.connection import Connection
from coordlock.testing.conversion_contract import ConversionContract
from coordlock.testing.deadlock_contract import DeadlockContract
from coordlock.testing.entry_set_contract import EntrySetContract
from coordlock.testing.kept_value_contract import KeptValueContract
from coordlock.testing.lock_contract import LockContract
from coordlock.testing.multi_lock_contract import MultiLockContract
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.published_value_contract import PublishedValueContract
from coordlock.testing.transaction_contract import TransactionContract
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.servers.zookeeper import ZooKeeper


@pytest.fixture
def url(zookeeper: ZooKeeper, root: str) -> str:
    return zookeeper.url_for(root)


class TestBackend(BackendContract):
    backend = ZookeeperBackend


class TestLocks(LockContract):
    backend = ZookeeperBackend


class TestMultiLocks(MultiLockContract):
    backend = ZookeeperBackend


class TestConversions(ConversionContract):
    backend = ZookeeperBackend


class TestKeptValues(KeptValueContract):
    backend = ZookeeperBackend


class TestDeadlocks(DeadlockContract):
    backend = ZookeeperBackend


class TestTransactions(TransactionContract):
    backend = ZookeeperBackend


class TestEntrySets(EntrySetContract):
    backend = ZookeeperBackend

    @pytest.fixture
    def url(self, zookeeper: ZooKeeper, root: str) -> Iterator[str]:
        with FaultProxy(zookeeper.host, zookeeper.port, ZooKeeperFrames) as self.proxy:
            yield f"zookeeper://127.0.0.1:{self.proxy.port}{root}"

    def lose_reply(self, party: Party, method: str) -> None:
        self.proxy.on_request("multi", Connection.lose_reply)


class TestPublishedValues(PublishedValueContract):
    backend = ZookeeperBackend

    @pytest.fixture
    def url(self, zookeeper: ZooKeeper, root: str) -> Iterator[str]:
        with FaultProxy(zookeeper.host, zookeeper.port, ZooKeeperFrames) as self.proxy:
            yield f"zookeeper://127.0.0.1:{self.proxy.port}{root}"

    def lose_reply(self, party: Party, method: str) -> None:
        self.proxy.on_request("setData", Connection.lose_reply)
