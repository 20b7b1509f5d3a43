"""One watch: its contender, where it stands, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coordlock.model.contender import Contender

__all__ = ["Callback", "Watch"]


@dataclass(eq=False, slots=True)
class Callback:
    """What to call at a departure, and for which waiters. Calling this cancels it."""

    departed: Callable[[bool], None]
    waiters: Sequence[Contender]
    watch: Watch
    cancel: Callable[[Callback], None]

    def __call__(self) -> None:
        self.cancel(self)


@dataclass(eq=False, slots=True)
class Watch:
    """One contender's watch, shared by all waiters for it.

    Attributes:
        contender: the contender that is watched.
        own: whether it is this client's own contender, which must be there when others depart.
        start: the revision from which it is watched when it is next sent: the contender was there
            just before.
        id: its id on the current stream; 0 while it is on no stream.
        sent: the revision from which it was sent on the current stream.
        callbacks: what to call at the departure; few, so a list is smallest.
    """

    contender: Contender
    own: bool
    start: int
    id: int = 0
    sent: int = 0
    callbacks: list[Callback] = field(default_factory=list)

    @property
    def key(self) -> bytes:
        """The contender's key."""
        return self.contender.key.encode("utf-8", "surrogateescape")

    @property
    def order(self) -> int:
        """The revision that created the contender."""
        return self.contender.order

    @property
    def place(self) -> tuple[str, int]:
        """What tells contenders apart; a key may have several in turn."""
        return self.contender.key, self.contender.order
