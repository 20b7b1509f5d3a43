"""Decorators that hold a lock whose name is computed from the arguments of each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar

from coordlock.errors import AcquireTimeout
from coordlock.locks.lock import DECORATED, AsyncLock, Lock, check_coroutine_function
from coordlock.runtime.guards import PlainFunction, Resident, name_of
from coordlock.runtime.log import Log

__all__ = ["AsyncKeyedLock", "KeyedLock", "OnBusy"]

log = Log("coordlock")

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", Lock, AsyncLock)
#: What a call returns whose lock is busy: None, or Never where it raises.
S = TypeVar("S")

#: What a call does whose lock is busy: raise the error, or return None.
OnBusy = Literal["raise", "skip"]

_KEY: Final = PlainFunction(
    "key must be a function of the call's arguments",
    "which is no name of a lock",
    "give a plain function",
    "give a plain function",
)


class _KeyedLock(Resident, Generic[L, S]):
    """What sync and async decorators by keys share."""

    _instead = "decorate in the module that each process imports"

    def __init__(self, make: Callable[[str], L], key: Callable[..., str], on_busy: OnBusy) -> None:
        _KEY.check(key)
        if on_busy not in ("raise", "skip"):
            raise ValueError(f"on_busy must be 'raise' or 'skip', not {on_busy!r}")
        self._make: Final[Callable[[str], L]] = make
        self._key: Final = key
        self._on_busy: Final = on_busy

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
            return self._make(self._key(**{name: call.arguments[name] for name in wanted}))

        return lock_of

    def _skipped(self, function: Callable[..., Any], error: AcquireTimeout) -> Any:
        """What a call of ``function`` returns because of ``error``, unless it raises that."""
        if self._on_busy == "raise":
            raise error
        log.info("%s was not called: %s", name_of(function), error)


class KeyedLock(_KeyedLock[Lock, S]):
    """A decorator: each call holds the lock that its arguments name. Made by `Client.lock_by`."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | S]:
        """Decorate ``function``.

        Raises TypeError for a key that asks for what is no parameter of ``function``, and for what
        a lock can't decorate: see `Lock`.
        """
        DECORATED.check(function)
        lock_of = self._maker(function)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R | S:
            with ExitStack() as stack:
                try:
                    stack.enter_context(lock_of(args, kwargs))
                except AcquireTimeout as error:
                    skipped: S = self._skipped(function, error)
                    return skipped
                return DECORATED.finished(function, function(*args, **kwargs))

        return locked


class AsyncKeyedLock(_KeyedLock[AsyncLock, S]):
    """A decorator of coroutine functions: each call holds the lock that its arguments name.

    Made by `AsyncClient.lock_by`.
    """

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R | S]]:
        """Decorate the coroutine function ``function``: see `KeyedLock`."""
        check_coroutine_function(function)
        lock_of = self._maker(function)

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R | S:
            async with AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(lock_of(args, kwargs))
                except AcquireTimeout as error:
                    skipped: S = self._skipped(function, error)
                    return skipped
                return await function(*args, **kwargs)

        return locked
