"""The lock of one name: acquiring it gives a grant."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from coordlock.kernel.access import Access
from coordlock.kernel.ticket import Ticket
from coordlock.locks.awaiting_lock import AwaitingLock
from coordlock.locks.base_lock import BaseLock
from coordlock.locks.blocking_lock import BlockingLock
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.claim import AnyClaim, Claim, Convertible, Mode
from coordlock.model.names import check_name
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.driver import Steps
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.methods import awaiting, blocking
from coordlock.settings import DEFAULT, Timeout

if TYPE_CHECKING:
    from coordlock.locks import queue_view, reentrance
    from coordlock.locks.queue_view import QueueMember
    from coordlock.locks.reentrance import Attempt, Hold, Reentrance
else:
    queue_view = Lazily("coordlock.locks.queue_view")
    reentrance = Lazily("coordlock.locks.reentrance")

__all__ = ["AsyncLock", "Lock"]

G = TypeVar("G", bound=Grant | AsyncGrant)


class _OneLock(BaseLock[G], shown="Lock"):
    """What the sync and the async lock of one name share."""

    def __init__(
        self,
        access: Access,
        name: str,
        claim: AnyClaim,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
        reentrance: Reentrance | None = None,
        keeps_value: bool = False,
        lock_delay: float = 0.0,
    ) -> None:
        """``reentrance`` tells who may acquire it again; None for nobody."""
        self._reentrance = reentrance
        self._keeps_value = keeps_value
        self._lock_delay = lock_delay
        claims = {check_name(name): claim}
        super().__init__(access, name, claims, timeout, label, max_hold, cancellation)

    @property
    def claim(self) -> Claim:
        """The mode, or the permit, that it asks for."""
        claim = self._claims[self.name]
        return claim.mode if isinstance(claim, Convertible) else claim

    @property
    def keeps_value(self) -> bool:
        """Whether its grants have a `Grant.value`."""
        return self._keeps_value

    @property
    def lock_delay(self) -> float:
        """For how many seconds the next holder waits after one that has not ended well."""
        return self._lock_delay

    @property
    def convertible(self) -> bool:
        """Whether its grants can be converted to other modes."""
        return isinstance(self._claims[self.name], Convertible)

    @property
    def reentrant(self) -> bool:
        """Whether its owner, a thread, a task or who was named, may acquire it again."""
        return self._reentrance is not None

    def _granted(
        self, seconds: float | None, label: str | None, cancellation: Cancellation | None
    ) -> Steps[G]:
        if self._reentrance is None:
            return super()._granted(seconds, label, cancellation)
        return self._reentered(self._reentrance, seconds, label, cancellation)

    def _reentered(
        self,
        owner: Reentrance,
        seconds: float | None,
        label: str | None,
        cancellation: Cancellation | None,
    ) -> Steps[G]:
        """One more grant of what the owner holds, or the first one."""
        mode = self.claim
        assert isinstance(mode, Mode)
        attempt = reentrance.Attempt(owner.owner, self._access.engine, self.name, mode)
        try:
            acquire = partial(self._acquisition, seconds, label, cancellation)
            hold = yield from attempt.steps(acquire, self.max_hold)
            return self._make_reentrant(hold, attempt)
        except BaseException:
            attempt.end()
            raise

    def _make_reentrant(self, hold: Hold, part: Attempt) -> G:
        """The grant for ``part`` of ``hold``."""
        raise NotImplementedError

    def _contenders(self) -> Steps[tuple[QueueMember, ...]]:
        """The queue in order, holders and waiters. Raises `BackendUnavailable`."""
        return (yield from queue_view.queue_view(self._access.engine, self.name))


class Lock(_OneLock[Grant], BlockingLock[Grant]):
    """A distributed lock by name. Made by `Client`; cheap, reusable, usable from any thread.

    Not reentrant unless asked for: a second acquire waits behind the first. Each ``with`` block has
    its own grant::

        with client.lock("nightly-migration", timeout=30) as grant:
            ledger.append(entry, token=grant.token)

    It releases that grant in whatever thread, task or context the block ends.

    As a decorator it is held during each call of the function.
    """

    def _make(self, ticket: Ticket) -> Grant:
        return Grant(self._access.engine, ticket)

    def _make_reentrant(self, hold: Hold, part: Attempt) -> Grant:
        return reentrance.ReentrantGrant(self._access.engine, hold, part)

    acquire = blocking(BaseLock[Grant]._acquire)
    try_acquire = blocking(BaseLock[Grant]._try_acquire)
    contenders = blocking(_OneLock[Grant]._contenders)
    locked = blocking(BaseLock[Grant]._locked)


class AsyncLock(_OneLock[AsyncGrant], AwaitingLock[AsyncGrant]):
    """A distributed lock by name, for asyncio. Made by `AsyncClient`; cheap and reusable.

    Not reentrant unless asked for: a task that acquires it twice waits for itself. A waiting task
    takes no thread.
    Each ``async with`` block has its own grant, and releases it in whatever task the block ends.
    As a decorator it is held during each call of the coroutine function.
    """

    def _make(self, ticket: Ticket) -> AsyncGrant:
        return AsyncGrant(self._access.engine, ticket)

    def _make_reentrant(self, hold: Hold, part: Attempt) -> AsyncGrant:
        return reentrance.AsyncReentrantGrant(self._access.engine, hold, part)

    acquire = awaiting(BaseLock[AsyncGrant]._acquire)
    try_acquire = awaiting(BaseLock[AsyncGrant]._try_acquire)
    contenders = awaiting(_OneLock[AsyncGrant]._contenders)
    locked = awaiting(BaseLock[AsyncGrant]._locked)
