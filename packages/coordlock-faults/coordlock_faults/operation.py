"""One operation on the resource, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordlock_faults.events import (
    Event,
    FinalSet,
    FinalValue,
    OperationAccepted,
    OperationFailed,
    OperationOffered,
    OperationRefused,
)

__all__ = ["Operation", "Resource"]


@dataclass(eq=False, slots=True)
class Operation:
    """The events of one operation; None for what did not happen, or is not known."""

    offered: OperationOffered
    accepted: OperationAccepted | None = None
    refused: OperationRefused | None = None
    failed: OperationFailed | None = None

    @property
    def token(self) -> int:
        """The token that was presented."""
        return self.offered.token

    @property
    def events(self) -> tuple[Event, ...]:
        """All that is known of it."""
        told = (self.offered, self.accepted, self.refused, self.failed)
        return tuple(one for one in told if one is not None)

    def take(self, event: OperationAccepted | OperationRefused | OperationFailed) -> bool:
        """Note ``event``; whether it agrees with what was known.

        Client and resource may both tell of the same answer, and the client of a failure where
        the resource has accepted or refused.
        """
        fits = True
        match event:
            case OperationAccepted():
                same = self.accepted is None or self.accepted.order == event.order
                fits = self.refused is None and same
                self.accepted = self.accepted or event
            case OperationRefused():
                fits = self.accepted is None
                self.refused = self.refused or event
            case OperationFailed():
                fits = self.failed is None
                self.failed = event
        return fits


@dataclass(eq=False, slots=True)
class Resource:
    """All operations on one resource, in the order of their being offered, and its final state."""

    name: str
    operations: list[Operation] = field(default_factory=list)
    final_sets: list[FinalSet] = field(default_factory=list)
    final_value: FinalValue | None = None
