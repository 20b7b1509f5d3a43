from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordlock.runtime.recorder import RECORDER, Event
from coordlock.testing.lock_service import LockService


@pytest.fixture
def locks() -> Iterator[LockService]:
    with LockService() as service:
        yield service


@pytest.fixture
def recorded() -> Iterator[list[Event]]:
    """All events of this process, as they are recorded."""
    events: list[Event] = []
    remove = RECORDER.add(events.append)
    yield events
    remove()
