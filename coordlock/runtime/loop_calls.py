"""Calls that other threads make in an event loop."""

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
    """The calls that other threads post to one loop, which makes all of them when it wakes.

    Waking a loop takes a system call, during which another thread gets the interpreter. So a thread
    does not wake a loop that another thread has just woken.
    """

    _all: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = ref(loop)  # for as long as it lives, this is kept
        self._calls: deque[Callable[[], object]] = deque()
        self._awaited = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> LoopCalls:
        """Those of ``loop``. Call this in its thread."""
        found = cls._all.get(loop)
        if found is None:
            found = cls._all[loop] = cls(loop)
        return found

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop; None when it is gone."""
        return self._loop()

    def post(self, call: Callable[[], object]) -> None:
        """Let the loop call ``call`` soon, unless it is closed. Never blocks."""
        self._calls.append(call)
        # In the main thread, Ctrl-C may come between noting that the loop is woken and waking it.
        is_sure = threading.current_thread() is not threading.main_thread()
        if self._awaited and is_sure:
            return  # it was woken, and clears the note before it makes the first call
        self._awaited = is_sure
        self._wake()

    def _wake(self) -> None:
        try:
            if (loop := self._loop()) is not None:
                loop.call_soon_threadsafe(self._fetch)
        except RuntimeError:  # it is closed
            self._awaited = False
            self._calls.clear()

    def _fetch(self) -> None:
        self._awaited = False
        try:
            # Those that come meanwhile have woken the loop again. Tasks that pass a lock on to each
            # other post one with each step, and the loop has other work, too.
            for _ in range(len(self._calls)):
                self._calls.popleft()()
        except BaseException:  # Ctrl-C
            if self._calls:
                self._wake()
            raise
