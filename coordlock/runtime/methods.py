"""Protocols as methods: one that blocks and one to await, of the same generator.

And which of ``with`` and ``async with`` enters their objects: the other one raises what to write.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ForwardRef,
    NoReturn,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
)

from coordlock.runtime.driver import Steps, run, run_async

__all__ = ["EnteredByAsyncWith", "EnteredByWith", "awaiting", "blocking", "presented_in"]

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")

_STEPS: Final = "Steps["
#: The attribute of such a method that makes it once more.
_MAKE: Final = "_make_again"


def blocking(protocol: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """The method that runs ``protocol`` in the calling thread.

    It has the name of ``protocol`` without the underscore, and its docstring and parameters.
    """

    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(protocol(self, *args, **kwargs))

    return _presented(method, protocol, blocking)


def awaiting(
    protocol: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The coroutine method that runs ``protocol`` in the current task, presented likewise."""

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_async(protocol(self, *args, **kwargs))

    return _presented(method, protocol, awaiting)


M = TypeVar("M", bound=Callable[..., Any])


def _presented(method: M, protocol: Callable[..., Steps[Any]], maker: Callable[..., Any]) -> M:
    """``method`` with what readers and tools see of ``protocol``, but for the generator in it."""
    functools.update_wrapper(method, protocol)
    method.__dict__[_MAKE] = functools.partial(maker, protocol)
    method.__name__ = protocol.__name__.removeprefix("_")
    returned = str(protocol.__annotations__["return"])  # source text, in modules of coordlock
    assert returned.startswith(_STEPS), f"{protocol!r} is no protocol"
    # What tools see the parameters of: a signature would have to be made for each at every start.
    method.__wrapped__ = _like(protocol)  # type: ignore[attr-defined,arg-type]
    _returns(method, returned.removeprefix(_STEPS)[:-1])
    return method


def _returns(method: Callable[..., Any], annotation: str) -> None:
    """Have ``method`` say that it returns ``annotation``."""
    method.__annotations__ = {**method.__annotations__, "return": annotation}
    if _MAKE in method.__dict__:
        method.__wrapped__.__annotations__ = method.__annotations__  # type: ignore[attr-defined]


def presented_in(cls: type, shown: str) -> None:
    """Name the methods that ``cls`` defines as those of ``shown``, which is its public name.

    The protocol of a public method has the method's name behind an underscore. Where ``cls`` says
    what the type variables of its bases stand for, so do the methods that return one of them: also
    those that it inherits, of which it gets copies.
    """
    types = {
        str(variable).lstrip("~"): (
            argument.__forward_arg__ if isinstance(argument, ForwardRef) else argument.__name__
        )
        for base in vars(cls).get("__orig_bases__", ())
        for variable, argument in zip(
            getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False
        )
        if isinstance(argument, type | ForwardRef)
    }
    if types:
        inherited: dict[str, Any] = {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= vars(base)
        for name in inherited.keys() - vars(cls).keys():
            is_public = name.startswith("__") or not name.startswith("_")
            if is_public and _returned(inherited[name], types) is not None:
                setattr(cls, name, _copied(inherited[name]))
    for name, method in vars(cls).items():
        if isinstance(method, FunctionType):
            public = name if name.startswith("__") else name.removeprefix("_")
            method.__qualname__ = f"{shown}.{public}"
            if (returned := _returned(method, types)) is not None:
                _returns(method, returned)


def _copied(method: FunctionType) -> Callable[..., Any]:
    if _MAKE in method.__dict__:
        again: Callable[..., Any] = method.__dict__[_MAKE]()
        return again
    copy = _like(method)
    copy.__doc__, copy.__annotations__ = method.__doc__, method.__annotations__
    return copy


def _like(function: FunctionType) -> FunctionType:
    """Another function that does what ``function`` does, without its face."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _returned(method: object, types: dict[str, str]) -> str | None:
    """What ``method`` returns, by ``types`` for its type variables; None where it has none."""
    # What other decorators have made is left as it is.
    is_ours = isinstance(method, FunctionType) and (
        _MAKE in method.__dict__ or "__wrapped__" not in method.__dict__
    )
    if not is_ours:
        return None
    words = re.split(r"(\W+)", str(method.__annotations__.get("return", "")))
    return "".join(types.get(word, word) for word in words) if types.keys() & set(words) else None


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
