"""How a run of the split-brain story ended, and whether that proves what it should. No I/O."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from coordlock.cli.demo.ledger import Entry, audit, balance_of

__all__ = ["Outcome"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        fenced: whether its ledger has a fence.
        entries: the ledger.
        acknowledged: how many workers were told that they have written.
        refused: the tokens that were refused, each with the newer one that had been seen.
        troubles: what else went wrong.
    """

    fenced: bool
    entries: list[Entry]
    acknowledged: int
    refused: list[tuple[int, int]]
    troubles: list[str]

    @property
    def balance(self) -> int:
        """What the ledger says at the end."""
        return balance_of(self.entries)

    @property
    def wrong(self) -> list[str]:
        """What an auditor finds in the ledger."""
        return audit(self.entries, self.acknowledged)

    def findings(self) -> list[str]:
        """What is to be said of it, for people."""
        if self.wrong:
            return ["The ledger is CORRUPT:", *self.wrong]
        return [
            "The ledger is RIGHT:",
            *(
                f"token {token} was refused, because {newest} was seen"
                for token, newest in self.refused
            ),
            f"{self.acknowledged} updates were acknowledged, and the balance is {self.balance}",
        ]

    def missing(self) -> list[str]:
        """What the run should have shown and did not: nothing, when it proves its half."""
        stale_writes = [
            after
            for before, after in itertools.combinations(self.entries, 2)
            if after.action == "wrote" and after.token < before.token
        ]
        missing = self.troubles.copy()
        if self.fenced:
            missing += self.wrong
            if len(self.refused) != 1 or any(token >= newest for token, newest in self.refused):
                missing.append("the stale write alone should have been refused")
        else:
            if not stale_writes or self.refused:
                missing.append("the stale write should have been accepted")
            if self.balance >= self.acknowledged:
                missing.append("an update should have been lost")
        return missing
