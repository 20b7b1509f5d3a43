"""The suites run for every backend there is, sync and async; nothing is left out silently."""

from __future__ import annotations

import importlib
import inspect

import pytest

from coordlock.backend import Backend
from coordlock.client import AsyncClient
from coordlock.registry import backend_for_scheme, schemes
from coordlock.testing.backend_contract import BackendContract
from coordlock.testing.client_suite import DRIVERS
from coordlock.testing.lock_contract import LockContract
from coordlock.testing.transaction_contract import TransactionContract
from coordlock.transaction import Transactions


@pytest.mark.parametrize("suite", [BackendContract, LockContract, TransactionContract])
def test_every_registered_backend_runs_the_suite(suite: type) -> None:
    backends = {scheme: backend_for_scheme(scheme) for scheme in schemes()}
    if suite is TransactionContract:
        backends = {k: v for k, v in backends.items() if issubclass(v, Transactions)}
        assert backends.keys() == {"etcd", "zookeeper", "memory"}
    tested: dict[str, object] = {}
    for scheme in schemes():
        module = importlib.import_module(f"tests.contract.test_{scheme}")
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, suite) and kind is not suite:
                tested[scheme] = vars(kind)["backend"]
    assert tested == backends


def test_every_primitive_is_in_the_suite_with_both_drivers() -> None:
    # What a client makes without waiting for the service is one; all else is awaited.
    primitives = {
        name
        for name, value in inspect.getmembers(AsyncClient, inspect.isfunction)
        if not name.startswith("_") and not inspect.iscoroutinefunction(value)
    }
    assert primitives == {"lock", "read_lock", "write_lock", "semaphore"}
    source = inspect.getsource(LockContract)
    assert all(f".{primitive}(" in source for primitive in primitives)
    assert DRIVERS == ("sync", "async")


def test_the_contract_has_ten_methods_and_a_constructor() -> None:
    assert len(Backend.__abstractmethods__ - {"configure"}) == 10
