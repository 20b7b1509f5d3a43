"""Locks of every kind, for threads and for asyncio, and the lock of one name.

Acquiring one gives a grant: alone, for a block, or for a function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, ParamSpec, TypeVar

from coordlock.errors import AcquireTimeout
from coordlock.kernel.access import Access
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.locks.blocks import Block, block_end, entering
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.model.claim import AnyClaim, Claim, Mode, in_force
from coordlock.model.names import check_name
from coordlock.runtime.caller import this_caller
from coordlock.runtime.deadline import Cancellation
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.runtime.guards import (
    COROUTINE,
    PlainFunction,
    Resident,
    kind_of_calls,
)
from coordlock.settings import (
    DEFAULT,
    Default,
    Settings,
    Timeout,
    label_of,
    max_hold_of,
    timeout_of,
)

if TYPE_CHECKING:
    from coordlock.model.queue_entry import QueueEntry

__all__ = [
    "DECORATED",
    "AcquireOptions",
    "AsyncLock",
    "AwaitingLock",
    "BaseLock",
    "BlockingLock",
    "Lock",
    "NamedLock",
    "check_coroutine_function",
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


def check_coroutine_function(function: object) -> None:
    """Raise TypeError unless calls of ``function`` make coroutines, as locks for asyncio need."""
    kind = kind_of_calls(function)
    if kind is None:
        raise TypeError(
            f"{function!r} is not a coroutine function: decorate it with a lock of connect()"
        )
    if kind is not COROUTINE:
        raise TypeError(
            f"{function!r} makes {kind}, whose body would run without the lock: take the lock "
            "inside of it"
        )


@dataclass(frozen=True, slots=True)
class AcquireOptions:
    """How long to wait and to hold, and the label.

    Attributes:
        timeout: seconds to wait; None for ever, 0 tries once.
        label: what queues show beside host and pid; None for the client's.
        max_hold: for how many seconds a grant may be held before it is lost; None for no limit.
    """

    timeout: float | None
    label: str | None
    max_hold: float | None

    @classmethod
    def of(
        cls,
        settings: Settings,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
    ) -> AcquireOptions:
        """The options of a lock; ``settings`` have the defaults.

        Raises ValueError and TypeError that say what is accepted.
        """
        limit = settings.max_hold if isinstance(max_hold, Default) else max_hold_of(max_hold)
        seconds = timeout_of("acquire", settings.timeout if timeout is DEFAULT else timeout)
        return cls(seconds, label_of(label), limit)


class BaseLock(Resident, Generic[G]):
    """What sync and async locks share: the queues, how to claim them, and the waits."""

    _instead = "pass its name instead, and make another object with a client there"

    #: What `acquire` gives, made of the engine and the ticket.
    _grant_kind: ClassVar[type[Any]]
    #: Why it is not one of several locks that are acquired at once; None where it may be.
    _acquired_alone: ClassVar[str | None] = None

    def __init__(
        self, access: Access, name: str, claims: Mapping[str, AnyClaim], options: AcquireOptions
    ) -> None:
        if any(claim is not Mode.EX for claim in claims.values()):
            access.engine.backend.require("ordered")
        self.name: Final = name
        #: For how many seconds `acquire` waits; None for ever, 0 tries once.
        self.timeout: Final = options.timeout
        #: What queues show beside host and pid, in place of the client's; None for that.
        self.label: Final = options.label
        #: For how many seconds a grant may be held before it is lost; None for no limit.
        self.max_hold: Final = options.max_hold
        self._access = access
        self._claims = claims
        #: What a call of `__enter__` by hand has entered with.
        self._by_hand: G | None = None

    if not TYPE_CHECKING:  # which then finds the mistake itself

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse what is looked for here, as in other libraries, and belongs to a grant."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(self._grant_kind, name):
                text += ": a lock object holds nothing, and the grant that acquire() returns has it"
            raise AttributeError(text, name=name, obj=self)

    def _acquire(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[G]:
        """Wait for the lock, first come first served; returns the grant.

        ``timeout`` (seconds, or such as ``"30s"``) bounds the whole call, and defaults to the
        lock's: None waits forever, 0 tries once. ``cancellation`` ends it from elsewhere.
        When Ctrl-C or a task's cancellation ends the call, it leaves the queue and is never
        granted. Raises `WaitError` when it ends without a grant: `AcquireTimeout` for a busy lock,
        `WaitUnavailable` for a silent service, `WaitCancelled`, `DeadlockDetected` when it waits in
        a cycle with others, `SessionLost` or `Evicted` when the place in the queue was lost.
        Raises `NameConflict` when the name is in use as another kind of lock,
        `AuthenticationFailed` and `ClientClosed`.
        """
        seconds = self.timeout if timeout is DEFAULT else timeout_of("acquire", timeout)
        return self._acquire_within(seconds, cancellation)

    def _acquire_within(self, seconds: float | None, cancellation: Cancellation | None) -> Steps[G]:
        """Acquire within ``seconds``; returns the grant."""
        engine = self._access.engine
        ticket = yield from acquisition(
            engine,
            self._claims,
            seconds,
            this_caller(),
            self.label,
            cancellation,
            max_hold=self.max_hold,
        )
        return self._make(engine, ticket)

    def _make(self, engine: Engine, ticket: Ticket) -> G:
        """The grant of ``ticket``."""
        grant: G = self._grant_kind(engine, ticket)
        return grant

    def _try_acquire(self, *, cancellation: Cancellation | None = None) -> Steps[G | None]:
        """The grant, or None when the lock is busy. Asks once and does not wait in the queue.

        Raises what `acquire` raises; `WaitUnavailable` when no answer came within the client's
        ``request_timeout``.
        """
        try:
            return (yield from self._acquire(0, cancellation=cancellation))
        except AcquireTimeout:
            return None

    def _entered(self, grant: G, block: Block | None) -> G:
        """Note that ``block`` has entered with ``grant``; None for a call by hand.

        Raises RuntimeError for a second body by hand, because an end by hand does not tell which
        body it ends, and might release the lock under the other one.
        """
        grant._is_entered = True
        if block is not None:
            block.grant = grant
            grant._hold_while(block)
            return grant
        with self._access.engine.lock:
            if self._by_hand is None or self._by_hand._engine.inherited:
                self._by_hand = grant
                return grant
        grant._withdraw()
        raise RuntimeError(
            f"lock {self.name!r} is entered by hand already: write `with lock`, or enter and leave "
            "what acquire() gives"
        )

    def _ending(self, block: Block | None) -> G:
        """The grant to release as ``block`` ends: its own, or what was entered by hand."""
        if block is not None and block.grant is not None:
            grant: G = block.grant
            return grant
        by_hand, self._by_hand = self._by_hand, None
        if by_hand is None:
            raise RuntimeError(f"lock {self.name!r} was left where it was not entered")
        return by_hand

    def _locked(self) -> Steps[bool]:
        """Whether any client holds the lock, as the service says. Raises `BackendUnavailable`.

        It may have changed when this returns: `try_acquire` asks and acquires in one step.
        """
        for name in self._claims:
            members = yield from self._access.engine.queue(name)
            if any(member.holding and member.claim is not Mode.NL for member in members):
                return True
        return False

    def owned(self) -> bool:
        """Whether this client holds the lock, by any of its lock objects. Does not ask the service.

        It looks at the clock, as `Grant.state` does. False in a forked child for a lock that its
        parent holds.
        """
        engine = self._access.engine
        return not engine.inherited and all(engine.tickets.held(name) for name in self._claims)

    def _refuse_placeholders(self, function: Callable[..., object]) -> None:
        """Raise ValueError for a name in which a parameter of ``function`` is in braces."""
        import inspect
        import re

        parameters = inspect.signature(function).parameters
        for name in self._claims:
            if found := [
                parameter for parameter in re.findall(r"\{(\w+)", name) if parameter in parameters
            ]:
                raise ValueError(
                    f"{name!r} would be one lock for all calls, because names are not formatted: "
                    f"write @client.lock_by(lambda {', '.join(dict.fromkeys(found))}: f{name!r})"
                )

    def __repr__(self) -> str:
        claims = ", ".join(dict.fromkeys(map(str, self._claims.values())))
        return f"<{type(self).__name__} {self.name!r}: {claims} at {self._access.settings}>"


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
        return (yield from self._access.engine.queue(self.name))


class BlockingLock(BaseLock[SyncG]):
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
                if self._by_hand is grant:
                    self._by_hand = None
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
        self._ending(block).__exit__(kind, body, traceback)

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


class AwaitingLock(BaseLock[AsyncG]):
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
        await self._ending(block).__aexit__(kind, body, traceback)

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate the coroutine function ``function``: hold the lock during each call.

        Raises TypeError for generators, and for other functions, which need a lock of `connect`.
        Raises ValueError for a name such as ``customer/{order}`` where ``order`` is a parameter:
        see `AsyncClient.lock_by`.
        """
        check_coroutine_function(function)
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
