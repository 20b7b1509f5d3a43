"""The lock of one name: acquiring it gives a grant."""

from __future__ import annotations

from typing import TypeVar

from coordlock.access import Access
from coordlock.awaiting_lock import AwaitingLock
from coordlock.base_lock import DEFAULT, BaseLock, Timeout
from coordlock.blocking_lock import BlockingLock
from coordlock.grant import AsyncGrant, Grant
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Claim
from coordlock.model.names import check_name
from coordlock.queue_view import QueueMember, queue_view
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking

__all__ = ["AsyncLock", "Lock"]

G = TypeVar("G", bound=Grant | AsyncGrant)


class _OneLock(BaseLock[G], shown="Lock"):
    """What the sync and the async lock of one name share."""

    def __init__(
        self,
        access: Access,
        name: str,
        claim: Claim,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> None:
        claims = {check_name(name): claim}
        super().__init__(access, name, claims, timeout, label, max_hold, cancellation)

    @property
    def claim(self) -> Claim:
        """The mode, or the permit, that it asks for."""
        return self._claims[self.name]

    def _contenders(self) -> Steps[tuple[QueueMember, ...]]:
        """The queue in order, holders and waiters. Raises `BackendUnavailable`."""
        return (yield from queue_view(self._access.engine, self.name))


class Lock(_OneLock[Grant], BlockingLock[Grant]):
    """A distributed lock by name. Made by `Client`; cheap, reusable, usable from any thread.

    Not reentrant: a second acquire waits behind the first. Each ``with`` block has its own grant::

        with client.lock("nightly-migration", timeout=30) as grant:
            ledger.append(entry, token=grant.token)

    It releases that grant in whatever thread, task or context the block ends.

    As a decorator it is held during each call of the function.
    """

    def _make(self, ticket: Ticket) -> Grant:
        return Grant(self._access.engine, ticket)

    acquire = blocking(BaseLock[Grant]._acquire)
    try_acquire = blocking(BaseLock[Grant]._try_acquire)
    contenders = blocking(_OneLock[Grant]._contenders)
    locked = blocking(BaseLock[Grant]._locked)


class AsyncLock(_OneLock[AsyncGrant], AwaitingLock[AsyncGrant]):
    """A distributed lock by name, for asyncio. Made by `AsyncClient`; cheap and reusable.

    Not reentrant: a task that acquires it twice waits for itself. A waiting task takes no thread.
    Each ``async with`` block has its own grant, and releases it in whatever task the block ends.
    As a decorator it is held during each call of the coroutine function.
    """

    def _make(self, ticket: Ticket) -> AsyncGrant:
        return AsyncGrant(self._access.engine, ticket)

    acquire = awaiting(BaseLock[AsyncGrant]._acquire)
    try_acquire = awaiting(BaseLock[AsyncGrant]._try_acquire)
    contenders = awaiting(_OneLock[AsyncGrant]._contenders)
    locked = awaiting(BaseLock[AsyncGrant]._locked)
