"""Signal handlers at a moment at which Python runs them: as a function begins, or C returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dis import opmap
from inspect import CO_GENERATOR
from types import FrameType, ModuleType
from typing import Final, Self

import coordlock

__all__ = ["Signal", "interrupted"]


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

    def _look(self, frame: FrameType, event: str, _: object) -> None:
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
