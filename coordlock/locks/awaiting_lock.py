"""Locks of whatever kind for asyncio: as a context manager and as a decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from coordlock.locks.base_lock import BaseLock, runs_too_late
from coordlock.locks.grant import AsyncGrant
from coordlock.runtime.methods import awaiting
from coordlock.runtime.statement import EnteredByAsyncWith, Statement, known_by_statement, running

__all__ = ["AwaitingLock"]

P = ParamSpec("P")
G = TypeVar("G", bound=AsyncGrant)
R = TypeVar("R")


class AwaitingLock(EnteredByAsyncWith, BaseLock[G], shown="AsyncLock"):
    """A lock of whatever kind, for asyncio."""

    acquire = awaiting(BaseLock[G]._acquire)
    try_acquire = awaiting(BaseLock[G]._try_acquire)
    locked = awaiting(BaseLock[G]._locked)

    async def __aenter__(self) -> G:
        statement = running(self)
        return self._entered(await self.acquire(), statement)

    @known_by_statement
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
        statement: Statement | None = None,
    ) -> None:
        grants = self._bodies.leave(None if statement is None else statement.entered)
        if len(grants) == 1:
            await grants[0].__aexit__(kind, body, traceback)
        elif grants:
            async with AsyncExitStack() as all_of_them:
                for grant in grants:
                    all_of_them.push_async_exit(grant)
                raise self._bodies.ambiguous(len(grants))

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate the coroutine function ``function``: hold the lock during each call.

        Raises TypeError for other functions, which a lock of `connect` decorates, and generators.
        """
        if not inspect.iscoroutinefunction(function):
            if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
                raise runs_too_late(function, "a generator")
            raise TypeError(
                f"{function!r} is not a coroutine function: decorate it with a lock of connect()"
            )

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return locked
