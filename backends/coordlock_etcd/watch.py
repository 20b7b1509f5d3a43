"""One watch: its contender, where on the stream it begins, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordlock.backend import Departure
from coordlock.model.contender import Contender
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.keys import key_of

if TYPE_CHECKING:
    from coordlock_etcd.queue_watch import QueueWatch

__all__ = ["Callback", "Watch"]


@dataclass(eq=False, slots=True)
class Callback:
    """What to call at a departure, and for which waiters. Calling this cancels it."""

    on_departure: Callable[[Departure], None]
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
        own: whether it is this client's own contender.
        start: the revision from which it must be watched: the contender was there just before.
        version: the version of the value whose change counts, too; 0 where only departures do.
        id: its id on the current stream; 0 while it is on no stream.
        queue: the watch on the whole queue that serves it in place of one of its own.
        is_covered: whether a watch on the stream reports for certain what it waits for.
        callbacks: what to call at the departure; few, so a list is smallest.
    """

    contender: Contender
    own: bool
    start: int
    version: int = 0
    id: int = 0
    queue: QueueWatch | None = None
    is_covered: bool = False
    callbacks: list[Callback] = field(default_factory=list)

    @property
    def key(self) -> bytes:
        """The contender's key."""
        return key_of(self.contender)

    @property
    def order(self) -> int:
        """The revision that created the contender."""
        return self.contender.order

    @property
    def identity(self) -> tuple[str, int, int]:
        """Identifies it. A key may have several contenders, one after another."""
        return self.contender.key, self.contender.order, self.version

    def is_over_with(self, event: pb.Event) -> bool:
        """Whether ``event`` is what it waits for."""
        if event.kv.mod_revision <= self.order:
            return False  # of an earlier contender: a member that lags begins in the past
        return event.type == pb.Event.DELETE or 0 < self.version < event.kv.version

    def still_waits(self, kvs: Sequence[pb.KeyValue]) -> bool:
        """Whether ``kvs``, a reading of the key, shows that nothing has happened yet."""
        if not kvs or kvs[0].create_revision != self.order:
            return False
        return self.version in (0, kvs[0].version)
