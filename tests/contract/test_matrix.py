"""The suites run for every backend there is, sync and async; nothing is left out silently."""

from __future__ import annotations

import importlib
import inspect
from typing import Final

import pytest

from coordlock import backend
from coordlock.backend import (
    Backend,
    Data,
    EntrySets,
    ObservableQueues,
    PublishedValues,
    Transactions,
)
from coordlock.backend.registry import backend_for_scheme, schemes
from coordlock.client import AsyncClient
from coordlock.testing.asking_contract import AskingContract
from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.barrier_contract import BarrierContract
from coordlock.testing.client_suite import DRIVERS
from coordlock.testing.conversion_contract import ConversionContract
from coordlock.testing.counter_contract import CounterContract
from coordlock.testing.data_contract import DataContract
from coordlock.testing.deadlock_contract import DeadlockContract
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

#: What a backend may add to the contract, with its suite, and the backends that have it.
ADDITIONS: Final[dict[type, tuple[type, set[str]]]] = {
    Transactions: (TransactionContract, {"etcd", "local", "zookeeper", "memory"}),
    EntrySets: (EntrySetContract, {"etcd", "local", "memory", "zookeeper"}),
    PublishedValues: (PublishedValueContract, {"etcd", "local", "memory", "zookeeper"}),
    ObservableQueues: (ObservationContract, {"etcd", "local", "memory", "zookeeper"}),
    Data: (DataContract, {"etcd", "local", "memory", "zookeeper"}),
}
ALL: Final = {scheme: backend_for_scheme(scheme) for scheme in schemes()}


def test_every_addition_to_the_contract_is_here() -> None:
    abstract = {
        kind
        for name in backend.__all__
        if inspect.isclass(kind := getattr(backend, name)) and inspect.isabstract(kind)
    }
    assert abstract == {Backend, *ADDITIONS}


@pytest.mark.parametrize("addition", ADDITIONS, ids=lambda addition: addition.__name__)
def test_the_backends_that_have_an_addition_are_known(addition: type) -> None:
    having = {scheme for scheme, kind in ALL.items() if issubclass(kind, addition)}
    assert having == ADDITIONS[addition][1]


@pytest.mark.parametrize(
    "suite",
    [
        BackendContract,
        LockContract,
        MultiLockContract,
        ConversionContract,
        KeptValueContract,
        GroupContract,
        ElectionContract,
        ValueContract,
        CounterContract,
        BarrierContract,
        SequencerContract,
        AskingContract,
        DeadlockContract,
        WorkQueueContract,
        *(suite for suite, _ in ADDITIONS.values()),
    ],
)
def test_every_registered_backend_runs_the_suite(suite: type) -> None:
    expected = next((having for one, having in ADDITIONS.values() if one is suite), ALL.keys())
    tested: dict[str, object] = {}
    for scheme in schemes():
        module = importlib.import_module(f"tests.contract.test_{scheme}")
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, suite) and kind is not suite:
                tested[scheme] = vars(kind)["backend"]
    assert tested == {scheme: ALL[scheme] for scheme in expected}


def test_every_primitive_is_in_the_suite_with_both_drivers() -> None:
    # What a client makes without waiting for the service is one; all else is awaited.
    primitives = {
        name
        for name, value in inspect.getmembers(AsyncClient, inspect.isfunction)
        if not name.startswith("_") and not inspect.iscoroutinefunction(value)
    }
    locks = {"lock", "read_lock", "write_lock", "semaphore"}
    assert primitives == {
        *locks,
        "upgradeable_lock",
        "multi_lock",
        "tree_lock",
        "group",
        "work_queue",
        "election",
        "value",
        "values",
        "transaction",
        "counter",
        "latch",
        "gate",
        "barrier",
        "double_barrier",
    }
    suites = (
        LockContract,
        MultiLockContract,
        ConversionContract,
        GroupContract,
        ElectionContract,
        WorkQueueContract,
        ValueContract,
        CounterContract,
        BarrierContract,
    )
    source = "".join(map(inspect.getsource, suites))
    assert all(f".{primitive}(" in source for primitive in primitives)
    assert DRIVERS == ("sync", "async")


def test_the_contract_has_eleven_methods_and_a_constructor() -> None:
    assert len(Backend.__abstractmethods__ - {"configure"}) == 11
