"""Time that only moves when it is told to, for deterministic simulation."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable

from coordlock.errors import ClientClosed
from coordlock.runtime.clock import Clock, Timer

__all__ = ["VirtualTime", "VirtualTimers"]


class VirtualTime:
    """A clock, and the timers of all parties that share it. For one thread."""

    def __init__(self) -> None:
        self._now = 0.0
        self._heap: list[tuple[float, int, Timer, VirtualTimers]] = []
        self._numbers = itertools.count()
        #: The same numbers in every simulation.
        self.dice = random.Random(0)

    def now(self) -> float:
        """Seconds since the simulation began."""
        return self._now

    def schedule(self, timer: Timer, timers: VirtualTimers) -> None:
        """Fire ``timer`` when its time has come; at once if it is past."""
        entry = (max(timer.when, self._now), next(self._numbers), timer, timers)
        heapq.heappush(self._heap, entry)

    def step(self, until: float = math.inf) -> bool:
        """Move to the next timer and fire it; False when none is left that is due ``until``."""
        while self._heap and self._heap[0][0] <= until:
            when, _, timer, timers = heapq.heappop(self._heap)
            if timer.action is None:
                continue
            self._now = max(self._now, when)
            timers.fire(timer)
            return True
        return False

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, with all that happens in them."""
        until = self._now + seconds
        while self.step(until):
            pass
        self._now = until

    def flush(self, timers: VirtualTimers) -> None:
        """Fire what is still to come of one party."""
        mine = sorted(entry[:3] for entry in self._heap if entry[3] is timers)
        for _, _, timer in mine:
            timer.fire()


class VirtualTimers:
    """The timers of one party, which can be paused as a process can be stopped."""

    def __init__(self, time: VirtualTime) -> None:
        self.clock: Clock = time
        self._time = time
        self._held_back: list[Timer] | None = None
        self._closed = False

    @property
    def paused(self) -> bool:
        """Whether this party stands still."""
        return self._held_back is not None

    def jitter(self, longest: float) -> float:
        """Up to ``longest`` seconds, by the dice that all parties share."""
        return self._time.dice.uniform(0.0, longest)

    def call_at(self, when: float, action: Callable[[], object]) -> Timer:
        """Call ``action`` at the virtual time ``when``. Raises `ClientClosed` after `close`."""
        if self._closed:
            raise ClientClosed
        timer = Timer(when, action)
        self._time.schedule(timer, self)
        return timer

    def fire(self, timer: Timer) -> None:
        """Fire ``timer``, or keep it until `resume`."""
        if self._held_back is not None:
            self._held_back.append(timer)
        else:
            timer.fire()

    def pause(self) -> None:
        """Stop: nothing of this party happens until `resume`, whatever the time."""
        if self._held_back is None:
            self._held_back = []

    def resume(self) -> None:
        """Go on; what was due meanwhile happens now, in its order."""
        held_back, self._held_back = self._held_back or [], None
        for timer in held_back:
            self._time.schedule(timer, self)

    def close(self) -> None:
        """Take no more timers; call what is still due later now."""
        self._closed = True
        self._time.flush(self)
