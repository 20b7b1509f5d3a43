"""A group whose members have a session each: one way to join, to be asked for by a worker."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["Group"]


class Group(ABC):
    """Its public methods are the orders that a worker obeys.

    Args:
        address: ``host:port`` of the service.
        root: under which it keeps what it writes, such as ``/bench``.
    """

    def __init__(self, address: str, root: str) -> None:
        self.address = address
        self.root = root
        self._members: list[Any] = []

    @abstractmethod
    def connect(self, number: int) -> Any:
        """A member to be, with a session of its own."""

    @abstractmethod
    def disconnect(self, member: Any) -> None:
        """End its session."""

    @abstractmethod
    def join(self, member: Any, name: str) -> None:
        """Return when the service has said that it is a member."""

    @abstractmethod
    def leave(self, member: Any, name: str) -> None:
        """Be none any more."""

    @abstractmethod
    def count(self, member: Any, name: str) -> int:
        """Read the members; how many there are."""

    def make(self, name: str) -> None:
        """Make the group, where that is a step of its own."""

    def gather(self, members: int) -> None:
        """Have so many sessions."""
        self._members = [self.connect(number) for number in range(members)]

    def storm(self, name: str, threads: int) -> tuple[float, float]:
        """Let all join at once; the seconds for that, and those to read all of them."""
        self.make(name)
        with ThreadPoolExecutor(threads) as pool:
            started = time.perf_counter()
            list(pool.map(lambda one: self.join(one, name), self._members))
            joined = time.perf_counter()
            found = self.count(self._members[0], name)
            read = time.perf_counter()
            list(pool.map(lambda one: self.leave(one, name), self._members))
        if found != len(self._members):
            raise RuntimeError(f"{found} members were found of {len(self._members)}")
        return joined - started, read - joined

    def close(self) -> None:
        """End all sessions."""
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(self.disconnect, self._members))
