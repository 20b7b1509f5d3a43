"""One watch: whom it is on, where it stands, and whom it tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordlock.model.contender import Contender

__all__ = ["Callback", "Watch"]


@dataclass(eq=False, slots=True)
class Callback:
    """Whom to tell of a departure, and on whose behalf. Calling it cancels that."""

    departed: Callable[[bool], None]
    waiter: Contender | None
    watch: Watch
    cancel: Callable[[Callback], None]

    def __call__(self) -> None:
        self.cancel(self)


@dataclass(eq=False, slots=True)
class Watch:
    """One contender's watch, shared by all who wait for it.

    Attributes:
        contender: who is watched.
        own: whether it is of this client's own contenders, which have to be there when others go.
        start: the revision from which it is watched when it is next sent: the contender was there
            just before.
        id: its id on the current stream; 0 while it is on none.
        sent: the revision from which it was sent on the current stream.
        callbacks: who is told of the departure; few, so a list is smallest.
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
