"""Clients of a memory service in real time, with faults within reach."""

from __future__ import annotations

from coordlock_memory import MemoryBackend, MemoryService

from coordlock.client import AsyncClient, Client
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from coordlock.runtime.driver import run
from coordlock.settings import Settings

#: Seconds that a request may take: less than the 30 s that tests wait for what waits for others.
PATIENCE_S = 20.0


class Service:
    """A memory service and the backends of its clients."""

    def __init__(self) -> None:
        self.service = MemoryService()

    def engine(self, ttl: float = 30.0, request_timeout: float = PATIENCE_S) -> Engine:
        """An engine with an open session."""
        settings = Settings("memory", ttl=ttl, request_timeout=request_timeout)
        engine = Engine(MemoryBackend(self.service, ttl), settings)
        run(engine.session())
        return engine

    def client(self, **options: float) -> Client:
        return Client._of(Access(self.engine(**options)))

    def async_client(self, **options: float) -> AsyncClient:
        return AsyncClient._of(Access(self.engine(**options)))

    def evict(self, name: str) -> None:
        """Remove everybody from the queue of ``name``."""
        for contender in self.service.snapshot(name).contenders:
            self.service.remove(contender)

    def size(self, name: str) -> int:
        """How many contenders the queue of ``name`` has."""
        return len(self.service.snapshot(name).contenders)


def backend(client: Client | AsyncClient) -> MemoryBackend:
    """The backend of ``client``."""
    found = client._engine.backend
    assert isinstance(found, MemoryBackend)
    return found
