"""A fence in the memory of one process: for resources that live in it, and for tests."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from coordlock.fencing.fence import AsyncGuardingFence, GuardingFence
from coordlock.fencing.marks import Marks
from coordlock.fencing.token import FencingToken, Presented, check_resource
from coordlock.runtime.driver import Steps, run, run_async
from coordlock.runtime.guards import block
from coordlock.runtime.promise import Promise

__all__ = ["AsyncMemoryFence", "MemoryFence"]


@dataclass(eq=False)
class _Operation:
    token: FencingToken
    over: Promise[None] = field(default_factory=Promise)

    def end(self) -> None:
        # One step, without the memory's lock, so Ctrl-C cannot interrupt it.
        self.over.resolve(None)


class _Memory:
    """The marks, and the operations under way. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[str, Marks] = {}
        #: The next operation of a resource removes those that are over.
        self._operations: dict[str, list[_Operation]] = {}

    def enter(self, resource: str, operation: _Operation) -> Steps[None]:
        """Begin ``operation``, once those before it that conflict with it are over.

        It raises the marks first, so no older operation begins any more. The operations under way
        are a fixed set, and each waits only for earlier ones: there is no cycle, and each wait
        ends. A waiter that gives up ends its operation; later ones still wait for the others.
        """
        token = operation.token
        check_resource(resource)
        with self._lock:
            self._marks[resource] = self._marks.get(resource, Marks()).raised(resource, token)
            before = [one for one in self._operations.get(resource, ()) if not one.over.done()]
            self._operations[resource] = [*before, operation]
        for one in before:
            if one.token.conflicts(token):
                yield one.over

    def marks_of(self, resource: str) -> Marks:
        with self._lock:
            return self._marks.get(resource, Marks())

    def prune(self, is_gone: Callable[[str, Marks], bool]) -> int:
        with self._lock:
            known = list(self._marks.items())
        gone = [(resource, marks) for resource, marks in known if is_gone(resource, marks)]
        return sum(self.forget_all_of(resource, marks) for resource, marks in gone)

    def forget_all_of(self, resource: str, seen: Marks | None = None) -> bool:
        """Forget ``resource``, unless it has other marks than those that were ``seen``."""
        with self._lock:
            if seen is not None and self._marks.get(resource) != seen:
                return False
            self._marks.pop(resource, None)
            if all(one.over.done() for one in self._operations.get(resource, ())):
                self._operations.pop(resource, None)
            return True


class MemoryFence(GuardingFence):
    """Protects what lives in this process, from its threads, as long as the process lives.

    It forgets when the process ends, so it must not protect anything that outlives it.
    """

    def __init__(self) -> None:
        self._memory = _Memory()

    @block
    def guard(self, resource: str, token: Presented, shared: bool = False) -> Iterator[None]:
        """Check, and hold newer tokens back until the block ends: see `GuardingFence.guard`."""
        operation = _Operation(FencingToken.of(token, shared))
        try:
            run(self._memory.enter(resource, operation))
            yield
        finally:
            operation.end()

    def marks(self, resource: str) -> Marks:
        """The newest tokens seen."""
        return self._memory.marks_of(resource)

    def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        self._memory.forget_all_of(resource)

    def prune(self, is_gone: Callable[[str, Marks], bool]) -> int:
        """Forget the resources of which ``is_gone(resource, marks)`` is true; how many.

        The conditions are those of `Fence.forget`. A resource that sees a newer token meanwhile
        stays.
        """
        return self._memory.prune(is_gone)


class AsyncMemoryFence(AsyncGuardingFence):
    """`MemoryFence` for asyncio; also for several event loops in threads."""

    def __init__(self) -> None:
        self._memory = _Memory()

    @asynccontextmanager
    async def guard(
        self, resource: str, token: Presented, shared: bool = False
    ) -> AsyncIterator[None]:
        """Check, and hold newer tokens back until the block ends: see `GuardingFence.guard`."""
        operation = _Operation(FencingToken.of(token, shared))
        try:
            await run_async(self._memory.enter(resource, operation))
            yield
        finally:
            operation.end()

    async def marks(self, resource: str) -> Marks:
        """The newest tokens seen."""
        return self._memory.marks_of(resource)

    async def forget(self, resource: str) -> None:
        """Forget what was seen of ``resource``: see `Fence.forget`."""
        self._memory.forget_all_of(resource)

    async def prune(self, is_gone: Callable[[str, Marks], bool]) -> int:
        """Forget the resources of which ``is_gone(resource, marks)`` is true; how many.

        The conditions are those of `Fence.forget`. A resource that sees a newer token meanwhile
        stays.
        """
        return self._memory.prune(is_gone)
