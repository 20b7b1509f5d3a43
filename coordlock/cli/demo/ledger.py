"""What the demo's lock protects: a shared file, behind a fence or not.

Each line is what one worker did under one token: it read the balance, or it wrote a new one. With
a fence stale tokens are refused, to readers too, because what a stale reader computes would be
written later.
"""

from __future__ import annotations

import itertools
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from coordlock.fencing import GuardingFence

__all__ = ["Entry", "Ledger", "audit", "balance_of"]

#: What the fence knows the file by.
_RESOURCE: Final = "ledger"


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    token: int
    worker: str
    action: Literal["read", "wrote"]
    balance: int


class Ledger:
    """The ledger in ``file``, for any number of processes, protected by ``fence``."""

    def __init__(self, file: Path, fence: GuardingFence | None = None) -> None:
        self.file: Final = file
        self._fence = fence

    def read(self, token: int, worker: str) -> int:
        """The balance: what was written last, 0 before that. Raises `StaleToken`."""
        with self._guard(token):
            balance = balance_of(self.entries())
            self._append(Entry(token, worker, "read", balance))
        return balance

    def write(self, token: int, worker: str, balance: int) -> None:
        """Set the balance. Raises `StaleToken`."""
        with self._guard(token):
            self._append(Entry(token, worker, "wrote", balance))

    def entries(self) -> list[Entry]:
        """All lines, in the order in which they were written."""
        lines = self.file.read_text("utf-8").splitlines() if self.file.exists() else []
        return [Entry(**json.loads(line)) for line in lines]

    def _guard(self, token: int) -> AbstractContextManager[Any]:
        return self._fence.guard(_RESOURCE, token) if self._fence else nullcontext()

    def _append(self, entry: Entry) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")


def balance_of(entries: list[Entry]) -> int:
    """What was written last, 0 before that."""
    return next((entry.balance for entry in reversed(entries) if entry.action == "wrote"), 0)


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
