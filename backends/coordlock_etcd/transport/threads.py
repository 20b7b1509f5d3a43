"""The threads in which calls are made, where Ctrl-C cannot strike inside of gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

__all__ = ["CallThreads"]

Action = Callable[[], None]


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
        self._calls: Final = _Thread("coordlock-etcd-call")
        self._starts: Final = _Thread("coordlock-etcd-start")
        #: Taken while a call blocks the thread for that. If Ctrl-C strikes between taking it and
        #: handing over, it stays taken, and all calls are started.
        self._calling: Final = threading.Lock()

    def run(self, call: Callable[[], Action] | None, start: Action) -> None:
        """Make a call: by ``call`` and then what it returns, or by ``start``.

        ``call`` blocks, so it is used only if it is given and its thread is free. None of the three
        raises anything. This never blocks, but may ``start`` in the caller's thread unless that is
        the main one.
        """
        if call is not None and self._calling.acquire(blocking=False):
            if self._calls.do(lambda: self._call(call)):
                return
            self._calling.release()
        if threading.current_thread() is threading.main_thread() and self._starts.do(start):
            return
        start()

    def close(self) -> None:
        """Let the threads end, after what was handed over."""
        self._calls.close()
        self._starts.close()

    def join(self, timeout: float) -> None:
        """Wait for the thread in which a call may be under way, for up to ``timeout`` seconds."""
        self._calls.join(timeout)

    def _call(self, call: Callable[[], Action]) -> None:
        finish = call()
        # A callback of the answer may want the thread next.
        self._calling.release()
        finish()


class _Thread:
    """A thread that starts with the first action."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._actions: SimpleQueue[Action | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def do(self, action: Action) -> bool:
        """Do ``action`` very soon; False where there is no thread for it."""
        if not self._started():
            return False
        self._actions.put(action)
        if self._closed:  # meanwhile, and the thread perhaps ended before
            self._drain()
        return True

    def close(self) -> None:
        self._closed = True
        self._actions.put(None)

    def join(self, timeout: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def _drain(self) -> None:
        with suppress(Empty):
            while True:
                if (action := self._actions.get_nowait()) is not None:
                    action()
        self._actions.put(None)

    def _started(self) -> bool:
        if self._closed:
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter ends, and starts no threads any more
                return False
            self._thread = thread
        return self._thread.is_alive()

    def _serve(self) -> None:
        while (action := self._actions.get()) is not None:
            action()
            del action  # and the answer that it may have led to
        # Ctrl-C inside of `thread.start` leaves another thread, unknown, that serves the queue too.
        self._actions.put(None)
