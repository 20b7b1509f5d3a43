from __future__ import annotations

from collections.abc import Iterator

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.testing.backend_contract import BackendContract, Party
from coordlock.testing.connection import Connection
from coordlock.testing.conversion_contract import ConversionContract
from coordlock.testing.deadlock_contract import DeadlockContract
from coordlock.testing.entry_set_contract import EntrySetContract
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.kept_value_contract import KeptValueContract
from coordlock.testing.lock_contract import LockContract
from coordlock.testing.multi_lock_contract import MultiLockContract
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.published_value_contract import PublishedValueContract
from coordlock.testing.transaction_contract import TransactionContract
from testbed.servers.etcd import Etcd


@pytest.fixture
def url(etcd: Etcd, root: str) -> str:
    return etcd.url_for(root)


class TestBackend(BackendContract):
    backend = EtcdBackend


class TestLocks(LockContract):
    backend = EtcdBackend


class TestMultiLocks(MultiLockContract):
    backend = EtcdBackend


class TestConversions(ConversionContract):
    backend = EtcdBackend


class TestKeptValues(KeptValueContract):
    backend = EtcdBackend


class TestDeadlocks(DeadlockContract):
    backend = EtcdBackend


class TestTransactions(TransactionContract):
    backend = EtcdBackend


class TestEntrySets(EntrySetContract):
    backend = EtcdBackend

    @pytest.fixture
    def url(self, etcd: Etcd, root: str) -> Iterator[str]:
        with FaultProxy(etcd.host, etcd.port, GrpcFrames) as self.proxy:
            yield f"etcd://127.0.0.1:{self.proxy.port}{root}"

    def lose_reply(self, party: Party, method: str) -> None:
        self.proxy.on_request("*Txn", Connection.lose_reply)


class TestPublishedValues(PublishedValueContract):
    backend = EtcdBackend

    @pytest.fixture
    def url(self, etcd: Etcd, root: str) -> Iterator[str]:
        with FaultProxy(etcd.host, etcd.port, GrpcFrames) as self.proxy:
            yield f"etcd://127.0.0.1:{self.proxy.port}{root}"

    def lose_reply(self, party: Party, method: str) -> None:
        self.proxy.on_request("*Txn", Connection.lose_reply)
