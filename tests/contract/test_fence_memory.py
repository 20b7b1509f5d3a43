"""The memory fence passes the suite of fences."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordlock.fencing import AsyncMemoryFence, Marks, MemoryFence, Presented
from coordlock.testing.fence_contract import FenceContract, Protected
from coordlock.testing.portal import Portal


class InMemory(Protected):
    def __init__(self) -> None:
        self.fence = MemoryFence()
        self.values: dict[str, int] = {}

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        with self.fence.guard(resource, token, shared):
            return self.values.get(resource, 0)

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        with self.fence.guard(resource, token, shared):
            self.values[resource] = value

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        self.fence.check(resource, token, shared)

    def marks(self, resource: str) -> Marks:
        return self.fence.marks(resource)

    def forget(self, resource: str) -> None:
        self.fence.forget(resource)


class InMemoryAsync(Protected):
    def __init__(self, portal: Portal) -> None:
        self.fence = AsyncMemoryFence()
        self.values: dict[str, int] = {}
        self.portal = portal

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        async def read() -> int:
            async with self.fence.guard(resource, token, shared):
                return self.values.get(resource, 0)

        return self.portal.wait(read())

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        async def write() -> None:
            async with self.fence.guard(resource, token, shared):
                self.values[resource] = value

        self.portal.wait(write())

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        self.portal.wait(self.fence.check(resource, token, shared))

    def marks(self, resource: str) -> Marks:
        return self.portal.wait(self.fence.marks(resource))

    def forget(self, resource: str) -> None:
        self.portal.wait(self.fence.forget(resource))


class TestMemoryFence(FenceContract):
    fence = MemoryFence

    @pytest.fixture
    def protected(self) -> Protected:
        return InMemory()


class TestAsyncMemoryFence(FenceContract):
    fence = AsyncMemoryFence

    @pytest.fixture
    def protected(self) -> Iterator[Protected]:
        portal = Portal()
        yield InMemoryAsync(portal)
        portal.close()
