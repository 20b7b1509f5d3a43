"""One call of an election, a group, values or a work queue, and its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordlock_faults.events import (
    Act,
    Called,
    Event,
    FaultBegan,
    Raised,
    Returned,
    Shown,
)

__all__ = ["Call"]


@dataclass(eq=False, slots=True)
class Call:
    """The events of one call; None for what did not happen.

    ``killed`` is the fault that ended its process, if one did.
    """

    called: Called
    shown: list[Shown] = field(default_factory=list)
    answer: Returned | Raised | None = None
    killed: FaultBegan | None = None

    @property
    def act(self) -> Act:
        """What was called."""
        return self.called.act

    @property
    def of(self) -> str:
        """The election, the group, the work queue or the folder of values."""
        return self.called.of

    @property
    def process(self) -> str:
        """The client process."""
        return self.called.process

    @property
    def passed(self) -> tuple[int, ...]:
        """The numbers that were passed."""
        return self.called.values

    @property
    def returned(self) -> Returned | None:
        """Its answer, if it did not raise."""
        return self.answer if isinstance(self.answer, Returned) else None

    @property
    def states(self) -> Iterator[Shown | Returned]:
        """The states that an observer or a read has given."""
        if self.act is Act.OBSERVE:
            yield from self.shown
        elif self.returned is not None:
            yield self.returned

    @property
    def events(self) -> tuple[Event, ...]:
        """The call and its answer. What was shown is too much to tell."""
        return (self.called,) if self.answer is None else (self.called, self.answer)

    def take(self, event: Returned | Raised | Shown) -> bool:
        """Note ``event``; whether it can come after what came before."""
        fits = event.process == self.process and self.answer is None
        if isinstance(event, Shown):
            self.shown.append(event)
            return fits and self.act is Act.OBSERVE
        self.answer = event
        return fits
