from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from coordlock_local import LocalBackend

from coordlock.errors import BackendUnavailable
from coordlock.runtime.promise import Promise, failed
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
def url(tmp_path: Path) -> str:
    return f"local://{tmp_path}/state"


class Disturbed(DisturbedSuite):
    def lose_reply(self, party: Party, method: str) -> None:
        """There is no network: the answer is thrown away."""
        request = getattr(party.backend, method)

        def lost(*arguments: Any, **options: Any) -> Promise[Any]:
            request(*arguments, **options).result(30)
            delattr(party.backend, method)
            return failed(BackendUnavailable("local", "the reply was lost"))

        setattr(party.backend, method, lost)

    @contextmanager
    def cut_off(self, party: Party) -> Iterator[None]:
        """There is no network: what is followed cannot be read for a while."""
        assert isinstance(party.backend, LocalBackend)
        followers = party.backend._followers
        assert followers is not None
        failing = MagicMock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO)))
        reads = {one: one.read for one in followers._followed.values()}
        for one in reads:
            one.read = failing  # type: ignore[misc]
        followers._notices.wake()
        yield
        for one, read in reads.items():
            one.read = read  # type: ignore[misc]


class TestBackend(BackendContract):
    backend = LocalBackend


class TestLocks(LockContract):
    backend = LocalBackend


class TestMultiLocks(MultiLockContract):
    backend = LocalBackend


class TestConversions(ConversionContract):
    backend = LocalBackend


class TestElections(ElectionContract):
    backend = LocalBackend


class TestGroups(GroupContract):
    backend = LocalBackend


class TestWorkQueues(WorkQueueContract):
    backend = LocalBackend


class TestValues(ValueContract):
    backend = LocalBackend


class TestCounters(CounterContract):
    backend = LocalBackend


class TestBarriers(BarrierContract):
    backend = LocalBackend


class TestSequencers(SequencerContract):
    backend = LocalBackend


class TestAsking(AskingContract):
    backend = LocalBackend


class TestKeptValues(KeptValueContract):
    backend = LocalBackend


class TestDeadlocks(DeadlockContract):
    backend = LocalBackend


class TestEntrySets(Disturbed, EntrySetContract):
    backend = LocalBackend


class TestPublishedValues(Disturbed, PublishedValueContract):
    backend = LocalBackend


class TestTransactions(TransactionContract):
    backend = LocalBackend


class TestData(Disturbed, DataContract):
    backend = LocalBackend


class TestObservations(Disturbed, ObservationContract):
    backend = LocalBackend
