"""Names and values that nobody else in the run uses, and the journal they are written to."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Final

from coordlock_faults.events import Act
from coordlock_faults.journal import Journal

from coordlock.model.claim import Claim
from testbed.clients.attempt_log import AttemptLog
from testbed.clients.call_log import CallLog

__all__ = ["Scribe"]

#: More operations than a client does in a run.
_SPAN: Final = 10**9


class Scribe:
    """Writes down what one client process does. Usable from any thread.

    The process' name ends in a number that no other client has, as in "c3".

    Attributes:
        kept: the attempts whose grants are held through quiescence, to the end.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal: Final = journal
        self.name: Final = journal.process
        digits = re.search(r"\d+$", self.name)
        if digits is None:
            raise ValueError(f"a client's name ends in its number, not {self.name!r}")
        self.kept: Final[list[AttemptLog]] = []
        self._attempts = itertools.count(1)
        self._calls = itertools.count(1)
        self._operations = itertools.count(1)
        self._values = itertools.count(int(digits[0]) * _SPAN)

    def attempt(self, lock: str, claim: Claim, together: str = "", actor: str = "") -> AttemptLog:
        """A new attempt, which is invoked at once."""
        name = f"{self.name}-{next(self._attempts)}"
        return AttemptLog(self.journal, name, lock, claim, together, actor)

    def attempts(self, claims: Mapping[str, Claim], actor: str) -> list[AttemptLog]:
        """New attempts for several locks, which are asked for by one call."""
        together = f"{self.name}-s{next(self._attempts)}"
        return [self.attempt(lock, claim, together, actor) for lock, claim in claims.items()]

    def operation(self) -> str:
        """A name for an operation."""
        return f"{self.name}-o{next(self._operations)}"

    def call(self, act: Act, of: str, attempt: str = "", values: tuple[int, ...] = ()) -> CallLog:
        """A new call, which is made at once."""
        return CallLog(self.journal, f"{self.name}-k{next(self._calls)}", act, of, attempt, values)

    def value(self) -> int:
        """A value to add, or a mark; greater than those before."""
        return next(self._values)
