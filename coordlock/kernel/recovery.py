"""Pauses between attempts that end when the service answers again."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock.errors import ClientClosed
from coordlock.runtime.clock import Timers
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

__all__ = ["Recovery"]

log = Log("coordlock")

#: One of the protocols that pause tries again after so many seconds at most, for all of them.
_SCOUTING: Final = 1.0
#: All are woken so many seconds apart at least: an overloaded service answers now and then.
_BETWEEN: Final = 0.1
#: Seconds after which the log says how many removals the service has refused since it last did.
_COUNTING: Final = 10.0


class Recovery:
    """The pauses of one client's retries in an outage, which end when the service answers again.

    Code that learns that the service answers calls `service_answers`. The first
    protocol that pauses tries again soon, as a scout for the others, which need not ask as often.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._lock = threading.RLock()
        self._pauses: dict[Promise[None], None] = {}  # in order
        self._scout: Promise[None] | None = None
        self._is_waking = False
        self._woken = -math.inf
        #: Removals that were refused since the log last told of one; None where it may do so now.
        self._refusals: int | None = None

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

    def service_answers(self) -> None:
        """Tell that the service answers: all pauses end, in the timers' thread.

        Never in the teller's own, which may be the one that moves the connection's bytes: what goes
        on after a pause sends requests.
        """
        with self._lock:
            if self._is_waking or not self._pauses:
                return
            when = max(self._timers.clock.now(), self._woken + _BETWEEN)
            with suppress(ClientClosed):
                self._timers.call_at(when, self._wake)
                self._is_waking = True

    def refused(self, name: str, error: BaseException) -> None:
        """The service refuses to remove contenders from ``name``. The log tells it once.

        Where it lacks a right, it refuses every removal: the next ones are counted.
        """
        with self._lock:
            is_first = self._refusals is None
            self._refusals = 0 if self._refusals is None else self._refusals + 1
        if is_first:
            log.error("could not withdraw from %r: %s", name, error)
            self._count()

    def _count(self) -> None:
        with suppress(ClientClosed, RuntimeError):  # or no thread can be started
            self._timers.call_at(self._timers.clock.now() + _COUNTING, self._counted)

    def _counted(self) -> None:
        with self._lock:
            refusals, self._refusals = self._refusals, 0 if self._refusals else None
        if refusals:
            text = "%d more removals were refused in the last %g s"
            log.error(text, refusals, _COUNTING)
            self._count()

    def _wake(self) -> None:
        with self._lock:
            self._is_waking = False
            self._woken = self._timers.clock.now()
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
