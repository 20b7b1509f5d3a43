"""The signals of a grant, of its loss above all, for threads and for asyncio."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from coordlock.runtime.driver import completion
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.promise import Promise
from coordlock.settings import Duration, timeout_of

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = Lazily("asyncio")

__all__ = [
    "AsyncLossSignal",
    "AsyncSignal",
    "GrantEnd",
    "LossSignal",
    "Signal",
    "forget_closed",
]

T = TypeVar("T")


class GrantEnd:
    """What waits for the end of one grant: one thing for all threads, and one for each loop.

    What is called back at the end is never forgotten before.
    """

    def __init__(self, end: Promise[Any]) -> None:
        self._end = end
        self._finished: threading.Event | None = None
        self._finished_in: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}

    def event(self) -> threading.Event:
        """Set at the end."""
        if self._finished is None:
            finished = threading.Event()
            self._end.add_done_callback(lambda _: finished.set())
            self._finished = finished
        return self._finished

    def future(self) -> asyncio.Future[None]:
        """Done at the end; of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._finished_in:
            forget_closed(self._finished_in)
            self._finished_in[loop] = completion(self._end)
        return self._finished_in[loop]


def forget_closed(kept: dict[asyncio.AbstractEventLoop, T]) -> None:
    """Drop what is kept for event loops that are closed."""
    for loop in [one for one in kept if one.is_closed()]:
        del kept[loop]


class _BaseSignal:
    def __init__(self, reason: Callable[[], str | None], end: GrantEnd) -> None:
        self._reason = reason
        self._end = end

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._reason() is not None

    @property
    def reason(self) -> str | None:
        """Why it was set; None while it was not."""
        return self._reason()


class Signal(_BaseSignal):
    """Set once, while a grant is held or at its end."""

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until it is set, for ``timeout`` seconds at most; whether it is.

        The end of the grant ends the wait too, with False where it is not set.
        """
        bound = timeout_of("wait", timeout)
        finished = self._end.event()
        if not self.is_set():  # a forked child has lost it, and is not told
            finished.wait(None if bound is None else min(bound, threading.TIMEOUT_MAX))
        return self.is_set()


class AsyncSignal(_BaseSignal):
    """Set once, while a grant is held or at its end."""

    async def wait(self) -> bool:
        """Wait until it is set; whether it is. The end of the grant ends the wait, too.

        Bound it with ``asyncio.timeout`` as any other wait.
        """
        await asyncio.wait([self._end.future()])
        return self.is_set()


class LossSignal(Signal):
    """Set when the lock is lost: at the deadline, or as soon as the service says so."""


class AsyncLossSignal(AsyncSignal):
    """Set when the lock is lost: at the deadline, or as soon as the service says so."""
