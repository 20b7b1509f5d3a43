"""A work queue as one client's engine reaches it."""

from __future__ import annotations

from typing import Final

from coordlock.backend import Backend, Listing
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.model.contender import Snapshot
from coordlock.runtime.driver import Steps
from coordlock.work.layout import Layout
from coordlock.work.records import State

__all__ = ["Desk"]


class Desk:
    """The engine, the service that keeps the items, and where it keeps them."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Raises `Unsupported` where the service can't."""
        engine.backend.require("data")
        self.engine: Final = engine
        self.service: Final[Backend] = engine.backend
        self.layout: Final = Layout(engine.data_root, name)

    def read(self, where: str) -> Steps[Listing]:
        """What is kept at ``where``, asked for until there is an answer."""
        return (yield from retried(lambda: self.service.read(where), self.engine.timers))

    def state(self) -> Steps[State]:
        """What changes in the queue. Raises `QueueMismatch`."""
        return State.read(self.layout, (yield from self.read(self.layout.state)))

    def workers(self) -> Steps[Snapshot]:
        """All contenders of those at work, by a reading that shows the present."""
        backend, queue = self.engine.backend, self.layout.workers
        return (
            yield from retried(lambda: backend.snapshot(queue, owners=True), self.engine.timers)
        )
