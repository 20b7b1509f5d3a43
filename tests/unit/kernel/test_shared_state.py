"""What recipes share within a client: for as long as somebody uses it, and not much longer."""

from __future__ import annotations

import gc
import weakref

from coordlock import Client
from coordlock.locks.reentrant import _Hold
from tests.unit.clients import Service


def test_names_that_nobody_uses_any_more_are_forgotten(service: Service) -> None:
    with service.client() as client:
        for number in range(2000):
            client.work_queue(f"queue-{number}")
            with client.reentrant_lock("q", owner=number):
                pass
        gc.collect()
        assert len(client._engine._used) <= 256
        assert not client._engine.share(_Hold, weakref.WeakValueDictionary)


def test_what_somebody_uses_stays_shared(service: Service) -> None:
    with service.client() as client:
        queue = client.work_queue("q")
        shared = queue._shared
        for number in range(2000):
            client.work_queue(f"queue-{number}")
        assert client.work_queue("q")._shared is shared


def test_an_owner_keeps_its_lock_however_many_others_come(client: Client) -> None:
    lock = client.reentrant_lock("q", owner="me")
    with lock as grant:
        for number in range(2000):
            client.work_queue(f"queue-{number}")
        gc.collect()
        with lock as again:
            assert again.token == grant.token
