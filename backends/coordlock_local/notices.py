"""Being told that a file may have changed, by the operating system or by looking now and then."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Final, Protocol

__all__ = ["Notices", "Polling"]


class Notices(Protocol):
    """A source of notices. One thread waits; all methods may be called from any."""

    @property
    def interval(self) -> float:
        """How often a caller of `wait` must look at the files itself, in seconds."""

    def add(self, path: str, *, closed: bool = True) -> None:
        """Tell of ``path`` from now on; OSError where that's impossible.

        That is, when it is removed, when it is touched, and when a process that had it open for
        writing has ``closed`` it, if that is wanted.
        """

    def drop(self, path: str) -> None:
        """Tell no more of ``path``."""

    def wait(self, timeout: float | None) -> Collection[str] | None:
        """The paths that may have changed; None when that is not known, empty when none."""

    def wake(self) -> None:
        """Let `wait` return."""

    def close(self) -> None:
        """Free what the operating system gave."""

    def forget(self) -> None:
        """Do that in a forked child, leaving the parent's alone."""


class Polling:
    """Never tells: its caller looks every 50 ms. For systems without inotify, or with none left."""

    interval: Final = 0.05

    def __init__(self) -> None:
        self._woken = threading.Event()

    def add(self, path: str, *, closed: bool = True) -> None:
        """Nothing to do."""

    def drop(self, path: str) -> None:
        """Nothing to do."""

    def wait(self, timeout: float | None) -> Collection[str] | None:
        """Sleep."""
        self._woken.wait(timeout)
        self._woken.clear()
        return ()

    def wake(self) -> None:
        """End the sleep."""
        self._woken.set()

    def close(self) -> None:
        """Nothing to do."""

    def forget(self) -> None:
        """Nothing to do."""
