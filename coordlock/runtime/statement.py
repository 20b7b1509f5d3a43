"""Which `with` statement runs: the one that loaded the `__exit__` that is called.

The language has a `with` statement load `__exit__` first, then call `__enter__`, and call what it
loaded at its end, whatever thread, task or context that end runs in. Here each load gives an object
of its own, a `Statement`. So an exit knows its own enter. `contextlib.ExitStack` and its kind load
in the same order. Calls of both methods by hand do not.

And which of ``with`` and ``async with`` may run: the other one gets an error that says so.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

__all__ = [
    "EnteredByAsyncWith",
    "EnteredByWith",
    "Statement",
    "is_known",
    "known_by_statement",
    "released_when_dropped",
    "running",
]

F = TypeVar("F", bound=Callable[..., Any])


class Statement:
    """One run of a `with` statement: what it loaded as the lock's `__exit__`."""

    __slots__ = ("__weakref__", "_exit", "entered", "lock")

    def __init__(self, exit: Callable[..., Any], lock: object) -> None:
        self._exit = exit
        #: None where it was loaded from the class, as by `contextlib.ExitStack`.
        self.lock: Final = lock
        #: What it has entered with. Given up at once where Ctrl-C ends the exit.
        self.entered: Any = None

    def __del__(self) -> None:
        # Ctrl-C may come when the exit is called and has not begun, or even before.
        if self.lock is not None and self.entered is not None:
            self.entered._abandon()

    def __call__(self, lock: Any, *failure: Any) -> Any:
        """Leave ``lock``."""
        try:
            return self._exit(lock, *failure, statement=self)
        except BaseException:
            if self.entered is not None:
                self.entered._abandon()
            raise


class _Loaded(threading.local):
    """The statement that loaded last in each thread, until it enters.

    It is a weak reference: what was loaded for another purpose is forgotten with that.
    """

    statement: weakref.ref[Statement] | None = None


_loaded: Final = _Loaded()


def running(lock: object) -> weakref.ref[Statement] | None:
    """The statement that enters ``lock``. To be called first thing in `__enter__`, once."""
    found, _loaded.statement = _loaded.statement, None
    statement = None if found is None else found()
    if statement is None or (statement.lock is not None and statement.lock is not lock):
        return None
    return found


class _Loading:
    """A method that is another `Statement` each time it is loaded."""

    def __init__(self, exit: Callable[..., Any]) -> None:
        self.__doc__ = exit.__doc__
        self.__wrapped__ = exit

    def __get__(self, lock: object, owner: type | None = None) -> Callable[..., Any]:
        statement = Statement(self.__wrapped__, lock)
        _loaded.statement = weakref.ref(statement)
        return statement if lock is None else MethodType(statement, lock)


def is_known(exit: object) -> bool:
    """Whether ``exit``, as a class has it, is called with the statement that loaded it."""
    return isinstance(exit, _Loading)


def known_by_statement(exit: F) -> F:
    """Have `__exit__` or `__aexit__` called with the ``statement`` that loaded it."""
    return cast("F", _Loading(exit))


class _GrantExit(partial[None]):
    """What is loaded as the `__exit__` of a grant, another object at each load.

    A signal handler may raise as a `with` statement calls `__enter__` or `__exit__`, before their
    first step. The statement then drops what it loaded and never calls it, and nothing else would
    release the grant. One moment stays open: as the loading of the exit begins.

    A partial, because that costs a statement least.
    """

    def __del__(self) -> None:
        grant = self.args[0]
        if grant._released:
            return  # first, for what a signal handler raises in here is only logged
        mine = id(self)
        if grant._loaded_exit == mine:
            grant._loaded_exit = 0
        if grant._is_entered and grant._entered_exit != mine:
            return
        if _is_given_up(grant._is_entered):
            grant._abandon()


def _is_given_up(is_entered: bool) -> bool:
    """Whether a `with` statement, which will not go on, drops the object whose `__del__` asks.

    Its instruction tells, so that an exit which was loaded by hand and dropped releases nothing.
    """
    try:
        from opcode import opname  # nearly never

        frame = sys._getframe(2)
    except (ImportError, ValueError):
        return False  # the interpreter or a thread ends, and runs no statement any more
    code, at = frame.f_code.co_code, frame.f_lasti
    name, before = opname[code[at]], [opname[one] for one in code[:at:2]]
    if not is_entered:
        # The second from Python 3.14 on.
        return name == "BEFORE_WITH" or (name == "CALL" and before[-1:] == ["LOAD_SPECIAL"])
    if name == "CALL":  # with three times None, after a body that has raised nothing
        loads = [one for one in before if one not in ("PRECALL", "CACHE")]
        return loads[-3:] == ["LOAD_CONST"] * 3
    return name in ("WITH_EXCEPT_START", "RERAISE")


class _LoadingGrantExit:
    def __init__(self, exit: Callable[..., None]) -> None:
        self.__doc__ = exit.__doc__
        self.__wrapped__ = exit

    def __get__(self, grant: Any, owner: type | None = None) -> Callable[..., None]:
        if grant is None:
            return self.__wrapped__
        try:
            exit = _GrantExit(self.__wrapped__, grant)
            grant._loaded_exit = id(exit)
            return exit
        except BaseException:  # a signal handler's, whose traceback keeps the exit
            if _is_given_up(grant._is_entered):
                grant._abandon()
            raise


def released_when_dropped(exit: F) -> F:
    """Have a grant released by a `with` statement that drops its ``exit`` and never calls it."""
    return cast("F", _LoadingGrantExit(exit))


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
