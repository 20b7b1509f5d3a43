from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from coordlock_memory import Fault, MemoryBackend

from coordlock.testing.asking_contract import AskingContract
from coordlock.testing.backend_contract import BackendContract, Party
from coordlock.testing.barrier_contract import BarrierContract
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
from coordlock.testing.published_value_contract import PublishedValueContract
from coordlock.testing.sequencer_contract import SequencerContract
from coordlock.testing.transaction_contract import TransactionContract
from coordlock.testing.value_contract import ValueContract
from coordlock.testing.work_queue_contract import WorkQueueContract


@pytest.fixture
def url(root: str) -> str:
    return f"memory://{root}"


class Disturbed(DisturbedSuite):
    def lose_reply(self, party: Party, method: str) -> None:
        assert isinstance(party.backend, MemoryBackend)
        party.backend.faults.inject(method, Fault.LOSE_REPLY)

    @contextmanager
    def cut_off(self, party: Party) -> Iterator[None]:
        assert isinstance(party.backend, MemoryBackend)
        party.backend.faults.partition()
        yield
        party.backend.faults.heal()


class TestBackend(BackendContract):
    backend = MemoryBackend


class TestLocks(LockContract):
    backend = MemoryBackend


class TestMultiLocks(MultiLockContract):
    backend = MemoryBackend


class TestConversions(ConversionContract):
    backend = MemoryBackend


class TestElections(ElectionContract):
    backend = MemoryBackend


class TestGroups(GroupContract):
    backend = MemoryBackend


class TestWorkQueues(WorkQueueContract):
    backend = MemoryBackend


class TestValues(ValueContract):
    backend = MemoryBackend


class TestCounters(CounterContract):
    backend = MemoryBackend


class TestBarriers(BarrierContract):
    backend = MemoryBackend


class TestSequencers(SequencerContract):
    backend = MemoryBackend


class TestAsking(AskingContract):
    backend = MemoryBackend


class TestKeptValues(KeptValueContract):
    backend = MemoryBackend


class TestDeadlocks(DeadlockContract):
    backend = MemoryBackend


class TestTransactions(TransactionContract):
    backend = MemoryBackend


class TestEntrySets(Disturbed, EntrySetContract):
    backend = MemoryBackend


class TestPublishedValues(Disturbed, PublishedValueContract):
    backend = MemoryBackend


class TestObservations(Disturbed, ObservationContract):
    backend = MemoryBackend


class TestData(Disturbed, DataContract):
    backend = MemoryBackend
