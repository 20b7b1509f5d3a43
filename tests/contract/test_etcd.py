from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.backend.config import configure
from coordlock.testing.asking_contract import AskingContract
from coordlock.testing.backend_contract import BOUND, BackendContract, Party
from coordlock.testing.barrier_contract import BarrierContract
from coordlock.testing.connection import Connection
from coordlock.testing.conversion_contract import ConversionContract
from coordlock.testing.counter_contract import CounterContract
from coordlock.testing.data_contract import DataContract
from coordlock.testing.deadlock_contract import DeadlockContract
from coordlock.testing.disturbed_suite import DisturbedSuite
from coordlock.testing.election_contract import ElectionContract
from coordlock.testing.entry_set_contract import EntrySetContract
from coordlock.testing.group_contract import GroupContract
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.kept_value_contract import KeptValueContract
from coordlock.testing.lock_contract import LockContract
from coordlock.testing.multi_lock_contract import MultiLockContract
from coordlock.testing.observation_contract import ObservationContract
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.published_value_contract import PublishedValueContract
from coordlock.testing.sequencer_contract import SequencerContract
from coordlock.testing.transaction_contract import TransactionContract
from coordlock.testing.value_contract import ValueContract
from coordlock.testing.work_queue_contract import WorkQueueContract
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


class TestElections(ElectionContract):
    backend = EtcdBackend


class TestGroups(GroupContract):
    backend = EtcdBackend


class TestWorkQueues(WorkQueueContract):
    backend = EtcdBackend


class TestValues(ValueContract):
    backend = EtcdBackend


class TestCounters(CounterContract):
    backend = EtcdBackend


class TestBarriers(BarrierContract):
    backend = EtcdBackend


class TestSequencers(SequencerContract):
    backend = EtcdBackend


class TestAsking(AskingContract):
    backend = EtcdBackend


class TestKeptValues(KeptValueContract):
    backend = EtcdBackend


class TestDeadlocks(DeadlockContract):
    backend = EtcdBackend


class TestTransactions(TransactionContract):
    backend = EtcdBackend


class Disturbed(DisturbedSuite):
    """Each party has a proxy of its own."""

    @pytest.fixture
    def party(self, etcd: Etcd, root: str) -> Iterator[Callable[[], Party]]:
        self.proxies: dict[Party, FaultProxy] = {}
        with ExitStack() as stack:

            def make() -> Party:
                proxy = stack.enter_context(FaultProxy(etcd.host, etcd.port, GrpcFrames))
                url = f"etcd://127.0.0.1:{proxy.port}{root}"
                party = Party(self.backend.configure(configure(url)))
                self.proxies[party] = proxy
                return party

            yield make
            for one in self.proxies:
                one.backend.close().result(BOUND)

    def lose_reply(self, party: Party, method: str) -> None:
        self.proxies[party].on_request("*Txn", Connection.lose_reply)

    @contextmanager
    def cut_off(self, party: Party) -> Iterator[None]:
        proxy = self.proxies[party]
        proxy.refuse()
        proxy.drop_connections()
        yield
        proxy.heal()


class TestEntrySets(Disturbed, EntrySetContract):
    backend = EtcdBackend


class TestObservations(Disturbed, ObservationContract):
    backend = EtcdBackend


class TestData(Disturbed, DataContract):
    backend = EtcdBackend


class TestPublishedValues(Disturbed, PublishedValueContract):
    backend = EtcdBackend
