"""The contenders of one client's workers, in the queue of the workers.

A contender guards every write of the worker that has it. So loss, deadline, eviction and `max_hold`
of an item are those of a lock, and a claim is void exactly when its contender has left its queue.
When its item has ended, a contender serves the client's next one, which saves two requests an item.
"""

from __future__ import annotations

import math
import threading
from typing import Final

from coordlock.errors import ClientClosed, CoordlockError
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock.work.store import Store

__all__ = ["Worker", "Workers"]

#: For how many seconds a contender without an item stays in the queue.
_IDLE: Final = 5.0


class Worker:
    """A contender, for one item after the other."""

    __slots__ = ("end", "idle_until", "label", "ticket")

    def __init__(self, ticket: Ticket, label: str | None) -> None:
        self.ticket: Final = ticket
        self.label: Final = label
        #: When it leaves the queue, where it has no item: in seconds of the client's clock.
        self.idle_until = 0.0
        #: Kept when its item ends: with the error of a loss, or with None.
        self.end: Promise[CoordlockError | None] = Promise()
        ticket.end.add_done_callback(lambda end: self.end.resolve(end.result()))

    @property
    def token(self) -> int:
        """Its fencing token."""
        return self.ticket.contenders[0].token or 0

    def finish(self) -> None:
        """Its item has ended, and it was not lost."""
        end, self.end = self.end, Promise()
        end.resolve(None)


class Workers:
    """The workers of one client. Safe for threads."""

    def __init__(self, store: Store) -> None:
        self._engine: Final = store.engine
        self._queue: Final = store.layout.workers
        self._name: Final = store.layout.name
        self._lock: Final = threading.RLock()
        #: Those without an item, the one that is idle longest first.
        self._idle: list[Worker] = []
        self._has_timer = False

    def get(self, label: str | None, token: int = 0) -> Steps[Worker]:
        """A worker that has no item, with a token greater than ``token``.

        So the tokens of one item grow with each claim. It has no deadline. Raises what an acquire
        raises.
        """
        with self._lock:
            for worker in reversed(self._idle):
                if worker.label == label and worker.token > token and worker.ticket.lost is None:
                    self._idle.remove(worker)
                    return worker
        while True:
            ticket = yield from acquisition(
                *(self._engine, {self._queue: Mode.NL}),
                label=label,
                kind="item of work queue",
                name=self._name,
            )
            ticket.call = None  # it serves other calls, too, whatever becomes of this one
            if (ticket.contenders[0].token or 0) > token:
                return Worker(ticket, label)
            ticket.withdraw()

    def put_back(self, worker: Worker) -> None:
        """``worker`` has no item any more: keep it for the next one, for some seconds."""
        ticket = worker.ticket
        ticket.call = None  # no block's any more
        if ticket.limit is not None or ticket.lost is not None or ticket.is_leaving:
            ticket.withdraw()
            return
        worker.finish()
        worker.idle_until = self._engine.clock.now() + _IDLE
        with self._lock:
            self._idle.append(worker)
            if self._has_timer:
                return
            self._has_timer = True
        self._retire_later(worker.idle_until)

    def _retire_later(self, when: float) -> None:
        try:
            self._engine.timers.call_at(when, self._retire)
        except (ClientClosed, RuntimeError):  # no thread can be started
            self._retire(math.inf)

    def _retire(self, now: float | None = None) -> None:
        """Let those leave that have been idle for long. One timer serves all."""
        now = self._engine.clock.now() if now is None else now
        with self._lock:
            over = [one for one in self._idle if one.idle_until <= now]
            self._idle = [one for one in self._idle if one.idle_until > now]
            self._has_timer = bool(self._idle)
            following = self._idle[0].idle_until if self._idle else 0.0
            has_timer = self._has_timer
        for one in over:
            one.ticket.withdraw()
        if has_timer:
            self._retire_later(following)
