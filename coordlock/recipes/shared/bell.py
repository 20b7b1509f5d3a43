"""What is rung when there is news, and waited for."""

from __future__ import annotations

import threading
from typing import Final

from coordlock.runtime.promise import Promise

__all__ = ["Bell"]


class Bell:
    """Rung from any thread; whoever took `next` before is told."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may ring it.
        self._lock: Final = threading.RLock()
        self._next: Promise[None] = Promise()

    @property
    def next(self) -> Promise[None]:
        """Kept when it is rung from now on. Take it, look at what it tells of, and wait then."""
        return self._next

    def ring(self) -> None:
        """Tell all who wait."""
        with self._lock:
            rung, self._next = self._next, Promise()
        rung.resolve(None)
