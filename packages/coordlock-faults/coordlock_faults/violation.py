"""What a checker finds: a sentence, and the events that prove it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Final, Protocol, runtime_checkable

from coordlock.model.claim import Mode, Permit
from coordlock_faults.events import Event

__all__ = ["Violation", "Witness", "shown", "together"]

#: Fields that are moments, in nanoseconds.
_MOMENTS: Final = ("deadline",)


@runtime_checkable
class Witness(Protocol):
    """What is known by events: an attempt, an operation, a fault, a contender."""

    @property
    def events(self) -> tuple[Event, ...]:
        """All of them."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. What kind of promise, its class tells.

    Attributes:
        what: what happened, in a sentence.
        events: what proves it.
    """

    what: str
    events: tuple[Event, ...]

    def told(self, origin: int = 0) -> str:
        """The story in a few lines; times are in seconds since ``origin`` (nanoseconds)."""
        events = sorted(set(self.events), key=lambda one: one.at)
        proof = "".join(f"\n  {shown(event, origin)}" for event in events)
        return f"{type(self).__name__}: {self.what}{proof}"

    def __str__(self) -> str:
        return self.told()


def shown(event: Event, origin: int = 0) -> str:
    """An event in one line, less what is empty; times are in seconds since ``origin`` (in ns)."""
    parts = [f"{(event.at - origin) / 1e9:14.6f} s  {event.process:<10} {type(event).__name__}"]
    for field in fields(event)[2:]:
        value = getattr(event, field.name)
        if field.name in _MOMENTS and value is not None:
            value = f"{(value - origin) / 1e9:.6f} s"
        elif isinstance(value, Mode | Permit):
            value = value.marker
        if value != "":
            parts.append(f"{field.name}={value}")
    return " ".join(parts)


def together(*witnesses: Event | Witness | Iterable[Event | None] | None) -> tuple[Event, ...]:
    """The events of all these; None stands for what is not there."""

    def flat() -> Iterator[Event | None]:
        for one in witnesses:
            if one is None or isinstance(one, Event):
                yield one
            else:
                yield from one.events if isinstance(one, Witness) else one

    return tuple(one for one in flat() if one is not None)
