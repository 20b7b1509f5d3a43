"""Where calls are started, so that Ctrl-C cannot strike inside of gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["Starter"]


class Starter:
    """Runs in a thread of its own what the main thread would do in gRPC's code.

    Signal handlers run in the main thread, between any two steps of Python code. gRPC's Python code
    takes its channel's lock in such steps: a KeyboardInterrupt there leaves the lock taken, and all
    who need the channel waiting for good. Handing over is one step of C.
    """

    def __init__(self) -> None:
        self._actions: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, action: Callable[[], None]) -> None:
        """Do ``action``, which raises nothing: now, or very soon if this is the main thread."""
        if threading.current_thread() is threading.main_thread() and self._started():
            self._actions.put(action)
        else:
            action()

    def close(self) -> None:
        """End the thread, after what was handed over."""
        self._closed = True
        self._actions.put(None)

    def _started(self) -> bool:
        if self._closed:
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="coordlock-etcd-start", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter ends, and starts no threads any more
                return False
            self._thread = thread
        return self._thread.is_alive()

    def _serve(self) -> None:
        while (action := self._actions.get()) is not None:
            action()
