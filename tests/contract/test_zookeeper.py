from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from coordlock_zookeeper import ZookeeperBackend

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


class TestElections(ElectionContract):
    backend = ZookeeperBackend


class TestGroups(GroupContract):
    backend = ZookeeperBackend


class TestWorkQueues(WorkQueueContract):
    backend = ZookeeperBackend


class TestValues(ValueContract):
    backend = ZookeeperBackend


class TestCounters(CounterContract):
    backend = ZookeeperBackend


class TestBarriers(BarrierContract):
    backend = ZookeeperBackend


class TestSequencers(SequencerContract):
    backend = ZookeeperBackend


class TestAsking(AskingContract):
    backend = ZookeeperBackend


class TestKeptValues(KeptValueContract):
    backend = ZookeeperBackend


class TestDeadlocks(DeadlockContract):
    backend = ZookeeperBackend


class TestTransactions(TransactionContract):
    backend = ZookeeperBackend


class Disturbed(DisturbedSuite):
    """Each party has a proxy of its own."""

    @pytest.fixture
    def party(self, zookeeper: ZooKeeper, root: str) -> Iterator[Callable[[], Party]]:
        self.proxies: dict[Party, FaultProxy] = {}
        with ExitStack() as stack:

            def make() -> Party:
                proxy = FaultProxy(zookeeper.host, zookeeper.port, ZooKeeperFrames)
                stack.enter_context(proxy)
                url = f"zookeeper://127.0.0.1:{proxy.port}{root}"
                party = Party(self.backend.configure(configure(url)))
                self.proxies[party] = proxy
                return party

            yield make
            for one in self.proxies:
                one.backend.close().result(BOUND)

    def lose_reply(self, party: Party, method: str) -> None:
        operation = {"publish": "setData", "enqueue": "create2"}.get(method, "multi")
        # The first of a key in a new folder does nothing: it finds out that there is no folder.
        nth = 2 if method == "write" else 1
        self.proxies[party].on_request(operation, Connection.lose_reply, nth=nth)

    @contextmanager
    def cut_off(self, party: Party) -> Iterator[None]:
        proxy = self.proxies[party]
        proxy.refuse()
        proxy.drop_connections()
        yield
        proxy.heal()


class TestEntrySets(Disturbed, EntrySetContract):
    backend = ZookeeperBackend


class TestObservations(Disturbed, ObservationContract):
    backend = ZookeeperBackend


class TestData(Disturbed, DataContract):
    backend = ZookeeperBackend


class TestPublishedValues(Disturbed, PublishedValueContract):
    backend = ZookeeperBackend
