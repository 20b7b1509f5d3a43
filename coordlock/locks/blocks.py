"""The `with` blocks of locks: each has a grant of its own, which its end releases.

A `with` statement loads `__exit__`, then calls `__enter__`, at its end calls what it has loaded, in
whatever thread, task or context, and drops it. Here each load gives another object, a `Block`. So
an end knows its grant. And where a signal handler raises as the end is called, the block is dropped
and the sweep finds its grant. `contextlib.ExitStack` and its kind load in the same order. Calls of
both methods by hand do not.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, MethodType
from typing import Any, Final, TypeVar, cast
from weakref import ref

from coordlock.runtime.driver import Call

__all__ = ["Block", "Holding", "block_end", "entering"]

F = TypeVar("F", bound=Callable[..., Any])


class Block:
    """One run of a `with` statement: what it has loaded as the lock's `__exit__`."""

    __slots__ = ("__weakref__", "_exit", "grant", "loaded_at", "lock")

    def __init__(
        self, exit: Callable[..., Any], lock: object, loaded_at: tuple[CodeType, int]
    ) -> None:
        self._exit = exit
        #: The function and the line that have loaded it.
        self.loaded_at: Final = loaded_at
        #: None where it was loaded from the class, as by `contextlib.ExitStack`.
        self.lock: Final = lock
        #: What it has entered with.
        self.grant: Any = None

    def __call__(self, lock: Any, *failure: Any) -> Any:
        """Leave ``lock``."""
        return self._exit(lock, *failure, block=self)


class _Latest(threading.local):
    """The block that was loaded last in each thread, until it enters; dropped with its owner."""

    block: ref[Block] | None = None


_latest: Final = _Latest()


class _BlockEnd:
    """A method that is another `Block` each time it is loaded."""

    def __init__(self, exit: Callable[..., Any]) -> None:
        self.__doc__ = exit.__doc__
        self.__wrapped__ = exit

    def __get__(self, lock: object, owner: type | None = None) -> Callable[..., Any]:
        caller = sys._getframe(1)
        block = Block(self.__wrapped__, lock, (caller.f_code, caller.f_lineno))
        _latest.block = ref(block)
        return block if lock is None else MethodType(block, lock)


def block_end(exit: F) -> F:
    """Have `__exit__` or `__aexit__` called with the ``block`` whose end it is."""
    return cast("F", _BlockEnd(exit))


def entering(lock: object) -> Block | None:
    """The block that enters ``lock``; None for a call by hand. The first thing in `__enter__`.

    A statement enters on the line that has loaded the block, and a stack in the same function. A
    block that was loaded elsewhere is the end of another body, which somebody keeps or is at work.
    """
    latest, _latest.block = _latest.block, None
    block = None if latest is None else latest()
    if block is None:
        return None
    caller = sys._getframe(2)
    code, line = block.loaded_at
    is_its_own = block.lock is lock and line == caller.f_lineno
    is_its_own = is_its_own or block.lock is None
    return block if is_its_own and code is caller.f_code else None


class Holding(Call):
    """What the sweep asks about a grant: it is given up once ``holder`` was dropped."""

    def __init__(self, holder: object) -> None:
        self._holder: Final = ref(holder)

    @property
    def is_given_up(self) -> bool:
        """Whether its end can come no more."""
        return self._holder() is None
