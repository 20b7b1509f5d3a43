"""What the demo's lock protects: a shared file that refuses stale tokens.

Each line is what one worker did under one token: it read the balance, or it wrote a new one. The
file is the resource's side of fencing: it remembers the highest token that it has seen, and
refuses lower ones, to readers too, because what a stale reader computes would be written later.
"""

from __future__ import annotations

import fcntl
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final, Literal

__all__ = ["Entry", "Ledger", "StaleToken", "audit"]


class StaleToken(Exception):
    """A token was presented that is lower than one seen before."""

    def __init__(self, token: int, highest: int) -> None:
        super().__init__(token, highest)
        self.token = token
        self.highest = highest


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    token: int
    worker: str
    action: Literal["read", "wrote"]
    balance: int


class Ledger:
    """The ledger in ``file``, for any number of processes."""

    def __init__(self, file: Path) -> None:
        self.file: Final = file

    def read(self, token: int, worker: str) -> int:
        """The balance: what was written last, 0 before that. Raises `StaleToken`."""
        with self._open(token) as (file, entries):
            balance = next((e.balance for e in reversed(entries) if e.action == "wrote"), 0)
            _append(file, Entry(token, worker, "read", balance))
        return balance

    def write(self, token: int, worker: str, balance: int) -> None:
        """Set the balance. Raises `StaleToken`."""
        with self._open(token) as (file, _):
            _append(file, Entry(token, worker, "wrote", balance))

    def entries(self) -> list[Entry]:
        """All lines, in the order in which they were written."""
        return _parse(self.file.read_text("utf-8"))

    @contextmanager
    def _open(self, token: int) -> Iterator[tuple[IO[str], list[Entry]]]:
        """Open for one operation under ``token``; the flock makes check and write one step."""
        with self.file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            entries = _parse(file.read())
            highest = max((entry.token for entry in entries), default=0)
            if token < highest:
                raise StaleToken(token, highest)
            yield file, entries


def audit(entries: list[Entry], writes: int) -> list[str]:
    """What is wrong with a ledger into which ``writes`` were acknowledged: nothing, one hopes."""
    wrong: list[str] = []
    for before, after in itertools.pairwise(entries):
        if after.token < before.token:
            wrong.append(f"token {after.token} came after token {before.token}")
        if after.token == before.token and after.worker != before.worker:
            wrong.append(f"token {after.token} was used by {before.worker} and {after.worker}")
    balance = 0
    reader = 0
    for entry in entries:
        if entry.action == "read":
            reader = entry.token
            if entry.balance != balance:
                wrong.append(f"{entry.worker} read {entry.balance} where {balance} was written")
            continue
        if entry.token != reader:
            wrong.append(f"somebody came between {entry.worker}'s read and write")
        if entry.balance != balance + 1:
            wrong.append(f"an update was lost: {entry.balance} was written after {balance}")
        balance = entry.balance
    if balance != writes:
        wrong.append(f"{writes} updates were acknowledged, and the balance is {balance}")
    return wrong


def _append(file: IO[str], entry: Entry) -> None:
    file.write(json.dumps(asdict(entry)) + "\n")
    file.flush()


def _parse(text: str) -> list[Entry]:
    return [Entry(**json.loads(line)) for line in text.splitlines()]
