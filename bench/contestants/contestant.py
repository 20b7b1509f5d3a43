"""What is measured, in a process of its own: one way to lock, with the same handles as all."""

from __future__ import annotations

import asyncio
import resource
import time
from abc import ABC, abstractmethod
from typing import Any, Final

__all__ = ["SERVER", "AsyncContestant", "Contestant", "Grant", "Times"]

#: What psycopg connects to, at an address.
SERVER: Final = "postgresql://coord@{}/postgres"

#: Seconds that an acquire took, and the release after it.
Times = list[tuple[float, float]]
#: When something was granted, in seconds, and how many it was waited for.
Grant = tuple[float, float]


class Contestant(ABC):
    """One way to lock. Its public methods are the orders that a worker obeys; all names are locks.

    Args:
        address: ``host:port`` of the service, or a directory; for coordlock, its URL.
        root: under which it keeps what it writes, such as ``/bench``.
    """

    def __init__(self, address: str, root: str) -> None:
        self.host, _, self.port = address.rpartition(":")
        self.address = address
        self.root = root
        self._held: dict[str, Any] = {}

    @abstractmethod
    def acquire(self, name: str) -> Any:
        """Wait for the lock; what `release` needs."""

    @abstractmethod
    def release(self, held: Any) -> None:
        """Return when the service has said that it is released."""

    def close(self) -> None:
        """End the session."""

    def pairs(self, name: str, calls: int) -> Times:
        """Acquire and release so often, nobody else being there."""
        times = []
        for _ in range(calls):
            started = time.perf_counter()
            held = self.acquire(name)
            acquired = time.perf_counter()
            self.release(held)
            times.append((acquired - started, time.perf_counter() - acquired))
        return times

    def hold(self, name: str) -> float:
        """Acquire and keep it; when that was, on CLOCK_MONOTONIC, which all processes share."""
        self._held[name] = self.acquire(name)
        return time.monotonic()

    def wait(self, name: str) -> float:
        """As `hold`, while another process holds it."""
        return self.hold(name)

    def let_go(self, name: str) -> float:
        """Release what is held; the moment before."""
        started = time.monotonic()
        held = self._held.pop(name)
        if held is not None:
            self.release(held)
        return started

    def contend(self, name: str, begin: float, lead: float, seconds: float) -> list[Grant]:
        """Acquire and release again and again, for ``seconds`` from ``begin`` on.

        Tells the grants after ``begin``, which is on CLOCK_MONOTONIC; before that it has done the
        same for ``lead`` seconds.
        """
        grants = []
        time.sleep(max(0.0, begin - lead - time.monotonic()))
        while (asked := time.monotonic()) < begin + seconds:
            held = self.acquire(name)
            now = time.monotonic()
            if now >= begin:
                grants.append((now - begin, now - asked))
            self.release(held)
        return grants

    def cpu(self) -> float:
        """The seconds of CPU that this process has taken, and those that it started and ended."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime


class AsyncContestant(Contestant):
    """One way to lock in asyncio, on an event loop that lives as long as the process."""

    def __init__(self, address: str, root: str) -> None:
        super().__init__(address, root)
        self.runner = asyncio.Runner()
        self.runner.run(self.open())

    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def take(self, name: str) -> Any:
        """As `acquire`."""

    @abstractmethod
    async def give(self, held: Any) -> None:
        """As `release`."""

    def acquire(self, name: str) -> Any:
        return self.runner.run(self.take(name))

    def release(self, held: Any) -> None:
        self.runner.run(self.give(held))

    def hold(self, name: str) -> float:
        async def hold() -> float:
            self._held[name] = await self.take(name)
            return time.monotonic()  # not when the loop has returned

        return self.runner.run(hold())

    def let_go(self, name: str) -> float:
        async def let_go() -> float:
            started = time.monotonic()  # not when the loop was started
            if (held := self._held.pop(name)) is not None:
                await self.give(held)
            return started

        return self.runner.run(let_go())

    def contend(self, name: str, begin: float, lead: float, seconds: float) -> list[Grant]:
        async def turns() -> list[Grant]:
            grants = []
            await asyncio.sleep(max(0.0, begin - lead - time.monotonic()))
            while (asked := time.monotonic()) < begin + seconds:
                held = await self.take(name)
                now = time.monotonic()
                if now >= begin:
                    grants.append((now - begin, now - asked))
                await self.give(held)
            return grants

        return self.runner.run(turns())

    def pairs(self, name: str, calls: int) -> Times:
        async def turns() -> Times:
            times = []
            for _ in range(calls):
                started = time.perf_counter()
                held = await self.take(name)
                acquired = time.perf_counter()
                await self.give(held)
                times.append((acquired - started, time.perf_counter() - acquired))
            return times

        return self.runner.run(turns())
