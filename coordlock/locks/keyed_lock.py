"""Decorators that hold a lock whose name is computed from the arguments of each call."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar

from coordlock.errors import AcquireTimeout
from coordlock.locks.lock import DECORATED, DECORATED_COROUTINE, AsyncLock, Lock
from coordlock.runtime.functions import PlainFunction, name_of
from coordlock.runtime.log import Log
from coordlock.runtime.resident import Resident

__all__ = ["AsyncKeyedLock", "KeyedLock", "OnBusy"]

log = Log("coordlock")

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", Lock, AsyncLock)

#: What a call does whose lock is busy: raise the error, return None, or return what this returns.
OnBusy = Literal["raise", "skip"] | Callable[[AcquireTimeout], Any]

_KEY: Final = PlainFunction(
    "key must be a function of the call's arguments",
    "which is no name of a lock",
    "give a plain function",
    "give a plain function",
)
_ON_BUSY: Final = PlainFunction(
    "on_busy must be 'raise', 'skip' or a function",
    "which would not run before the call returns",
    "give a plain function, or decorate with lock_by of connect_async()",
    "give a plain function",
)


class _KeyedLock(Resident, Generic[L], shown="KeyedLock"):
    """What sync and async decorators by keys share."""

    _instead = "decorate in the module that each process imports"

    def __init__(self, make: Callable[[str], L], key: Callable[..., str], on_busy: OnBusy) -> None:
        _KEY.check(key)
        if on_busy not in ("raise", "skip") and not callable(on_busy):
            raise ValueError(f"on_busy must be 'raise', 'skip' or a function, not {on_busy!r}")
        self._make: Final[Callable[[str], L]] = make
        self._key: Final = key
        self._on_busy: Final = on_busy
        self._mutex = threading.Lock()
        self._calls = self._refused = 0

    @property
    def calls(self) -> int:
        """How many calls this process has begun."""
        return self._calls

    @property
    def refused(self) -> int:
        """How many of them did not run, because the lock was busy."""
        return self._refused

    def _maker(self, function: Callable[..., Any]) -> Callable[..., L]:
        """What makes the lock of a call, from the call's arguments."""
        signature = inspect.signature(function)
        wanted = list(inspect.signature(self._key).parameters)
        if unknown := [name for name in wanted if name not in signature.parameters]:
            raise TypeError(
                f"key asks for {', '.join(unknown)}, and {name_of(function)} has "
                f"{', '.join(signature.parameters) or 'no parameters'}"
            )

        def lock_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> L:
            call = signature.bind(*args, **kwargs)
            call.apply_defaults()
            with self._mutex:
                self._calls += 1
            return self._make(self._key(**{name: call.arguments[name] for name in wanted}))

        return lock_of

    def _refuse(self, function: Callable[..., Any], error: AcquireTimeout) -> Any:
        """What the call returns."""
        with self._mutex:
            self._refused += 1
        log.info(
            "%s was not called: %s; that is %d of %d calls",
            *(name_of(function), error, self._refused, self._calls),
        )
        if self._on_busy == "raise":
            raise error
        return None if self._on_busy == "skip" else self._on_busy(error)


class KeyedLock(_KeyedLock[Lock]):
    """A decorator: each call holds the lock that its arguments name. Made by `Client.lock_by`."""

    def __init__(
        self, make: Callable[[str], Lock], key: Callable[..., str], on_busy: OnBusy
    ) -> None:
        super().__init__(make, key, on_busy)
        if callable(on_busy):
            _ON_BUSY.check(on_busy)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate ``function``. With ``on_busy``, a call may return what that gives.

        Raises TypeError for a key that asks for what is no parameter of ``function``, and for what
        a lock can't decorate: see `Lock`.
        """
        DECORATED.check(function)
        lock_of = self._maker(function)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with ExitStack() as stack:
                try:
                    stack.enter_context(lock_of(args, kwargs))
                except AcquireTimeout as error:
                    given: R = _ON_BUSY.finished(self._on_busy, self._refuse(function, error))
                    return given
                return DECORATED.finished(function, function(*args, **kwargs))

        return locked


class AsyncKeyedLock(_KeyedLock[AsyncLock]):
    """A decorator of coroutine functions: each call holds the lock that its arguments name.

    Made by `AsyncClient.lock_by`.
    """

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate the coroutine function ``function``: see `KeyedLock`."""
        DECORATED_COROUTINE.check(function)
        lock_of = self._maker(function)

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(lock_of(args, kwargs))
                except AcquireTimeout as error:
                    given: Any = self._refuse(function, error)
                    found: R = await given if inspect.isawaitable(given) else given
                    return found
                return await function(*args, **kwargs)

        return locked
