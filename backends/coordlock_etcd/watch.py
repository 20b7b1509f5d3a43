"""One watch: its contender, where on the stream it begins, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coordlock.backend import Departure
from coordlock.model.contender import Contender
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.keys import key_of

__all__ = ["Callback", "Carrier", "Watch"]


@dataclass(eq=False, slots=True)
class Callback:
    """What to call at a departure, and for which waiters. Calling this cancels it."""

    on_departure: Callable[[Departure], None]
    waiters: Sequence[Contender]
    watch: Watch
    cancel: Callable[[Callback], None]

    def __call__(self) -> None:
        self.cancel(self)


class Carrier(Protocol):
    """What a watch on the whole queue does for one on a contender: see `queue_watch`."""

    #: Whether it has reported, and so has caught up with the store.
    has_caught_up: bool

    def has_left(self, key: bytes, order: int) -> bool:
        """Whether etcd has reported that the contender ``key``, created at ``order``, has left."""

    def is_first(self, order: int) -> bool:
        """Whether none of the contenders before ``order`` is left in the queue."""

    def drop(self, watch: Watch) -> None:
        """Serve ``watch`` no longer."""


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
        version: the version of the value whose change counts, too; 0 where only departures do.
        began: the revision from which it watches on that stream; `requests.NOW` stands for etcd's
            present, until etcd says which revision that is.
        carrier: the watch on the whole queue that serves it in place of one of its own.
    """

    contender: Contender
    own: bool
    start: int
    id: int = 0
    sent: int = 0
    callbacks: list[Callback] = field(default_factory=list)
    version: int = 0
    began: int = 0
    carrier: Carrier | None = None

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
        """The same for two watches exactly if they are one. A key may have several contenders."""
        return self.contender.key, self.contender.order, self.version

    @property
    def is_first(self) -> bool:
        """Whether it is known that no contender before it is left in its queue."""
        return self.carrier is not None and self.carrier.is_first(self.order)

    @property
    def has_gap(self) -> bool:
        """Whether something may have happened that it does not report."""
        return self.start < self.began

    @property
    def is_unsure(self) -> bool:
        """Whether no watch on the stream is certain to report what it waits for."""
        return self.carrier is None and (not self.id or self.has_gap)

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
