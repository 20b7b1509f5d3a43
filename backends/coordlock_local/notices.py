"""Learning that a file may have changed: from the operating system, or by looking now and then."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Collection
from typing import Protocol

from coordlock.runtime.log import Log

__all__ = ["Notices", "Polling", "notices", "warn"]

log = Log("coordlock.local")


class Notices(Protocol):
    """A source of notices. One thread waits; any thread may call all methods.

    Only `wait` and `wake` do something in a source that inherits the others.
    """

    #: How often a caller of `wait` must look at the files itself, in seconds.
    interval: float

    def add(self, path: str, *, closed: bool = True) -> None:
        """Tell of ``path`` from now on; OSError where that's impossible.

        Tells of its removal, of changes of its attributes and, with ``closed``, of each process
        that closes it after it had it open for writing.
        """
        return

    def drop(self, path: str) -> None:
        """Tell no more of ``path``."""
        return

    def is_watched(self, path: str) -> bool:
        """Whether it tells of ``path`` still: not of a file that was removed."""
        return False

    def wait(self, timeout: float | None) -> Collection[str] | None:
        """The paths that may have changed; None when that is not known, empty when none."""

    def wake(self) -> None:
        """Let `wait` return."""

    def close(self) -> None:
        """Free what the operating system gave. Forked children do it by themselves."""
        return


class Polling(Notices):
    """Never tells: its caller looks every 50 ms. For systems without inotify, or with none left."""

    interval: float = 0.05

    def __init__(self) -> None:
        self._woken = threading.Event()

    def wait(self, timeout: float | None) -> Collection[str] | None:
        """Sleep."""
        self._woken.wait(timeout)
        self._woken.clear()
        return ()

    def wake(self) -> None:
        """End the sleep."""
        self._woken.set()


def notices() -> Notices:
    """The best source of notices on this system."""
    if sys.platform != "linux":
        return Polling()
    try:
        from coordlock_local.inotify import Inotify  # ctypes is not cheap to import

        return Inotify()
    except (ImportError, OSError) as error:
        warn(error)
        return Polling()


def warn(error: Exception) -> None:
    """Log why departures are polled for."""
    reason, advice = str(error), ""
    if isinstance(error, OSError):
        reason = error.strerror or reason
        if error.errno != errno.EBADF:
            advice = "; see fs.inotify.max_user_instances and fs.inotify.max_user_watches"
    log.warning("inotify failed, so coordlock polls for departures: %s%s", reason, advice)
