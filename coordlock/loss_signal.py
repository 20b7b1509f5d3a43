"""The signal of a grant's loss, for threads and for asyncio."""

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

__all__ = ["AsyncLossSignal", "GrantEnd", "LossSignal", "forget_closed"]

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


class _Signal:
    def __init__(self, loss: Callable[[], str | None], end: GrantEnd) -> None:
        self._loss = loss
        self._end = end

    def is_set(self) -> bool:
        """Whether the lock was lost."""
        return self._loss() is not None

    @property
    def reason(self) -> str | None:
        """Why the lock was lost, or None."""
        return self._loss()


class LossSignal(_Signal):
    """Set when the lock is lost: at the deadline, or as soon as the service says so."""

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until the lock is lost, for ``timeout`` seconds at most; whether it is.

        A release ends the wait too, with False.
        """
        bound = timeout_of("wait", timeout)
        finished = self._end.event()
        if not self.is_set():  # a forked child has lost it, and is not told
            finished.wait(None if bound is None else min(bound, threading.TIMEOUT_MAX))
        return self.is_set()


class AsyncLossSignal(_Signal):
    """Set when the lock is lost: at the deadline, or as soon as the service says so."""

    async def wait(self) -> bool:
        """Wait until the lock is lost; whether it is. A release ends the wait too, with False.

        Bound it with ``asyncio.timeout`` as any other wait.
        """
        await asyncio.wait([self._end.future()])
        return self.is_set()
