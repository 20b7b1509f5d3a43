"""Observers that are all that is left of a client."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from coordlock.client import Client
from coordlock.kernel.access import Access, close
from coordlock.recipes.shared.observer import Observer
from coordlock.runtime.driver import run
from tests.unit.clients import Service

OBSERVED: dict[str, Callable[[Client], Observer[Any]]] = {
    "counter": lambda client: client.counter("n").observe(),
    "election": lambda client: client.election("n").observe(),
    "group": lambda client: client.group("n").observe(),
    "value": lambda client: client.value("/app/n").observe(),
    "values": lambda client: client.values("/app").observe(),
}


@pytest.mark.parametrize("observe", OBSERVED.values(), ids=OBSERVED)
def test_an_observer_keeps_its_client(
    service: Service, observe: Callable[[Client], Observer[Any]]
) -> None:
    engine = service.engine()

    def of_a_dropped_client() -> tuple[Observer[Any], weakref.ref[Access]]:
        client = Client._of(Access(engine))
        return observe(client), weakref.ref(client._access)

    observer, access = of_a_dropped_client()
    gc.collect()
    assert access() is not None
    observer.close()
    run(close(engine))
