"""A condition that protocols wait for, as `threading.Condition` is for threads."""

from __future__ import annotations

import threading
from typing import Final

from coordlock.runtime.promise import Promise

__all__ = ["Condition"]


class Condition:
    """Any thread notifies; every protocol that waits goes on."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may notify.
        self._lock: Final = threading.RLock()
        self._notified: Promise[None] = Promise()

    @property
    def notified(self) -> Promise[None]:
        """Kept at the next notification. Take it before looking at the state, then wait for it."""
        return self._notified

    def notify(self) -> None:
        """Tell all that wait."""
        with self._lock:
            notified, self._notified = self._notified, Promise()
        notified.resolve(None)
