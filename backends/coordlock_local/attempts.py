"""Doing what needs a lock of the directory: at once where it is free, else in a thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from coordlock.errors import BackendUnavailable, CoordlockError, SessionLost
from coordlock.runtime.promise import Promise, failed, resolved
from coordlock.runtime.worker import Worker
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.flock import holder

__all__ = ["Attempts"]

T = TypeVar("T")

#: The pause between two attempts in the thread, in seconds.
_PAUSE_S: Final = 0.005


class Attempts:
    """The actions of one backend that need the lock of the file ``path``, in its directory.

    The lock is held for microseconds, unless its holder is stopped inside (SIGSTOP, a debugger, a
    disk that hangs). No event loop may wait for that, so after an instant a thread takes over. It
    performs one action after the other, and ends after the last one.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._worker = Worker("coordlock-local-attempts", idle=0.0, must_not_wait=True)
        self._closed = threading.Event()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits in the thread."""
        return self._worker.is_idle

    def run(self, action: Callable[[], T], timeout: float, *, at_once: bool = True) -> Promise[T]:
        """The outcome of ``action``, repeated for up to ``timeout`` seconds while it is `Busy`.

        The calling thread tries first, if ``at_once``: for what takes microseconds.
        """
        if at_once:
            with suppress(Busy):
                return self.perform(action)
        promise: Promise[T] = Promise()
        self._worker.run(partial(self._attempt, action, promise, time.monotonic() + timeout))
        return promise

    def perform(self, action: Callable[[], T]) -> Promise[T]:
        """The outcome of ``action``, with coordlock's errors. Raises `Busy`."""
        try:
            return resolved(action())
        except CoordlockError as error:  # first, because some of them are OSErrors
            return failed(error)
        except OSError as error:
            return failed(translated(error, os.path.dirname(self._path)))

    def close(self, patience: float) -> None:
        """Fail what waits, and end the thread, for which this waits ``patience`` seconds."""
        self._closed.set()
        self._worker.finish(patience)

    def _attempt(self, action: Callable[[], T], promise: Promise[T], deadline: float) -> None:
        while not self._closed.is_set():
            try:
                promise.follow(self.perform(action))
            except Busy:
                # Where no thread can be started, a caller comes here, and must not wait.
                if time.monotonic() < deadline and self._worker.has_thread:
                    self._closed.wait(_PAUSE_S)
                    continue
                pid = holder(self._path)
                who = f"process {pid}" if pid else "a process"
                reason = f"{who} keeps {self._path} locked; if it is stopped, continue or kill it"
                promise.fail(BackendUnavailable(SERVICE, reason))
            except Exception as error:  # whatever it is, the promise must fail with it
                promise.fail(error)
            return
        promise.fail(SessionLost(SERVICE, "the client was closed"))
