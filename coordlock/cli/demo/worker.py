"""One worker of the demo: a process that raises the ledger's balance by one, several times.

It works as a careless program would: it never asks whether it still holds the lock. So what keeps
the ledger right is the lock, and where a lock cannot, the ledger's fence, if it has one.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from coordlock.backend.config import configure
from coordlock.cli.demo.ledger import Ledger
from coordlock.client import Client, connect
from coordlock.errors import CoordlockError, StaleToken, Unfenceable
from coordlock.fencing.files import FileFence
from coordlock.locks.grant import Grant, GrantState
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["Task", "main"]

#: How long the work under the lock takes, in seconds.
_WORK: Final = 0.02
#: Give up waiting for the lock after so many seconds.
_PATIENCE: Final = 60.0


@dataclass(frozen=True)
class Task:
    """What a worker has to do.

    ``events`` is the descriptor to which it reports. In the round ``halt`` it stops between its
    read and its write, says so, and goes on when a line comes on stdin. Without such a round it
    does the same before its last one. ``fences`` is the directory of the ledger's fence, "" for a
    ledger without one; ``run`` tells several stories apart.
    """

    worker: str
    lock: str
    ledger: str
    events: int
    rounds: int
    halt: int = 0
    ttl: str | None = None
    fences: str = ""
    run: str = ""

    def encode(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


class _Worker:
    def __init__(self, task: Task) -> None:
        self._task = task
        fence = FileFence(task.fences) if task.fences else None
        self._ledger = Ledger(Path(task.ledger), fence)

    def tell(self, event: str, **fields: object) -> None:
        line = {"at": SYSTEM_CLOCK.now(), "worker": self._task.worker, "event": event, **fields}
        if self._task.run:
            line["run"] = self._task.run
        # All workers write to one pipe: less than PIPE_BUF is one piece, so that the order of
        # the lines is that of the events.
        try:
            os.write(self._task.events, json.dumps(line).encode() + b"\n")
        except BrokenPipeError:
            sys.exit("the demo has ended")

    def work(self) -> None:
        task = self._task
        options = {"label": task.worker} | ({"ttl": task.ttl} if task.ttl else {})
        with connect(configure(None, options)) as client:
            self.tell("ready")
            _wait_for_order()
            for number in range(1, task.rounds + 1):
                if number == task.rounds and not task.halt:
                    # A worker must be left to write while another one is frozen.
                    self.tell("last")
                    _wait_for_order()
                if not self._round(client, halt=number == task.halt):
                    self._round(client, halt=False)
        self.tell("done")

    def _round(self, client: Client, *, halt: bool) -> bool:
        """One update under the lock; whether it was made."""
        self.tell("waits")
        started = SYSTEM_CLOCK.now()
        grant = client.lock(self._task.lock).acquire(_PATIENCE)
        waited = SYSTEM_CLOCK.now() - started
        token = _token(grant)
        self.tell("holds", token=token, waited=round(waited, 6))
        try:
            balance = self._ledger.read(token, self._task.worker) + 1
            if halt:
                self.tell("halfway", token=token, balance=balance - 1)
                _wait_for_order()
            time.sleep(_WORK)
            state = grant.state
            self._ledger.write(token, self._task.worker, balance)
        except StaleToken as stale:
            error = f"{type(stale).__name__}: {stale}"
            self.tell("refused", token=stale.token, newest=stale.newest, error=error)
            self._release(grant)
            return False
        # Told before the release, because the next one holds it before the release returns.
        self.tell("wrote", token=token, balance=balance, state=state.name)
        self._release(grant)
        return True

    def _release(self, grant: Grant) -> None:
        if grant.state is GrantState.LOST or not grant.release():
            self.tell("lost", token=_token(grant), reason=grant.lost.reason)


def _token(grant: Grant) -> int:
    """The grant's token; 0 where the service has none."""
    try:
        return grant.token
    except Unfenceable:
        return 0


def _wait_for_order() -> None:
    if not sys.stdin.readline():
        sys.exit("the demo has ended")


def main() -> None:
    """Do the task that the first argument describes."""
    logging.getLogger("coordlock").addHandler(logging.NullHandler())  # the timeline tells enough
    worker = _Worker(Task(**json.loads(sys.argv[1])))
    try:
        worker.work()
    except CoordlockError as error:
        worker.tell("failed", error=str(error))


if __name__ == "__main__":
    main()
