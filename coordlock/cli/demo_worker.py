"""A worker of the demos: a process that raises the balance of a ledger, step by step, as ordered.

It works as a careless program would: it never asks whether it still holds the lock. So what keeps
the ledger right is the lock, and where a lock cannot, the ledger's fence, if it has one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from coordlock.backend.config import configure
from coordlock.cli.text import echo
from coordlock.client import connect
from coordlock.errors import CoordlockError, StaleToken
from coordlock.fencing.files import FileFence
from coordlock.locks.grant import Grant
from coordlock.locks.lock import Lock
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.log import mute

__all__ = ["Ledger", "main"]

#: Give up waiting for the lock after so many seconds.
_PATIENCE: Final = 60.0


class Ledger:
    """A shared file with a line for each balance that was written, and by which token."""

    def __init__(self, file: str, fences: str) -> None:
        self._file = Path(file)
        self._fence = FileFence(fences) if fences else None

    def read(self, token: int) -> int:
        """The balance, 0 at first. A fence refuses stale readers, too: `StaleToken`."""
        with self._guard(token):
            return self.entries()[-1][1] if self.entries() else 0

    def write(self, token: int, balance: int) -> None:
        """Set the balance. Raises `StaleToken`."""
        with self._guard(token), self._file.open("a") as file:
            file.write(f"{token} {balance}\n")

    def entries(self) -> list[tuple[int, int]]:
        """The tokens and balances, in the order in which they were written."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return [(int(token), int(balance)) for token, balance in map(str.split, lines)]

    def _guard(self, token: int) -> AbstractContextManager[Any]:
        return self._fence.guard("ledger", token) if self._fence else nullcontext()


def _work(lock: Lock, ledger: Ledger) -> Iterator[dict[str, object]]:
    """What becomes of each order that comes on stdin."""
    grant: Grant | None = None
    balance = 0
    for order in map(str.strip, sys.stdin):
        if grant is None or order == "acquire":
            grant = lock.acquire(_PATIENCE)
            yield {"event": "holds", "token": grant.token, "waited": round(grant.waited, 6)}
        elif order == "read":
            balance = ledger.read(grant.token)
            yield {"event": "read", "balance": balance}
        elif order == "write":
            try:
                ledger.write(grant.token, balance + 1)
                yield {"event": "wrote", "token": grant.token, "balance": balance + 1}
            except StaleToken as stale:
                yield {"event": "refused", "token": stale.token, "newest": stale.newest}
        elif grant.release():
            yield {"event": "released"}
        else:
            yield {"event": "lost", "reason": grant.lost.reason}


def main() -> None:
    """Do what comes on stdin, with the lock and the ledger that the argument describes."""
    mute()  # the timeline tells enough
    task = json.loads(sys.argv[1])

    def tell(answer: dict[str, object]) -> None:
        echo(json.dumps({"at": SYSTEM_CLOCK.now(), **answer}))

    try:
        with connect(configure(None, {"label": task["worker"], "ttl": task["ttl"]})) as client:
            tell({"event": "ready"})
            for answer in _work(client.lock(task["lock"]), Ledger(task["ledger"], task["fences"])):
                tell(answer)
    except CoordlockError as error:
        tell({"event": "failed", "error": str(error)})


if __name__ == "__main__":
    main()
