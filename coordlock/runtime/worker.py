"""A thread that makes calls which may block."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from coordlock.runtime.process import THREAD

__all__ = ["Worker"]

#: Seconds without calls after which the thread ends.
_IDLE_S: Final = 0.1


class Worker:
    """Makes the calls of all threads in one daemon thread, in their order.

    The thread runs while there are calls, and for ``idle`` seconds after the last. It
    ``must_not_wait`` where heartbeats or answers need it: see `THREAD`. With ``is_slow``, no such
    thread ever makes a call.
    """

    def __init__(
        self,
        name: str,
        idle: float = _IDLE_S,
        *,
        must_not_wait: bool = False,
        is_slow: bool = False,
    ) -> None:
        self._must_not_wait = must_not_wait
        self._is_slow = is_slow
        self._name = name
        self._idle = idle
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.RLock()
        self._server: int | None = None  # the id of the thread that serves
        #: Whether its own thread makes the call that is under way, and no caller does.
        self.has_thread = False
        #: Whether calls wait because no thread could be started for them.
        self.is_stuck = False

    @property
    def is_idle(self) -> bool:
        """Whether every call has been made."""
        return self._server is None and self._calls.empty()

    @property
    def waiting(self) -> int:
        """How many calls are yet to be made, without the one that is under way."""
        return self._calls.qsize()

    def run(self, call: Callable[[], object]) -> None:
        """Make ``call`` soon, without waiting for it. Safe in signal handlers and finalizers.

        Where no thread can be started, the caller makes it: at a limit of threads, and while the
        interpreter exits. Where the caller must not, the next one does. What a call raises goes to
        `threading.excepthook`.
        """
        self._calls.put(call)
        if self._server is None:
            self._start()

    def end(self) -> None:
        """Let the thread end after the calls that wait, as after all that come later."""
        self._idle = 0.0
        if self._server is not None:
            self.run(lambda: None)

    def finish(self, patience: float) -> bool:
        """Wait up to ``patience`` seconds until every call was made; whether all were.

        A call that calls this would wait for itself, so it does not wait.
        """
        if self.is_idle:
            return True
        if self._server == threading.get_ident():
            return False
        done = threading.Event()
        self.run(done.set)
        return done.wait(patience)

    def _start(self) -> None:
        # The first thread to come serves; a second one ends at once.
        serve = threading.Thread(target=self._serve, args=(True,), name=self._name, daemon=True)
        if not sys.is_finalizing():  # Python 3.11 would wait for a thread that never runs
            with suppress(RuntimeError):
                serve.start()
                return
        self.is_stuck = self._is_slow and THREAD.must_not_wait
        if not self.is_stuck:
            self._serve(False)

    def _serve(self, has_thread: bool) -> None:
        with self._lock:
            if self._server is not None:
                return
            self.has_thread, self.is_stuck = has_thread, False
            self._server = threading.get_ident()
        if has_thread:
            THREAD.must_not_wait = self._must_not_wait
        try:
            with suppress(Empty):
                while True:
                    _make(self._calls.get(timeout=self._idle if has_thread else 0.0))
                    time.sleep(0)  # under gevent, other greenlets go on between two calls
        finally:
            self._server = None
            # In this order: whoever puts a call after this line starts another thread, and a call
            # that was put before it is seen here. After SystemExit, some are left too.
            if not self._calls.empty():
                self._start()


def _make(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        failure = (*sys.exc_info(), threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(failure))
