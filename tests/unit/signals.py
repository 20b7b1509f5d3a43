"""Signal handlers at a moment at which Python runs them: as a function begins, or C returns."""

from __future__ import annotations

import itertools
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dis import opmap, opname
from importlib.util import find_spec
from inspect import CO_GENERATOR
from types import FrameType, ModuleType
from typing import Any, Final, Self

import coordlock

__all__ = ["Signal", "interrupted", "moments", "struck"]


_BACKENDS: Final = ("etcd", "local", "memory", "redis", "zookeeper")
_PACKAGE: Final = os.path.dirname(coordlock.__file__) + os.sep
#: Where the package's files and those of its backends are.
_OURS: Final = tuple(
    os.path.dirname(spec.origin) + os.sep
    for name in ("coordlock", *(f"coordlock_{one}" for one in _BACKENDS))
    if (spec := find_spec(name)) is not None and spec.origin
)
_RESUME: Final = opmap["RESUME"]


class Signal:
    """Calls ``handler`` at the moment with this ``number``, from 1, of what this thread does.

    Those are counted in the code of the package or the module ``within``; by default that is the
    kernel, without the memory backend: elsewhere the service is on another machine.
    """

    def __init__(
        self, number: int, handler: Callable[[], object], within: ModuleType = coordlock
    ) -> None:
        assert within.__file__
        is_package = hasattr(within, "__path__")
        self._within = os.path.dirname(within.__file__) + os.sep if is_package else within.__file__
        self._left = number
        self._handler = handler
        # Kept, because Python 3.11 goes on to use it after it has taken it off itself.
        self._hook = self._look
        self.came = False

    def __enter__(self) -> Self:
        sys.setprofile(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, function: object) -> None:
        # From Python 3.14 on, a signal may come between a C lock's `__enter__` and the block: what
        # `with` has acquired is never released, whoever uses it.
        if event == "c_return" and getattr(function, "__name__", "") == "__enter__":
            return
        # As a generator goes on with an error, Python looks for no signal; and what is raised here
        # would pass by the handlers of that generator.
        code = frame.f_code
        goes_on = code.co_flags & CO_GENERATOR and code.co_code[frame.f_lasti] != _RESUME
        if event == "call" and goes_on:
            return
        if event in ("call", "c_return") and code.co_filename.startswith(self._within):
            self._left -= 1
            if self._left == 0:
                sys.setprofile(None)
                self.came = True
                self._handler()


def interrupted(act: Callable[[], object], number: int, within: ModuleType = coordlock) -> bool:
    """Do ``act``, with Ctrl-C at this moment; False where it was over before."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    signal = Signal(number, interrupt, within)
    with suppress(KeyboardInterrupt), signal:
        act()
    return signal.came


class _Strike:
    """Raises an error before the line with this ``number``, from 1, of what this thread does.

    Those of the package and its backends are counted, but for three at which Python never looks for
    signals: that at which a `with` statement ends; `try`, which no statement around it covers; and
    the release of a lock right behind it, because Python looks only after calls of C.
    """

    def __init__(self, number: int, error: type[BaseException]) -> None:
        self._left = number
        self._error = error
        #: The line, once it has come.
        self.place = ""

    def start(self, frame: FrameType, event: str, _: object) -> Any:
        """What is traced in ``frame``: `sys.settrace` asks it."""
        return self._look if frame.f_code.co_filename.startswith(_OURS) else None

    def _look(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and not self.place and not _is_sheltered(frame):
            self._left -= 1
            if self._left == 0:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                raise self._error
        return self._look


def _is_sheltered(frame: FrameType) -> bool:
    code = frame.f_code
    before, name = (opname[code.co_code[frame.f_lasti - back]] for back in (2, 0))
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    if not line.startswith("with "):
        return name == "NOP" or (before == "NOP" and line.endswith(".release()"))
    return name == "LOAD_CONST" or not name.startswith("LOAD_")


def struck(act: Callable[[], object], number: int, error: type[BaseException]) -> str:
    """Do ``act``, in which a signal handler raises at this line; which it is.

    Empty where ``act`` was over before.
    """
    strike, traced = _Strike(number, error), sys.gettrace()
    try:
        sys.settrace(strike.start)
        act()
    except error:
        pass
    finally:
        sys.settrace(traced)
    return strike.place


def moments(
    least: int, within: ModuleType = coordlock, *, first: int = 1, every: int = 1
) -> Iterator[Callable[[Callable[[], object]], bool]]:
    """Does what the loop's body gives it, with Ctrl-C one moment later in each turn.

    Its result is whether that came. The last turn, that in which all is done before, comes after
    ``least`` others.
    """
    came = list[bool]()
    for number in itertools.count(first, every):
        came.clear()

        def strike(act: Callable[[], object], number: int = number) -> bool:
            came.append(interrupted(act, number, within))
            return came[-1]

        yield strike
        if not any(came):
            assert number > least
            return
