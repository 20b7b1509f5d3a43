"""A fence in the memory of one process: for resources that live in it, and for tests."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from coordlock.clock import SYSTEM_CLOCK
from coordlock.driver import Steps, run, run_async
from coordlock.fencing.fence import AsyncGuardingFence, GuardingFence
from coordlock.fencing.marks import Marks
from coordlock.fencing.token import FencingToken, Presented
from coordlock.promise import Promise

__all__ = ["AsyncMemoryFence", "MemoryFence"]


@dataclass(eq=False)
class _Operation:
    token: FencingToken
    over: Promise[None] = field(default_factory=Promise)


class _Memory:
    """The marks, and the operations under way. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[str, Marks] = {}
        self._running: dict[str, list[_Operation]] = {}

    def enter(self, resource: str, token: FencingToken) -> Steps[_Operation]:
        """Begin an operation, once the older ones that conflict with it are over.

        The marks are raised first, so that no older one begins any more; those under way are a
        fixed set, and wait for none but still older ones: no cycle, and each wait ends.
        """
        operation = _Operation(token)
        with self._lock:
            marks = self._marks.get(resource, Marks())
            self._marks[resource] = marks.raised(resource, token)
            running = self._running.setdefault(resource, [])
            older = [one for one in running if one.token.conflicts(token)]
            running.append(operation)
        try:
            for one in older:
                yield one.over
        except BaseException:
            self.leave(resource, operation)
            raise
        return operation

    def leave(self, resource: str, operation: _Operation) -> None:
        """End an operation."""
        with self._lock:
            running = self._running[resource]
            running.remove(operation)
            if not running:
                del self._running[resource]
        operation.over.resolve(None)

    def marks_of(self, resource: str) -> Marks:
        with self._lock:
            return self._marks.get(resource, Marks())

    def forget_all_of(self, resource: str) -> None:
        with self._lock:
            self._marks.pop(resource, None)


class MemoryFence(GuardingFence):
    """Protects what lives in this process, from its threads, as long as the process lives.

    It forgets when the process ends, so it must not protect anything that outlives it.
    """

    def __init__(self) -> None:
        self._memory = _Memory()

    @contextmanager
    def guard(self, resource: str, token: Presented, shared: bool = False) -> Iterator[None]:
        """Check, and hold newer tokens back until the block ends: see `GuardingFence.guard`."""
        entering = self._memory.enter(resource, FencingToken.of(token, shared))
        operation = run(entering, SYSTEM_CLOCK)
        try:
            yield
        finally:
            self._memory.leave(resource, operation)

    def marks(self, resource: str) -> Marks:
        """The newest tokens seen."""
        return self._memory.marks_of(resource)

    def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        self._memory.forget_all_of(resource)


class AsyncMemoryFence(AsyncGuardingFence):
    """`MemoryFence` for asyncio; also for several event loops in threads."""

    def __init__(self) -> None:
        self._memory = _Memory()

    @asynccontextmanager
    async def guard(
        self, resource: str, token: Presented, shared: bool = False
    ) -> AsyncIterator[None]:
        """Check, and hold newer tokens back until the block ends: see `GuardingFence.guard`."""
        entering = self._memory.enter(resource, FencingToken.of(token, shared))
        operation = await run_async(entering, SYSTEM_CLOCK)
        try:
            yield
        finally:
            self._memory.leave(resource, operation)

    async def marks(self, resource: str) -> Marks:
        """The newest tokens seen."""
        return self._memory.marks_of(resource)

    async def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        self._memory.forget_all_of(resource)
