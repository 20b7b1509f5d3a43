"""Fixtures of pytest for code that uses locks.

The ``conftest.py`` at the root of your tests turns them on::

    pytest_plugins = ["coordlock.integrations.pytest"]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final, TypeVar
from urllib.parse import quote

import pytest

import coordlock
from coordlock import AsyncClient, Client
from coordlock.runtime.guards import PlainFunction
from coordlock.testing.lock_service import LockService

__all__ = ["async_lock_client", "lock_client", "lock_service", "once_per_run"]

T = TypeVar("T")

_MADE: Final = PlainFunction(
    "once_per_run takes a function without arguments",
    "which would not run",
    "give lambda: asyncio.run(...)",
    "give a function that returns what the tests need",
)


@pytest.fixture
def lock_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[LockService]:
    """A lock service of this test's own, which ``COORDLOCK_URL`` names: a `LockService`."""
    with LockService() as service:
        monkeypatch.setenv("COORDLOCK_URL", service.url)
        yield service


@pytest.fixture
def lock_client(lock_service: LockService) -> Client:
    """A `Client` of the test's own service."""
    return lock_service.connect()


@pytest.fixture
def async_lock_client(lock_service: LockService) -> AsyncClient:
    """An `AsyncClient` of the test's own service."""
    return AsyncClient(lock_service.url)


@pytest.fixture(scope="session")
def once_per_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, Callable[[], T]], T]]:
    """Calls a function once in a run, however many workers of pytest-xdist it has.

    ``once_per_run("database", create)`` gives what ``create()`` has returned, as JSON keeps it. The
    other workers wait for it. If it raises, or its worker dies, the next worker calls it.
    """
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent  # of all workers
    with coordlock.connect(f"local://{quote(str(folder))}/locks") as client:

        def once(name: str, make: Callable[[], T]) -> T:
            _MADE.check(make)
            kept = folder / f"{quote(name, safe='')}.json"
            with client.lock(name):
                if not kept.exists():
                    written = kept.with_suffix(".new")  # renamed: a worker may die here
                    written.write_text(json.dumps(_MADE.finished(make, make())))
                    written.rename(kept)
                made: T = json.loads(kept.read_text())
            return made

        yield once
