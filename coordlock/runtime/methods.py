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


def blocking(protocol: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """The method that runs ``protocol`` in the calling thread.

    It has the name of ``protocol`` without the underscore, and its docstring and parameters.
    """

    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(protocol(self, *args, **kwargs))

    return _presented(method, protocol)


def awaiting(
    protocol: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The coroutine method that runs ``protocol`` in the current task, presented likewise."""

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_async(protocol(self, *args, **kwargs))

    return _presented(method, protocol)


M = TypeVar("M", bound=Callable[..., Any])


def _presented(method: M, protocol: Callable[..., Steps[Any]]) -> M:
    """``method`` with what readers and tools see of ``protocol``, but for the generator in it."""
    functools.update_wrapper(method, protocol)
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
    `blocking` or `awaiting` returns a type variable of the base, it says what that stands for.
    """
    types = {
        str(variable).lstrip("~"): argument.__name__
        for base in vars(cls).get("__orig_bases__", ())
        for variable, argument in zip(
            getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False
        )
        if isinstance(argument, type)
    }
    for name, method in vars(cls).items():
        if isinstance(method, FunctionType):
            public = name if name.startswith("__") else name.removeprefix("_")
            method.__qualname__ = f"{shown}.{public}"
            # Other decorators set `__wrapped__`, too, and leave the annotations to their users.
            if not types or method.__globals__ is not globals():
                continue
            words = re.split(r"(\W+)", method.__annotations__["return"])
            if types.keys() & set(words):
                _returns(method, "".join(types.get(word, word) for word in words))
