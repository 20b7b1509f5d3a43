"""Guards against misuse, each of which says what to write instead.

A call of a coroutine function or a generator function returns before its body has run. So a caller
that takes such a call for the work itself would do nothing, and say that all is well.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, NoReturn, ParamSpec, TypeVar

__all__ = [
    "COROUTINE",
    "Block",
    "PlainFunction",
    "Resident",
    "block",
    "kind_of_calls",
    "name_of",
]

F = TypeVar("F", bound=Callable[..., object])
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

COROUTINE: Final = "a coroutine"
_GENERATOR: Final = "a generator"


@dataclass(frozen=True, slots=True)
class PlainFunction:
    """A place for a function whose body is to run before its call returns.

    Attributes:
        role: what the place takes, such as "a lock decorates functions".
        harm: what would become of a body that runs later.
        coroutine: what to write for a coroutine function.
        generator: what to write for a generator function.
    """

    role: str
    harm: str
    coroutine: str
    generator: str

    def check(self, function: F) -> F:
        """``function``. Raises TypeError unless calls of it run its body.

        A wrapper may hide what a function is: see `finished`.
        """
        if not callable(function):
            raise TypeError(f"{self.role}, not {function!r}")
        if (kind := kind_of_calls(function)) is not None:
            raise self._refused(function, kind)
        return function

    def finished(self, function: object, result: R) -> R:
        """The ``result`` of a call. Raises TypeError if the body of ``function`` is yet to run."""
        if isinstance(result, Coroutine):
            result.close()  # otherwise Python warns that it was never awaited
            raise self._refused(function, COROUTINE)
        if isinstance(result, Generator | AsyncGenerator):
            raise self._refused(function, _GENERATOR)
        return result

    def _refused(self, function: object, kind: str) -> TypeError:
        instead = self.coroutine if kind is COROUTINE else self.generator
        return TypeError(f"{function!r} makes {kind}, {self.harm}: {instead}")


def name_of(function: object) -> str:
    """What messages call ``function``, which may be an object without a name."""
    return getattr(function, "__qualname__", None) or repr(function)


def kind_of_calls(function: Any) -> str | None:
    """What a call of ``function`` returns before its body has run, if it does."""
    while isinstance(function, functools.partial):
        function = function.func
    made = [function]
    if not isinstance(function, type):  # a call of a class makes an object
        made.append(getattr(function, "__call__", None))  # noqa: B004 - what a call runs
    if any(map(inspect.iscoroutinefunction, made)):
        return COROUTINE
    if any(inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call) for call in made):
        return _GENERATOR
    return None


_BLOCK: Final = PlainFunction(
    "a context manager decorates functions",
    "whose body would run after the block",
    "write the with block inside of it",
    "write the with block inside of it",
)


class Block(Generic[T]):
    """A context manager, and a decorator of functions whose body runs inside of it."""

    def __init__(self, make: Callable[[], AbstractContextManager[T]], use: PlainFunction) -> None:
        self._make = make
        self._use = use
        self._entered: AbstractContextManager[T] | None = None

    def __enter__(self) -> T:
        if self._entered is not None:
            raise RuntimeError("this block was entered before: make another one")
        self._entered = self._make()
        return self._entered.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._entered is not None
        return self._entered.__exit__(kind, body, traceback)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate ``function``: each call runs in a block of its own.

        Raises TypeError for coroutine functions and generators, whose body would run after it.
        """
        self._use.check(function)

        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._make():
                return self._use.finished(function, function(*args, **kwargs))

        return inside


def block(
    generator: Callable[P, Iterator[T]], use: PlainFunction = _BLOCK
) -> Callable[P, Block[T]]:
    """`contextlib.contextmanager`, except that what it makes decorates only what it can."""
    make = contextmanager(generator)

    @functools.wraps(generator)
    def made(*args: P.args, **kwargs: P.kwargs) -> Block[T]:
        return Block(lambda: make(*args, **kwargs), use)

    return made


class Resident:
    """The base of clients, locks, grants and transactions, which can't be pickled or copied."""

    #: What to pass to another process instead.
    _instead: ClassVar[str]

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied, because it belongs to its "
            f"process: {self._instead}"
        )
