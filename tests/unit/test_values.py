"""Values when answers are lost, and keys that are not for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from coordlock_memory import Fault

from coordlock import BackendUnavailable
from coordlock.client import Client
from coordlock.errors import InvalidName
from coordlock.types import VersionedValue
from tests.unit.clients import Service, backend

KEY = "/app/limit"


@pytest.mark.parametrize("fault", Fault)
def test_a_write_without_an_answer_is_made_at_most_once_and_says_so(
    client: Client, fault: Fault
) -> None:
    limit = client.value(KEY)
    writes: list[Callable[[], object]] = [
        lambda: limit.set(b"1"),
        lambda: limit.set(b"1", expect=0),
        lambda: limit.update(lambda _: b"1"),
        lambda: client.transaction().put(KEY, b"1").commit(),
    ]
    for write in writes:
        backend(client).faults.inject("write", fault)
        with pytest.raises(BackendUnavailable, match="may have been made, or may be yet"):
            write()
        if fault is not Fault.LATE:
            stored = None if fault is Fault.LOSE_REQUEST else VersionedValue(b"1", 1)
            assert limit.get() == stored
            limit.delete()


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
