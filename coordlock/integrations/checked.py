"""What the frameworks need of a grant, whichever kind of lock it is of."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Checked"]


class Checked(Protocol):
    """A grant of any kind."""

    def check(self) -> None:
        """Raise `LockLost` unless it is held."""
