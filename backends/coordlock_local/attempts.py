"""Doing what needs the counter: at once where it is free, else from a thread, within a bound."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from coordlock.errors import BackendUnavailable, CoordlockError, SessionLost
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.flock import holder

__all__ = ["Attempts", "perform"]

T = TypeVar("T")

#: For how long the calling thread tries itself, in seconds.
_PATIENCE: Final = 0.002
#: The pauses between two attempts, in seconds: the first, and the longest.
_FIRST, _LONGEST = 0.0001, 0.02


def perform(action: Callable[[], T]) -> Promise[T]:
    """The outcome of ``action``, with coordlock's errors. Raises `Busy`."""
    try:
        return resolved(action())
    except CoordlockError as error:  # first, because some of them are OSErrors
        return failed(error)
    except OSError as error:
        return failed(translated(error))


class Attempts:
    """The actions of one backend that wait for the counter.

    The counter is held for microseconds, unless its holder is stopped inside (SIGSTOP, a debugger,
    a disk that hangs). No event loop may wait for that, so after an instant a thread takes over,
    which lives as long as there is something to do.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: deque[Callable[[bool], bool]] = deque()
        # Entered by the plain lock: Ctrl-C in `Condition.__enter__` would leave it taken.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, action: Callable[[], T], timeout: float, *, at_once: bool = True) -> Promise[T]:
        """The outcome of ``action``, repeated for up to ``timeout`` seconds while it is `Busy`.

        The calling thread tries first, if ``at_once``: for what takes microseconds.
        """
        started = time.monotonic()
        pause = _FIRST
        while (
            at_once and self._thread is None
        ):  # else it takes its turn behind those that wait already
            try:
                return perform(action)
            except Busy:
                if time.monotonic() - started > _PATIENCE:
                    break
            time.sleep(pause)
            pause *= 2
        promise: Promise[T] = Promise()
        self._append(partial(self._attempt, action, promise, started + timeout), promise)
        return promise

    def close(self) -> None:
        """Fail what waits, and end the thread."""
        with self._lock:
            self._closed = True
            self._wake.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _append(self, attempt: Callable[[bool], bool], promise: Promise[T]) -> None:
        with self._lock:
            if self._closed:
                promise.fail(SessionLost(SERVICE, "the client was closed"))
                return
            self._waiting.append(attempt)
            if self._thread is not None:
                return
            thread = threading.Thread(
                target=self._serve, name="coordlock-local-attempts", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the interpreter is exiting, or has too many
                self._waiting.clear()
                promise.fail(BackendUnavailable(SERVICE, str(error)))
            else:
                self._thread = thread  # only now: without the thread nothing is served

    def _serve(self) -> None:
        with self._lock:
            if self._thread is None:  # Ctrl-C came inside of `start`
                self._thread = threading.current_thread()
            elif self._thread is not threading.current_thread():
                return
        pause = _FIRST
        while True:
            with self._lock:
                closed = self._closed
                if not self._waiting:
                    self._thread = None
                    return
                attempt = self._waiting[0]
            if attempt(closed):
                pause = _FIRST
                with self._lock:
                    self._waiting.popleft()
            else:
                with self._lock:
                    if not self._closed:
                        self._wake.wait(pause)
                pause = min(pause * 2, _LONGEST)

    def _attempt(
        self, action: Callable[[], T], promise: Promise[T], deadline: float, closed: bool
    ) -> bool:
        """Whether ``promise`` is kept or broken now."""
        if closed:
            promise.fail(SessionLost(SERVICE, "the client was closed"))
            return True
        failure: BaseException | None
        try:
            outcome = perform(action)
            failure = outcome.exception()
            if failure is None:
                promise.resolve(outcome.result())
                return True
        except Busy:
            if time.monotonic() < deadline:
                return False
            pid = holder(self._path)
            who = f"process {pid}" if pid else "a process"
            reason = f"{who} keeps {self._path} locked; if it is stopped, continue or kill it"
            failure = BackendUnavailable(SERVICE, reason)
        except Exception as error:  # whatever it is, the promise must fail with it
            failure = error
        promise.fail(failure)
        return True
