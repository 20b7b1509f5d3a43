"""What can go wrong between a client and the service, on demand."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

__all__ = ["Fault", "Faults"]


class Fault(Enum):
    """What happens to one request."""

    LOSE_REQUEST = "lose request"  #: it never arrives; the client's connection breaks
    LOSE_REPLY = "lose reply"  #: it takes effect; the client's connection breaks
    LATE = "late"  #: the client's connection breaks; it takes effect a second later


class Faults:
    """The network of one client.

    Attributes:
        latency: gives the seconds that a reply or a departure takes; None for none at all. Random
            ones reorder departures.
    """

    def __init__(self, turned: Callable[[], object] = lambda: None) -> None:
        """``turned`` is called when a partition begins, and when it ends."""
        self.latency: Callable[[], float] | None = None
        self._next: list[tuple[str, Fault]] = []
        self._held_back: list[Callable[[], object]] | None = None
        self._turned = turned

    @property
    def partitioned(self) -> bool:
        """Whether nothing gets through, in either direction."""
        return self._held_back is not None

    def partition(self) -> None:
        """Let nothing through: requests get no answer, departures and news are held back."""
        if self._held_back is None:
            self._held_back = []
            self._turned()

    def heal(self) -> None:
        """Let everything through again: what was held back arrives, unanswered requests fail."""
        held_back, self._held_back = self._held_back or [], None
        for action in held_back:
            action()
        self._turned()

    def hold_back(self, action: Callable[[], object]) -> bool:
        """Keep ``action`` for the end of the partition; False when there is none."""
        if self._held_back is None:
            return False
        self._held_back.append(action)
        return True

    def inject(self, method: str, fault: Fault, times: int = 1) -> None:
        """Let ``fault`` happen to the next ``times`` requests of the contract's ``method``."""
        self._next.extend([(method, fault)] * times)

    def take(self, method: str) -> Fault | None:
        """The fault that is due for this request of ``method``, if any."""
        for index, (due, fault) in enumerate(self._next):
            if due == method:
                del self._next[index]
                return fault
        return None
