"""Calls that other threads want made in an event loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    import asyncio

__all__ = ["LoopCalls"]


class LoopCalls:
    """What other threads want to be called in one loop, which takes all of it in one go.

    To wake a loop takes a system call, during which some other thread gets the interpreter. So
    a thread does not wake it where another just has.
    """

    _all: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = ref(loop)  # for as long as it lives, this is kept
        self._calls: deque[Callable[[], object]] = deque()
        self._awaited = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> LoopCalls:
        """The one of ``loop``, in whose thread this is called."""
        found = cls._all.get(loop)
        if found is None:
            found = cls._all[loop] = cls(loop)
        return found

    def post(self, call: Callable[[], object]) -> None:
        """Let the loop call ``call`` soon, unless it is closed. Never blocks."""
        self._calls.append(call)
        # Ctrl-C strikes in the main thread: it must not come between saying so and doing it.
        is_sure = threading.current_thread() is not threading.main_thread()
        if self._awaited and is_sure:
            return  # the loop fetches everything, and takes that back before it begins
        self._awaited = is_sure
        self._wake()

    def _wake(self) -> None:
        try:
            if (loop := self._loop()) is not None:
                loop.call_soon_threadsafe(self._fetch)
        except RuntimeError:  # it is closed: whatever comes is dropped
            self._awaited = False
            self._calls.clear()

    def _fetch(self) -> None:
        self._awaited = False
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            if self._calls:  # Ctrl-C
                self._wake()
