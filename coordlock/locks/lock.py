"""Locks for threads and for asyncio; the lock of one name, whose acquiring gives a grant."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from coordlock.kernel.access import Access
from coordlock.locks.base_lock import AcquireOptions, BaseLock
from coordlock.locks.blocks import Block, block_end, entering
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.claim import AnyClaim, Claim, in_force
from coordlock.model.names import check_name
from coordlock.runtime.driver import Steps
from coordlock.runtime.functions import CoroutineFunction, PlainFunction
from coordlock.runtime.methods import EnteredByAsyncWith, EnteredByWith, awaiting, blocking

if TYPE_CHECKING:
    from coordlock.locks.queue_view import QueueEntry

__all__ = [
    "DECORATED",
    "DECORATED_COROUTINE",
    "AsyncLock",
    "AwaitingLock",
    "BlockingLock",
    "Lock",
    "NamedLock",
]

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound=Grant | AsyncGrant)
SyncG = TypeVar("SyncG", bound=Grant)
AsyncG = TypeVar("AsyncG", bound=AsyncGrant)

#: What locks decorate.
DECORATED: Final = PlainFunction(
    "a lock decorates functions",
    "whose body would run without the lock",
    "decorate it with a lock of connect_async()",
    "take the lock inside of it",
)
#: What locks for asyncio decorate.
DECORATED_COROUTINE: Final = CoroutineFunction(
    "whose body would run without the lock",
    "decorate it with a lock of connect()",
    "take the lock inside of it",
)


class NamedLock(BaseLock[G]):
    """What locks of one name share, of any kind, sync and async."""

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

    def _contenders(self) -> Steps[tuple[QueueEntry, ...]]:
        """The queue in order, holders and waiters. Raises `BackendUnavailable`."""
        from coordlock.locks.queue_view import queue_view

        return (yield from queue_view(self._access.engine, self.name))


class BlockingLock(EnteredByWith, BaseLock[SyncG]):
    """A lock of any kind, for threads."""

    acquire = blocking(BaseLock[SyncG]._acquire)
    try_acquire = blocking(BaseLock[SyncG]._try_acquire)
    locked = blocking(BaseLock[SyncG]._locked)

    def __enter__(self) -> SyncG:
        block = entering(self)
        grant: SyncG | None = None
        try:
            grant = self.acquire()
            return self._entered(grant, block)
        except BaseException:
            if grant is not None:  # no end follows where nothing was entered
                self._by_hand.discard(grant)
                grant._withdraw()
            raise

    @block_end
    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
        block: Block | None = None,
    ) -> None:
        grants = self._ending(block)
        if len(grants) == 1:
            grants[0].__exit__(kind, body, traceback)
        elif grants:
            with ExitStack() as stack:
                for grant in grants:
                    stack.push(grant)
                raise self._by_hand.ambiguous(len(grants))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate ``function``: hold the lock during each call.

        Raises TypeError for functions whose body runs after the call returns: generators, and
        coroutine functions, which need a lock of `connect_async`. Raises ValueError for a name such
        as ``customer/{order}`` where ``order`` is a parameter: see `Client.lock_by`.
        """
        if isinstance(function, type):
            raise TypeError(f"{DECORATED.role}, not {function!r}")
        DECORATED.check(function)
        self._refuse_placeholders(function)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return DECORATED.finished(function, function(*args, **kwargs))

        return locked


class AwaitingLock(EnteredByAsyncWith, BaseLock[AsyncG]):
    """A lock of any kind, for asyncio."""

    acquire = awaiting(BaseLock[AsyncG]._acquire)
    try_acquire = awaiting(BaseLock[AsyncG]._try_acquire)
    locked = awaiting(BaseLock[AsyncG]._locked)

    async def __aenter__(self) -> AsyncG:
        block = entering(self)
        return self._entered(await self.acquire(), block)

    @block_end
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
        block: Block | None = None,
    ) -> None:
        grants = self._ending(block)
        if len(grants) == 1:
            await grants[0].__aexit__(kind, body, traceback)
        elif grants:
            async with AsyncExitStack() as stack:
                for grant in grants:
                    stack.push_async_exit(grant)
                raise self._by_hand.ambiguous(len(grants))

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate the coroutine function ``function``: hold the lock during each call.

        Raises TypeError for generators, and for other functions, which need a lock of `connect`.
        Raises ValueError for a name such as ``customer/{order}`` where ``order`` is a parameter:
        see `AsyncClient.lock_by`.
        """
        DECORATED_COROUTINE.check(function)
        self._refuse_placeholders(function)

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return locked


class Lock(NamedLock[Grant], BlockingLock[Grant]):
    """A distributed lock by name. Made by `Client`; cheap, reusable, usable from any thread.

    Not reentrant: a second acquire waits behind the first; see `ReentrantLock`. Each ``with`` block
    has its own grant::

        with client.lock("nightly-migration", timeout=30) as grant:
            ledger.append(entry, token=grant.token)

    The end of the block releases that grant, in any thread, task or context.

    As a decorator it is held during each call of the function; see also `Client.lock_by`.
    """

    _grant_kind = Grant

    contenders = blocking(NamedLock[Grant]._contenders)


class AsyncLock(NamedLock[AsyncGrant], AwaitingLock[AsyncGrant]):
    """A distributed lock by name, for asyncio. Made by `AsyncClient`; cheap and reusable.

    Not reentrant: a task that acquires it twice waits for itself; see `AsyncReentrantLock`. A
    waiting task needs no thread. Each ``async with`` block has its own grant, and its end releases
    that grant, in any task. As a decorator it is held during each call of the coroutine function.
    """

    _grant_kind = AsyncGrant

    contenders = awaiting(NamedLock[AsyncGrant]._contenders)
