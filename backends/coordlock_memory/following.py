"""One observation of the service: told of changes by the network, it reads the state anew."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from coordlock.backend import Listing, Observation
from coordlock.errors import CoordlockError
from coordlock.model.contender import Snapshot
from coordlock.runtime.clock import Clock
from coordlock.runtime.promise import Promise

__all__ = ["Following"]

S = TypeVar("S", Snapshot, Listing)


class Following(Generic[S]):
    """Reads after each change, one read at a time, and again when one got no answer.

    ``deliver`` brings a message to the client as the network lets it through, and ``retry`` calls a
    function a little later.
    """

    def __init__(
        self,
        read: Callable[[], Promise[S]],
        news: Callable[[], None],
        deliver: Callable[[Callable[[], None]], None],
        retry: Callable[[Callable[[], None]], None],
        clock: Clock,
    ) -> None:
        self._read: Final[Callable[[], Promise[S]]] = read
        self._deliver: Final = deliver
        self._retry: Final = retry
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._told = self._wanted = self._busy = self._over = False
        #: Counts broken connections: what was asked before one says nothing of the time after it.
        self._breaks = 0
        self._unsubscribe: Callable[[], None] = lambda: None
        self.observation: Final[Observation[S]] = Observation(news, self._stop, clock.now())

    def start(self, subscribe: Callable[[Callable[[], None]], Callable[[], None]]) -> None:
        """Follow what ``subscribe`` tells the changes of; it gives what ends that."""
        self._unsubscribe = subscribe(self._changed)
        if self._over:  # before it knew how to unsubscribe
            self._unsubscribe()
        self._look()

    def broken(self) -> None:
        """The connection broke, so changes may be missed: all is read anew."""
        with self._lock:
            self._breaks += 1
        self.observation.doubt(self._clock.now())
        self._look()

    def end(self, error: CoordlockError) -> None:
        """Nothing can come any more."""
        self.observation.end(error, self._clock.now())

    @property
    def over(self) -> bool:
        """Whether it was cancelled or has ended."""
        return self._over

    def _stop(self) -> None:
        self._over = True
        self._unsubscribe()

    def _changed(self) -> None:
        """Send one message, whatever number of changes it is for; called by the service."""
        with self._lock:
            if self._told:
                return
            self._told = True
        self._deliver(self._arrived)

    def _arrived(self) -> None:
        with self._lock:
            self._told = False
        self._look()

    def _look(self) -> None:
        """See to it that the state is read at a moment after this one."""
        with self._lock:
            self._wanted = True
            if self._busy:
                return
            self._busy = True
        self._run()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._over or not self._wanted:
                    self._busy = False
                    return
                self._wanted = False
                breaks = self._breaks
            answer = self._read()
            if not answer.done():
                answer.add_done_callback(lambda answer: self._go_on(answer, breaks))  # noqa: B023
                return
            if not self._take(answer, breaks):
                return

    def _go_on(self, answer: Promise[S], breaks: int) -> None:
        if self._take(answer, breaks):
            self._run()

    def _take(self, answer: Promise[S], breaks: int) -> bool:
        """Use an answer; whether to go on now, and not a little later."""
        if answer.exception() is not None:
            self.observation.doubt(self._clock.now())
            with self._lock:
                self._wanted = True
            self._retry(self._run)
            return False
        with self._lock:
            is_current = breaks == self._breaks
        if is_current:
            self.observation.show(answer.result())
        return True
