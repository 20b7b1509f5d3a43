"""The contenders of one client's workers, in the queue of the workers.

A contender guards every write of the worker that has it. So loss, deadline, eviction and `max_hold`
of an item are those of a lock, and a claim is void exactly when its contender has left its queue.
When its item has ended, a contender serves the client's next one, which saves two requests an item.
It leaves when the client has been idle for some seconds.
"""

from __future__ import annotations

import threading
from typing import Final

from coordlock.errors import CoordlockError
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Mode
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise
from coordlock.work.store import Store

__all__ = ["Worker", "Workers"]


class Worker:
    """A contender, for one item after the other."""

    __slots__ = ("end", "ticket")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket: Final = ticket
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

    def __init__(self, store: Store, label: str | None) -> None:
        self._store: Final = store
        self._label: Final = label
        self._lock: Final = threading.RLock()
        #: Those without an item.
        self._idle: list[Worker] = []

    def get(self, token: int = 0) -> Steps[Worker]:
        """A worker that has no item, with a token greater than ``token``.

        So the tokens of one item grow with each claim. It has no deadline. Raises what an acquire
        raises.
        """
        with self._lock:
            for worker in reversed(self._idle):
                if worker.token > token and worker.ticket.lost is None:
                    self._idle.remove(worker)
                    return worker
        layout = self._store.layout
        while True:
            ticket = yield from acquisition(
                *(self._store.engine, {layout.workers: Mode.NL}),
                label=self._label,
                kind="item of work queue",
                name=layout.name,
            )
            ticket.call = None  # it serves other calls, too, whatever becomes of this one
            worker = Worker(ticket)
            if worker.token > token:
                return worker
            ticket.withdraw()

    def put_back(self, worker: Worker) -> None:
        """``worker`` has no item any more: keep it for the next one."""
        ticket = worker.ticket
        ticket.call = None  # no block's any more
        if ticket.limit is not None or ticket.lost is not None or ticket.is_leaving:
            ticket.withdraw()
            return
        worker.finish()
        with self._lock:
            self._idle.append(worker)

    def retire(self) -> None:
        """Let those leave that have no item."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.ticket.withdraw()
