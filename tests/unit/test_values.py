"""Values when answers are lost, and keys that are not for them."""

from __future__ import annotations

import pytest
from coordlock_memory import Fault

from coordlock import BackendUnavailable
from coordlock.client import Client
from coordlock.errors import InvalidName
from coordlock.types import VersionedValue
from tests.unit.clients import Service, backend

KEY = "/app/limit"


def test_a_silent_service_ends_a_write_at_its_time(service: Service) -> None:
    client = service.client(request_timeout=0.05)
    backend(client).faults.partition()
    with pytest.raises(
        BackendUnavailable, match=r"no answer in time \(memory:.*\); the write may have been made"
    ):
        client.value(KEY).set(b"1")
    with pytest.raises(BackendUnavailable):
        client.value(KEY).get()
    backend(client).faults.heal()


def test_an_update_repeats_its_reading(client: Client) -> None:
    backend(client).faults.inject("read", Fault.LOSE_REPLY, times=2)
    assert client.value(KEY).update(lambda _: b"1") == VersionedValue(b"1", 1)


def test_keys_of_coordlocks_own_are_refused(client: Client) -> None:
    root = client._engine.data_root
    for key in (f"{root}/@counters/x", f"{root}/@values"):
        with pytest.raises(InvalidName):
            client.value(key)
        with pytest.raises(InvalidName):
            client.values(key)
        with pytest.raises(InvalidName):
            client.transaction().put(key, b"1")
