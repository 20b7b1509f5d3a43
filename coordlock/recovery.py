"""Pauses between attempts that end when the service answers again."""

from __future__ import annotations

import threading
from functools import partial
from typing import Final

from coordlock.clock import Timers
from coordlock.promise import Promise

__all__ = ["Recovery"]

#: One of those who pause tries again after so many seconds at most, on behalf of all.
_SCOUTING: Final = 1.0


class Recovery:
    """What one client owes its service during an outage: it is sent when the outage is over.

    Whoever learns that the service answers calls `noticed`. Where nothing else would tell, the
    first one who pauses does it soon, and the others need not ask as often.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._lock = threading.Lock()
        self._pauses: dict[Promise[None], None] = {}  # in order
        self._scout: Promise[None] | None = None

    def pause(self, seconds: float) -> Promise[None]:
        """A promise that is kept after ``seconds``, or when the service answers before.

        Raises `ClientClosed` when the client's timers are closed.
        """
        pause: Promise[None] = Promise()
        with self._lock:
            scouts = self._scout is None
            seconds = min(seconds, _SCOUTING) if scouts else seconds
            when = self._timers.clock.now() + seconds
            timer = self._timers.call_at(when, partial(self._end, pause))
            self._pauses[pause] = None
            if scouts:
                self._scout = pause
        pause.add_done_callback(lambda _: timer.cancel())
        return pause

    def noticed(self) -> None:
        """The service answers: all pauses end. Never blocks."""
        with self._lock:
            pauses, self._pauses = self._pauses, {}
            self._scout = None
        for pause in pauses:
            pause.resolve(None)

    def _end(self, pause: Promise[None]) -> None:
        with self._lock:
            self._pauses.pop(pause, None)
            if self._scout is pause:
                self._scout = None
        pause.resolve(None)
