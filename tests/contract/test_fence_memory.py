"""The memory fence passes the suite of fences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from coordlock.fencing import AsyncMemoryFence, MemoryFence, Presented
from coordlock.testing.fence_contract import FenceContract, Protected
from coordlock.testing.portal import Portal


class InMemory(Protected):
    def __init__(self, fence: Any) -> None:
        super().__init__(fence)
        self.values: dict[str, int] = {}

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        with self.fence.guard(resource, token, shared):
            return self.values.get(resource, 0)

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        with self.fence.guard(resource, token, shared):
            self.values[resource] = value


class TestMemoryFence(FenceContract):
    fence = MemoryFence

    @pytest.fixture
    def protected(self) -> Protected:
        return InMemory(MemoryFence())


class TestAsyncMemoryFence(FenceContract):
    fence = AsyncMemoryFence

    @pytest.fixture
    def protected(self) -> Iterator[Protected]:
        with closing(Portal()) as portal:
            yield InMemory(portal.front(AsyncMemoryFence()))
