"""One call of a client that is no acquire and no release, written down."""

from __future__ import annotations

from typing import Final

from coordlock_faults.events import Act, Called, Raised, Returned, Shown
from coordlock_faults.journal import Journal

__all__ = ["CallLog"]


class CallLog:
    """Made just before the call, and told of the answer just after it."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        act: Act,
        of: str,
        attempt: str = "",
        values: tuple[int, ...] = (),
    ) -> None:
        self._journal: Final = journal
        self._name: Final = name
        journal.log(Called, name, act, of, attempt, values)

    def shown(self, values: tuple[int, ...]) -> None:
        """The observer has given a state."""
        self._journal.log(Shown, self._name, values)

    def returned(self, *values: int) -> None:
        """It has returned."""
        self._journal.log(Returned, self._name, values)

    def raised(self, error: str, detail: str = "") -> None:
        """It has raised an ``error`` of this class."""
        self._journal.log(Raised, self._name, error, detail)
