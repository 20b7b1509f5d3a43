from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

import coordlock.kernel.tickets
from coordlock.client import Client
from coordlock.settings import COMMON_OPTIONS
from tests.simulation.world import Party, World
from tests.unit.clients import PATIENCE_S, Service

_OPTIONS = tuple(
    replace(one, default=PATIENCE_S) if one.name == "request_timeout" else one
    for one in COMMON_OPTIONS
)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with service.client() as client:
        yield client


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may take 20 s where nothing else is said: a machine may stand still for seconds."""
    monkeypatch.setattr("coordlock.backend.config.COMMON_OPTIONS", _OPTIONS)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def party(world: World) -> Party:
    return world.party()


@pytest.fixture
def other(world: World) -> Party:
    return world.party()


@pytest.fixture
def generators_end_unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C that strikes at the end of a generator cannot be raised, and is no news."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.fixture
def sweeps_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are made from here on remove at once what a signal handler has struck."""
    monkeypatch.setattr(coordlock.kernel.tickets, "SWEEP_PAUSE_S", 0.1)
