"""The value of a lock when answers are lost, and when others have written its record."""

from __future__ import annotations

import threading
import time

import pytest
from coordlock_memory import Fault

from coordlock import Client, Mode
from coordlock.backend import Put
from coordlock.types import ValueGrant
from tests.unit.clients import Service, backend


def leave_behind(client: Client, record: bytes) -> None:
    key = f"{client._engine.data_root}/@values/a"
    backend(client).write([Put(key, record)]).result(0)


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        b'{"format": 0}',
        b'{"open": true, "delay": 5}',
        b'{"format": 1, "open": false}',
        b'{"format": 1, "open": false, "value": "?"}',
        b'{"format": 1, "open": true, "delay": -1}',
        b'{"format": 1, "open": true, "delay": NaN, "found": NaN}',
        b'{"format": 1, "open": true, "delay": 1%s}' % (b"0" * 400),
        b'{"format": 1, "open": true, "delay": 5, "found": 1%s}' % (b"0" * 400),
        b'{"format": 1, "open": true, "delay": 5, "found": -Infinity}',
    ],
    ids=lambda record: record[:48].decode(errors="replace"),
)
def test_a_record_that_another_program_wrote_is_no_value_and_stops_nobody(
    client: Client, record: bytes
) -> None:
    leave_behind(client, record)
    for mode in (Mode.PR, Mode.EX):
        with client.value_lock("a", mode=mode, timeout=5) as grant:
            assert grant.value is None


@pytest.mark.parametrize("found", [b"", b', "found": NaN', b', "found": 1e300'])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fault", Fault)
def test_a_delay_is_waited_for_once_though_the_answer_to_its_mark_is_lost(
    service: Service, client: Client, fault: Fault, times: int, found: bytes
) -> None:
    leave_behind(client, b'{"format": 1, "open": true, "delay": 0.3%s}' % found)
    backend(client).faults.inject("write", fault, times)
    began = time.monotonic()
    with client.value_lock("a", timeout=30) as grant:
        assert time.monotonic() - began >= 0.3
        assert grant.value is None
        grant.value = b"one"
    with service.client().value_lock("a", timeout=30) as grant:
        assert grant.value == b"one"


def test_readers_that_mark_a_delay_at_once_wait_for_it_together(service: Service) -> None:
    leave_behind(service.client(), b'{"format": 1, "open": true, "delay": 0.3}')
    grants: list[tuple[float, ValueGrant]] = []

    def read(client: Client) -> None:
        lock = client.value_lock("a", mode=Mode.PR, timeout=30)
        grant = lock.acquire()
        grants.append((time.monotonic(), grant))

    began = time.monotonic()
    threads = [threading.Thread(target=read, args=(service.client(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(at - began >= 0.3 and grant.value is None for at, grant in grants)
    assert len(grants) == 8
    for _, grant in grants:
        grant.release()
    with service.client().value_lock("a", timeout=0) as writer:
        assert writer.value is None


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_REPLY])
@pytest.mark.parametrize("lost", ["the open mark", "the value"])
def test_a_mark_is_not_taken_for_the_value_that_was_lost(
    client: Client, lost: str, fault: Fault
) -> None:
    faults = backend(client).faults
    if lost == "the open mark":
        faults.inject("write", fault)
    with client.value_lock("handed on") as grant:
        grant.value = b"kept"
        if lost == "the value":
            faults.inject("write", fault)
    with client.value_lock("handed on") as grant:
        assert grant.value == b"kept"
