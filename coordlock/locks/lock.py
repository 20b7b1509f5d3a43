"""The lock of one name: acquiring it gives a grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from coordlock.kernel.access import Access
from coordlock.locks.awaiting_lock import AwaitingLock
from coordlock.locks.base_lock import AcquireOptions, BaseLock
from coordlock.locks.blocking_lock import BlockingLock
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.claim import AnyClaim, Claim, in_force
from coordlock.model.names import check_name
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking

if TYPE_CHECKING:
    from coordlock.locks.queue_view import QueueMember

__all__ = ["AsyncLock", "Lock", "NamedLock"]

G = TypeVar("G", bound=Grant | AsyncGrant)


class NamedLock(BaseLock[G], shown="Lock"):
    """What locks of one name share, of whatever kind, sync and async."""

    def __init__(
        self, access: Access, name: str, claim: AnyClaim, options: AcquireOptions | None = None
    ) -> None:
        """Without ``options`` it has the client's."""
        options = options or AcquireOptions.of(access.settings)
        super().__init__(access, name, {check_name(name): claim}, options)

    @property
    def claim(self) -> Claim:
        """The mode, or the permit, that it asks for."""
        return in_force(self._claims[self.name])

    def _contenders(self) -> Steps[tuple[QueueMember, ...]]:
        """The queue in order, holders and waiters. Raises `BackendUnavailable`."""
        from coordlock.locks.queue_view import queue_view

        return (yield from queue_view(self._access.engine, self.name))


class Lock(NamedLock[Grant], BlockingLock[Grant]):
    """A distributed lock by name. Made by `Client`; cheap, reusable, usable from any thread.

    Not reentrant: a second acquire waits behind the first; see `ReentrantLock`. Each ``with`` block
    has its own grant::

        with client.lock("nightly-migration", timeout=30) as grant:
            ledger.append(entry, token=grant.token)

    It releases that grant in whatever thread, task or context the block ends.

    As a decorator it is held during each call of the function.
    """

    _grant_kind = Grant

    contenders = blocking(NamedLock[Grant]._contenders)


class AsyncLock(NamedLock[AsyncGrant], AwaitingLock[AsyncGrant]):
    """A distributed lock by name, for asyncio. Made by `AsyncClient`; cheap and reusable.

    Not reentrant: a task that acquires it twice waits for itself; see `AsyncReentrantLock`. A
    waiting task takes no thread.
    Each ``async with`` block has its own grant, and releases it in whatever task the block ends.
    As a decorator it is held during each call of the coroutine function.
    """

    _grant_kind = AsyncGrant

    contenders = awaiting(NamedLock[AsyncGrant]._contenders)
