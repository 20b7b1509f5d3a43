"""A worker of the demos: a process that raises the balance of a ledger, step by step, as ordered.

It works as a careless program would: it never asks whether it still holds the lock. So what keeps
the ledger right is the lock, and where a lock cannot, the ledger's fence, if it has one.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from coordlock.backend.config import configure
from coordlock.cli.text import echo, milliseconds, printable
from coordlock.client import connect
from coordlock.errors import CoordlockError, StaleToken
from coordlock.fencing.files import FileFence
from coordlock.locks.grant import Grant
from coordlock.locks.lock import Lock
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


def _say(event: str, text: str) -> None:
    """Answer the demo: what happened, in a word and in words."""
    echo(f"{event} {printable(text)}")


def _work(lock: Lock, ledger: Ledger) -> None:
    """Do each order that comes on stdin; the first is "acquire"."""
    grant: Grant | None = None
    balance = 0
    for order in map(str.strip, sys.stdin):
        if grant is None or order == "acquire":
            grant = lock.acquire(_PATIENCE)
            waited = milliseconds(grant.waited)
            _say("holds", f"HOLDS the lock, token {grant.token}, waited {waited}")
        elif order == "read":
            balance = ledger.read(grant.token)
            _say("read", f"read the balance {balance}")
        elif order == "write":
            newest = max((token for token, _ in ledger.entries()), default=0)
            try:
                ledger.write(grant.token, balance + 1)
            except StaleToken as stale:
                older = f"token {stale.token} is older than {stale.newest}"
                _say("refused", f"is REFUSED by the ledger: {older} (StaleToken)")
                continue
            text = f"wrote the balance {balance + 1} with token {grant.token}"
            if grant.token < newest:
                stale_write = f"the stale write is ACCEPTED, though token {newest} has written"
                _say("accepted", f"{text}: {stale_write}")
            else:
                _say("wrote", text)
        elif grant.release():
            _say("released", "released the lock")
        else:
            _say("lost", f"learns that the lock is lost: {grant.lost.reason}")


def main() -> None:
    """Do what comes on stdin, with the lock and the ledger that the arguments name."""
    mute()  # the timeline tells enough
    name, ttl, lock, file, fences = sys.argv[1:]
    try:
        with connect(configure(None, {"label": name, "ttl": float(ttl)})) as client:
            _say("ready", "")
            _work(client.lock(lock), Ledger(file, fences))
    except CoordlockError as error:
        _say("failed", str(error))


if __name__ == "__main__":
    main()
