"""Locks of whatever kind for threads: as a context manager and as a decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import ParamSpec, TypeVar

from coordlock.locks.base_lock import BaseLock, runs_too_late
from coordlock.locks.grant import Grant
from coordlock.runtime.methods import blocking
from coordlock.runtime.statement import EnteredByWith, Statement, known_by_statement, running

__all__ = ["BlockingLock"]

P = ParamSpec("P")
G = TypeVar("G", bound=Grant)
R = TypeVar("R")


class BlockingLock(EnteredByWith, BaseLock[G], shown="Lock"):
    """A lock of whatever kind, for threads."""

    acquire = blocking(BaseLock[G]._acquire)
    try_acquire = blocking(BaseLock[G]._try_acquire)
    locked = blocking(BaseLock[G]._locked)

    def __enter__(self) -> G:
        statement = running(self)
        grant = self.acquire()
        try:
            return self._entered(grant, statement)
        except BaseException:
            grant._abandon()  # Ctrl-C: no exit follows where nothing was entered
            raise

    @known_by_statement
    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
        statement: Statement | None = None,
    ) -> None:
        grants = self._bodies.leave(None if statement is None else statement.entered)
        if len(grants) == 1:
            grants[0].__exit__(kind, body, traceback)
        elif grants:
            with ExitStack() as all_of_them:
                for grant in grants:
                    all_of_them.push(grant)
                raise self._bodies.ambiguous(len(grants))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate ``function``: hold the lock during each call.

        Raises TypeError for what runs after its call has returned: coroutine functions, which a
        lock of `connect_async` decorates, and generators.
        """
        given: object = function
        if not callable(given) or isinstance(given, type):
            raise TypeError(f"{function!r} is not a function: a lock decorates functions")
        if (kind := _lazy_kind(function)) is not None:
            raise runs_too_late(function, kind)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                result = function(*args, **kwargs)
                if (kind := _kind_of_result(result)) is not None:
                    raise runs_too_late(function, kind)
                return result

        return locked


def _lazy_kind(function: Callable[..., object]) -> str | None:
    """What a call of ``function`` returns before its body has run, if it does."""
    if inspect.iscoroutinefunction(function):
        return "a coroutine"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "a generator"
    return None


def _kind_of_result(result: object) -> str | None:
    """The same, of its result: a wrapper hides what the function is."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
        return "a coroutine"
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return "a generator"
    return None
