"""Protocols as methods: one that blocks and one to await, of the same generator."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine
from types import FunctionType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, get_args, get_origin

from coordlock.runtime.driver import Steps, run, run_async

__all__ = ["awaiting", "blocking", "presented_in"]

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
    method.__wrapped__ = shown = FunctionType(  # type: ignore[attr-defined]
        protocol.__code__,
        protocol.__globals__,
        protocol.__name__,
        protocol.__defaults__,
        protocol.__closure__,
    )
    shown.__kwdefaults__ = protocol.__kwdefaults__
    _returns(method, returned.removeprefix(_STEPS)[:-1])
    return method


def _returns(method: Callable[..., Any], annotation: str) -> None:
    """Have ``method`` say that it returns ``annotation``."""
    annotations = {**method.__annotations__, "return": annotation}
    method.__annotations__ = method.__wrapped__.__annotations__ = annotations  # type: ignore[attr-defined]


def presented_in(cls: type, shown: str) -> None:
    """Name the methods that ``cls`` defines as those of ``shown``, which is its public name.

    The protocol of a public method has the method's name behind an underscore. Where a method of
    `blocking` or `awaiting` returns a type variable of a base, it says what that stands for: also
    where it is inherited.
    """
    types = {
        str(variable).lstrip("~"): argument.__name__
        for base in vars(cls).get("__orig_bases__", ())
        for variable, argument in zip(
            getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False
        )
        if isinstance(argument, type)
    }
    if types:
        inherited: dict[str, Any] = {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= vars(base)
        for name in inherited.keys() - vars(cls).keys():
            if _returned(inherited[name], types) is not None:
                setattr(cls, name, inherited[name].__dict__[_MAKE]())
    for name, method in vars(cls).items():
        if isinstance(method, FunctionType):
            public = name if name.startswith("__") else name.removeprefix("_")
            method.__qualname__ = f"{shown}.{public}"
            if (returned := _returned(method, types)) is not None:
                _returns(method, returned)


def _returned(method: object, types: dict[str, str]) -> str | None:
    """What ``method`` returns, by ``types`` for its type variables; None where it has none."""
    # Other decorators set `__wrapped__`, too, and leave the annotations to their users.
    if not isinstance(method, FunctionType) or _MAKE not in method.__dict__:
        return None
    words = re.split(r"(\W+)", method.__annotations__["return"])
    return "".join(types.get(word, word) for word in words) if types.keys() & set(words) else None
