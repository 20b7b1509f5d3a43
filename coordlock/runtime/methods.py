"""What public objects have in common: methods made of protocols, and guards against misuse.

A protocol makes two methods, one that blocks and one to await.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, NoReturn, ParamSpec, TypeVar

from coordlock.runtime.driver import Steps, run, run_async

__all__ = ["EnteredByAsyncWith", "EnteredByWith", "Resident", "awaiting", "blocking"]

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])


def blocking(protocol: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """The method that runs ``protocol`` in the calling thread.

    It has the name of ``protocol`` without the underscore, and its docstring and parameters.
    """

    @functools.wraps(protocol)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(protocol(self, *args, **kwargs))

    return _public(method, protocol)


def awaiting(
    protocol: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The coroutine method that runs ``protocol`` in the current task, presented likewise."""

    @functools.wraps(protocol)
    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_async(protocol(self, *args, **kwargs))

    return _public(method, protocol)


def _public(method: M, protocol: Callable[..., Any]) -> M:
    """``method`` with the public name; that of ``protocol`` is in the errors of wrong calls."""
    method.__name__ = protocol.__name__.removeprefix("_")
    owner = protocol.__qualname__.rpartition(".")[0].lstrip("_")
    method.__qualname__ = protocol.__qualname__ = f"{owner}.{method.__name__}"
    return method


class Resident:
    """The base of clients, locks, grants and transactions, which can't be pickled or copied."""

    #: What to pass to another process instead.
    _instead: ClassVar[str]

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied, because it belongs to its "
            f"process: {self._instead}"
        )


class _WrongStatement(TypeError, AttributeError):
    """Also an AttributeError, so that ``hasattr`` and libraries that look around go on."""


class _Refusing:
    """A method to enter that is not there, and says what to write when a statement loads it.

    Without an exit, so that `isinstance` takes nothing for a context manager of that kind. From
    Python 3.14 on, statements load the exit first, and Python says itself which one to use.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, thing: object, owner: type) -> NoReturn:
        raise _WrongStatement(f"{owner.__name__} {self._text}")


class EnteredByWith:
    """The base of what ``with`` enters: ``async with`` raises TypeError."""

    __slots__ = ()

    if not TYPE_CHECKING:  # which then finds the mistake itself
        __aenter__ = _Refusing(
            "is for threads: enter it by `with`; for `async with` there is "
            "coordlock.connect_async()"
        )


class EnteredByAsyncWith:
    """The base of what ``async with`` enters: ``with`` raises TypeError."""

    __slots__ = ()

    if not TYPE_CHECKING:
        __enter__ = _Refusing(
            "is for asyncio: enter it by `async with`; for `with` there is coordlock.connect()"
        )
