"""The signal of a grant's loss, for threads and for asyncio."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from coordlock.runtime.driver import completion
from coordlock.runtime.lazily import Lazily
from coordlock.settings import Duration, timeout_of

if TYPE_CHECKING:
    import asyncio

    from coordlock import grant
else:
    asyncio = Lazily("asyncio")
    grant = Lazily("coordlock.grant")

__all__ = ["AsyncLossSignal", "LossSignal", "forget_closed"]

T = TypeVar("T")


def forget_closed(kept: dict[asyncio.AbstractEventLoop, T]) -> None:
    """Drop what is kept for event loops that are closed."""
    for loop in [one for one in kept if one.is_closed()]:
        del kept[loop]


class _Signal:
    def __init__(self, hold: grant.BaseGrant) -> None:
        self._hold = hold

    def is_set(self) -> bool:
        """Whether the lock was lost."""
        return self._hold.state is grant.GrantState.LOST

    @property
    def reason(self) -> str | None:
        """Why the lock was lost, or None."""
        return self._hold._lost_error().reason if self.is_set() else None


class LossSignal(_Signal):
    """Set when the lock is lost: at the deadline, or as soon as the service says so."""

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until the lock is lost, for ``timeout`` seconds at most; whether it is.

        A release ends the wait too, with False.
        """
        bound = timeout_of("wait", timeout)
        hold = self._hold
        if hold._finished is None:
            # One for all waits, because what is called back is never forgotten before.
            finished = threading.Event()
            hold._ticket.end.add_done_callback(lambda _: finished.set())
            hold._finished = finished
        if not self.is_set():  # a forked child has lost it, and is not told
            hold._finished.wait(None if bound is None else min(bound, threading.TIMEOUT_MAX))
        return self.is_set()


class AsyncLossSignal(_Signal):
    """Set when the lock is lost: at the deadline, or as soon as the service says so."""

    async def wait(self) -> bool:
        """Wait until the lock is lost; whether it is. A release ends the wait too, with False.

        Bound it with ``asyncio.timeout`` as any other wait.
        """
        # One for all waits in this loop, likewise.
        loop = asyncio.get_running_loop()
        finished = self._hold._finished_in
        if loop not in finished:
            forget_closed(finished)
            finished[loop] = completion(self._hold._ticket.end)
        await asyncio.wait([finished[loop]])
        return self.is_set()
