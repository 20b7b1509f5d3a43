"""What is to be done with the answers that have come."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable

from coordlock.runtime.log import Log

__all__ = ["Calls", "Completions"]

log = Log("coordlock.zookeeper")


class Calls(queue.SimpleQueue[Callable[[], object]]):
    """What kazoo calls back, in place of a `queue.Queue`, which Ctrl-C may leave locked."""

    def task_done(self) -> None:
        """Nothing counts them."""


class Completions(Calls):
    """kazoo's queue of callbacks for answers, without a thread's turn for each answer.

    What the I/O thread puts here, it does itself when it has time: `complete`. Nothing that this
    package does with an answer blocks. What other threads put, because an answer was there before
    they asked to be called, goes the usual way, to a worker.
    """

    def __init__(self) -> None:
        super().__init__()
        self._home: int | None = None
        self._here: deque[Callable[[], object]] = deque()

    def serve(self, loop: Callable[[], object]) -> None:
        """Run ``loop``, the I/O thread's, here, and complete what is left when it ends."""
        self._home = threading.get_ident()
        try:
            loop()
        finally:
            self.complete()
            self._home = None

    def put(
        self, item: Callable[[], object], block: bool = True, timeout: float | None = None
    ) -> None:
        """Have ``item`` called."""
        if threading.get_ident() == self._home:
            self._here.append(item)
        else:
            super().put(item, block, timeout)

    def complete(self) -> None:
        """Call what the I/O thread has put here; nothing in any other thread."""
        if threading.get_ident() != self._home:
            return
        while self._here:
            callback = self._here.popleft()
            try:
                callback()
            except Exception:
                log.exception("a callback for an answer failed")
