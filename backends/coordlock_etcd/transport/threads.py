"""The threads that make calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from coordlock.runtime.process import PROCESS
from coordlock.runtime.worker import Worker

__all__ = ["CallThreads"]

Action = Callable[[], object]

#: Seconds without calls after which the threads for them end.
IDLE_S: Final = 60.0


class CallThreads:
    """Two threads that make calls: one blocks for a call, the other starts calls.

    Signal handlers run in the main thread, between any two steps of Python code. gRPC's Python code
    takes its channel's lock in such steps: a KeyboardInterrupt there leaves the lock taken, and all
    callers that need the channel waiting for good. Handing over is one step of C.

    A call that blocks costs much less than a call that is started: for the latter, gRPC starts a
    thread where no other call is under way, and hands the answer over to it. So the first call
    blocks the thread for that, and other calls are started meanwhile.
    """

    def __init__(self) -> None:
        self._calls: Final = Worker("coordlock-etcd-call", IDLE_S, must_not_wait=True)
        self._starts: Final = Worker("coordlock-etcd-start", IDLE_S, must_not_wait=True)
        #: Taken while a call blocks the thread for that. If Ctrl-C strikes between taking it and
        #: handing over, it stays taken, and all calls are started.
        self._calling: Final = threading.Lock()
        self._closed = False
        self._pid = PROCESS.id

    def run(self, call: Callable[[], Action], start: Action, refuse: Action) -> None:
        """Make a call: by ``call`` and then what it returns, or by ``start``. Never blocks.

        ``call`` blocks, so it runs in a thread for such calls, if that one is free. Otherwise
        ``start`` runs, perhaps in the caller's thread unless that is the main one. If no thread
        can be started, only ``refuse`` runs, because the caller must not wait. The three functions
        must not raise.
        """
        if self._closed or PROCESS.id != self._pid:  # which has no such threads
            start()
        elif self._calling.acquire(blocking=False):
            self._calls.run(partial(self._call, call, refuse))
        elif threading.current_thread() is threading.main_thread():
            self._starts.run(lambda: start() if self._starts.has_thread else refuse())
        else:
            start()

    def close(self) -> None:
        """Let the threads end, after what was handed over."""
        self._closed = True
        self._calls.end()
        self._starts.end()

    def join(self, timeout: float) -> None:
        """Wait for the thread in which a call may be under way, for up to ``timeout`` seconds."""
        self._calls.finish(timeout)

    def _call(self, call: Callable[[], Action], refuse: Action) -> None:
        # At the interpreter's end no thread can be started, and no event loop waits.
        may_block = self._calls.has_thread or not threading.main_thread().is_alive()
        finish = call() if may_block else refuse
        # A callback of the answer may want the thread next.
        self._calling.release()
        finish()
