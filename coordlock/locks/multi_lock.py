"""Several locks that are acquired at once, and those of a node in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from coordlock.kernel.access import Access
from coordlock.kernel.ticket import Ticket
from coordlock.locks.awaiting_lock import AwaitingLock
from coordlock.locks.base_lock import BaseLock
from coordlock.locks.blocking_lock import BlockingLock
from coordlock.locks.claims import merged
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.multi_grant import AsyncMultiGrant, MultiGrant
from coordlock.locks.queue_view import QueueMember, queue_view
from coordlock.model.claim import AnyClaim, Mode
from coordlock.model.names import joined
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.settings import DEFAULT, Timeout

__all__ = ["AsyncMultiLock", "MultiLock", "claims_of"]

G = TypeVar("G", bound=Grant | AsyncGrant)


def claims_of(
    access: Access, locks: Iterable[str | BaseLock[Any]], mode: Mode
) -> dict[str, AnyClaim]:
    """The claims of ``locks``: of names in ``mode``, of lock objects in their own.

    Raises what `merged` does, TypeError for what is neither a name nor a lock object, and
    ValueError for a lock object of another client.
    """
    if isinstance(locks, str):
        raise TypeError(f"multi_lock takes a list of names, as in multi_lock([{locks!r}])")
    return merged(wanted for one in locks for wanted in _wanted(access, one, mode))


def _wanted(access: Access, lock: object, mode: Mode) -> Iterable[tuple[str, AnyClaim]]:
    if isinstance(lock, str):
        return [(lock, mode)]
    if not isinstance(lock, BaseLock):
        raise TypeError(f"multi_lock takes names and locks of client.lock(...), not {lock!r}")
    if lock._access is not access:
        raise ValueError(f"{lock!r} is of another client: give locks of this one, or their names")
    if getattr(lock, "reentrant", False):
        raise ValueError(
            f"{lock!r} is reentrant, and several locks at once are not: give its name, and acquire "
            "nothing of them twice"
        )
    if lock._keeps_value:
        raise ValueError(
            f"{lock!r} keeps a value, and several locks at once keep none: acquire it alone"
        )
    return lock._claims.items()


class _MultiLock(BaseLock[G], shown="MultiLock"):
    """What the sync and the async lock of several names share."""

    def __init__(
        self,
        access: Access,
        claims: Mapping[str, AnyClaim],
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
        node: str | None = None,
    ) -> None:
        """``node`` is that of the names that the lock is meant for, in a tree."""
        name = joined(claims) if node is None else node
        super().__init__(access, name, claims, timeout, label, max_hold, cancellation)
        self._node = node
        if len(claims) > 1:
            access.engine.backend.require("sets")

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which they were given."""
        return tuple(self._claims)

    @property
    def claims(self) -> Mapping[str, AnyClaim]:
        """The mode, or the permit, that it asks for of each name."""
        return dict(self._claims)

    def _contenders(self) -> Steps[dict[str, tuple[QueueMember, ...]]]:
        """The queue of each name in order, holders and waiters. Raises `BackendUnavailable`.

        They are read one after the other, so they need not be of one moment.
        """
        queues = {}
        for name in self._claims:
            queues[name] = yield from queue_view(self._access.engine, name)
        return queues


class MultiLock(_MultiLock[MultiGrant], BlockingLock[MultiGrant]):
    """Several locks, which are acquired in one step. Made by `Client`; cheap and reusable.

    All or none are granted, under one deadline. They are asked for at the same moment, so two of
    them never wait for each other, in whatever order they name their locks.
    """

    def _make(self, ticket: Ticket) -> MultiGrant:
        return MultiGrant(self._access.engine, ticket, self._node)

    acquire = blocking(BaseLock[MultiGrant]._acquire)
    try_acquire = blocking(BaseLock[MultiGrant]._try_acquire)
    contenders = blocking(_MultiLock[MultiGrant]._contenders)
    locked = blocking(BaseLock[MultiGrant]._locked)


class AsyncMultiLock(_MultiLock[AsyncMultiGrant], AwaitingLock[AsyncMultiGrant]):
    """Several locks, which are acquired in one step, for asyncio. Made by `AsyncClient`.

    All or none are granted, under one deadline. They are asked for at the same moment, so two of
    them never wait for each other, in whatever order they name their locks.
    """

    def _make(self, ticket: Ticket) -> AsyncMultiGrant:
        return AsyncMultiGrant(self._access.engine, ticket, self._node)

    acquire = awaiting(BaseLock[AsyncMultiGrant]._acquire)
    try_acquire = awaiting(BaseLock[AsyncMultiGrant]._try_acquire)
    contenders = awaiting(_MultiLock[AsyncMultiGrant]._contenders)
    locked = awaiting(BaseLock[AsyncMultiGrant]._locked)
