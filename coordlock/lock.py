"""The lock objects: a name, a claim and a default timeout; acquiring gives a grant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from enum import Enum
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeVar
from weakref import ref

from coordlock.access import Access
from coordlock.bodies import Bodies
from coordlock.errors import AcquireTimeout
from coordlock.grant import AsyncGrant, Grant
from coordlock.kernel.acquisition import acquisition
from coordlock.kernel.ticket import Ticket
from coordlock.model.claim import Claim, Mode
from coordlock.model.names import check_name
from coordlock.queue_view import QueueMember, queue_view
from coordlock.runtime.caller import Caller, this_task, this_thread
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.driver import Steps
from coordlock.runtime.methods import awaiting, blocking
from coordlock.runtime.resident import Resident
from coordlock.runtime.statement import Statement, is_known, known_by_statement, running
from coordlock.settings import Duration, label_of, max_hold_of, timeout_of

__all__ = ["DEFAULT", "AsyncLock", "Default", "Lock"]

P = ParamSpec("P")
G = TypeVar("G", Grant, AsyncGrant)
R = TypeVar("R")


class Default(Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


#: Stands for the client's configured timeout, because None means to wait forever.
DEFAULT: Final = Default.DEFAULT

Timeout = Duration | None | Default


class _BaseLock(Resident, Generic[G], shown="Lock"):
    """What sync and async locks share."""

    _instead = "pass its name on, and make it anew with a client there"

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        for name in ("__exit__", "__aexit__"):
            if name in vars(cls) and not is_known(vars(cls)[name]):
                raise TypeError(
                    f"{cls.__name__}.{name} cannot replace the lock's own, which knows the "
                    "statement that it ends: write a context manager that enters the lock"
                )

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
        self.name: Final = check_name(name)
        self.claim: Final = claim
        #: Ends the waits for this lock; None for nothing that does.
        self.cancellation: Final = None if cancellation is None else _cancellation_of(cancellation)
        #: What queues show beside host and pid, in place of the client's; None for that.
        self.label: Final = label_of(label)
        #: For how many seconds a grant may be held before it is lost; None for no limit.
        self.max_hold: Final = (
            access.settings.max_hold if isinstance(max_hold, Default) else max_hold_of(max_hold)
        )
        self.timeout: Final = self._seconds(timeout, access.settings.timeout)
        self._access = access
        self._bodies: Bodies[G] = Bodies(name)

    @staticmethod
    def _seconds(timeout: Timeout, default: float | None) -> float | None:
        given = default if isinstance(timeout, Default) else timeout
        return timeout_of("acquire", given)

    def _make(self, ticket: Ticket) -> G:
        """The grant of ``ticket``."""
        raise NotImplementedError

    @staticmethod
    def _caller() -> Caller:
        raise NotImplementedError

    def _acquire(
        self,
        timeout: Timeout = DEFAULT,
        *,
        label: str | None = None,
        cancellation: Cancellation | None = None,
    ) -> Steps[G]:
        """Wait for the lock, first come first served; the grant.

        ``timeout`` (seconds, or such as ``"30s"``) bounds the whole call, and defaults to the
        lock's: None waits forever, 0 tries once. ``label`` is shown in the queue as the owner's,
        and ``cancellation`` ends the wait from elsewhere, each in place of the lock's. A call that
        Ctrl-C or the end of its task ends leaves the queue, too, and is never granted. Raises
        `AcquireTimeout`; `AcquireCancelled`; `QueueMismatch` when the name is in use as another
        kind of lock; `SessionLost` or `Evicted` when the place in the queue was lost;
        `AuthenticationFailed`; `ClientClosed`; `ForkedClient`; and with a timeout of 0
        `BackendUnavailable`.
        """
        cancellation = self.cancellation if cancellation is None else _cancellation_of(cancellation)
        seconds = self._seconds(timeout, self.timeout)
        ticket = yield from acquisition(
            self._access.engine,
            {self.name: self.claim},
            seconds,
            self._caller(),
            self.label if label is None else label_of(label),
            cancellation,
        )
        try:
            if self.max_hold is not None:
                self._access.engine.limit(ticket, self.max_hold)
            return self._make(ticket)
        except BaseException:
            ticket.withdraw()  # Ctrl-C: the caller never gets the grant
            raise

    def _try_acquire(
        self, *, label: str | None = None, cancellation: Cancellation | None = None
    ) -> Steps[G | None]:
        """The grant, or None when the lock is busy. Asks once and does not wait in the queue.

        Raises what `acquire` raises; `BackendUnavailable` when no answer came within the client's
        ``request_timeout``.
        """
        try:
            return (yield from self._acquire(0, label=label, cancellation=cancellation))
        except AcquireTimeout:
            return None

    def _entered(self, grant: G, statement: ref[Statement] | None) -> G:
        """Note that ``statement`` has entered with ``grant``, or a call by hand."""
        grant._is_entered = True
        if statement is not None and (entering := statement()) is not None:
            entering.entered = grant
        self._bodies.enter(grant, statement)
        return grant

    def _contenders(self) -> Steps[tuple[QueueMember, ...]]:
        """The queue in order, holders and waiters. Raises `BackendUnavailable`."""
        return (yield from queue_view(self._access.engine, self.name))

    def _locked(self) -> Steps[bool]:
        """Whether any client holds the lock, as the service says. Raises `BackendUnavailable`.

        It may be otherwise when this returns: `try_acquire` asks and takes it in one step.
        """
        members = yield from self._contenders()
        return any(member.holding and member.claim is not Mode.NL for member in members)

    def owned(self) -> bool:
        """Whether this client holds the lock, by any of its lock objects. Asks no service.

        False in a forked child, for what its parent holds.
        """
        engine = self._access.engine
        return not engine.inherited and bool(engine.held(self.name))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self.claim} at {self._access.settings}>"


class Lock(_BaseLock[Grant]):
    """A distributed lock by name. Made by `Client`; cheap, reusable, usable from any thread.

    Not reentrant: a second acquire waits behind the first. Each ``with`` block has its own grant::

        with client.lock("nightly-migration", timeout=30) as grant:
            ledger.append(entry, token=grant.token)

    It releases that grant in whatever thread, task or context the block ends.

    As a decorator it is held during each call of the function.
    """

    _caller = staticmethod(this_thread)

    def _make(self, ticket: Ticket) -> Grant:
        return Grant(self._access.engine, ticket)

    acquire = blocking(_BaseLock[Grant]._acquire)
    try_acquire = blocking(_BaseLock[Grant]._try_acquire)
    contenders = blocking(_BaseLock[Grant]._contenders)
    locked = blocking(_BaseLock[Grant]._locked)

    def __enter__(self) -> Grant:
        statement = running(self)
        grant = self.acquire()
        try:
            return self._entered(grant, statement)
        except BaseException:
            grant._abandon()  # Ctrl-C: no exit follows where nothing was entered
            raise

    @known_by_statement
    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
        statement: Statement | None = None,
    ) -> None:
        grants = self._bodies.leave(None if statement is None else statement.entered)
        if len(grants) == 1:
            grants[0].__exit__(kind, body, traceback)
        elif grants:
            with ExitStack() as all_of_them:
                for grant in grants:
                    all_of_them.push(grant)
                raise self._bodies.ambiguous(len(grants))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate ``function``: hold the lock during each call.

        Raises TypeError for what runs after its call has returned: coroutine functions, which a
        lock of `connect_async` decorates, and generators.
        """
        given: object = function
        if not callable(given) or isinstance(given, type):
            raise TypeError(f"{function!r} is not a function: a lock decorates functions")
        if (kind := _lazy_kind(function)) is not None:
            raise _too_late(function, kind)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                result = function(*args, **kwargs)
                if (kind := _kind_of_result(result)) is not None:
                    raise _too_late(function, kind)
                return result

        return locked


class AsyncLock(_BaseLock[AsyncGrant]):
    """A distributed lock by name, for asyncio. Made by `AsyncClient`; cheap and reusable.

    Not reentrant: a task that acquires it twice waits for itself. A waiting task takes no thread.
    Each ``async with`` block has its own grant, and releases it in whatever task the block ends.
    As a decorator it is held during each call of the coroutine function.
    """

    _caller = staticmethod(this_task)

    def _make(self, ticket: Ticket) -> AsyncGrant:
        return AsyncGrant(self._access.engine, ticket)

    acquire = awaiting(_BaseLock[AsyncGrant]._acquire)
    try_acquire = awaiting(_BaseLock[AsyncGrant]._try_acquire)
    contenders = awaiting(_BaseLock[AsyncGrant]._contenders)
    locked = awaiting(_BaseLock[AsyncGrant]._locked)

    async def __aenter__(self) -> AsyncGrant:
        statement = running(self)
        return self._entered(await self.acquire(), statement)

    @known_by_statement
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
        statement: Statement | None = None,
    ) -> None:
        grants = self._bodies.leave(None if statement is None else statement.entered)
        if len(grants) == 1:
            await grants[0].__aexit__(kind, body, traceback)
        elif grants:
            async with AsyncExitStack() as all_of_them:
                for grant in grants:
                    all_of_them.push_async_exit(grant)
                raise self._bodies.ambiguous(len(grants))

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate the coroutine function ``function``: hold the lock during each call.

        Raises TypeError for other functions, which a lock of `connect` decorates, and generators.
        """
        if not inspect.iscoroutinefunction(function):
            if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
                raise _too_late(function, "a generator")
            raise TypeError(
                f"{function!r} is not a coroutine function: decorate it with a lock of connect()"
            )

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return locked


def _cancellation_of(value: object) -> Cancellation:
    """``value``, a `Cancellation`. Raises TypeError for something else."""
    if isinstance(value, Cancellation):
        return value
    raise TypeError(f"cancellation must be a coordlock.Cancellation, not {value!r}")


def _lazy_kind(function: Callable[..., object]) -> str | None:
    """What a call of ``function`` returns before its body has run, if it does."""
    if inspect.iscoroutinefunction(function):
        return "a coroutine"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "a generator"
    return None


def _kind_of_result(result: object) -> str | None:
    """The same, of its result: a wrapper hides what the function is."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
        return "a coroutine"
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return "a generator"
    return None


def _too_late(function: object, kind: str) -> TypeError:
    what_to_do = (
        "decorate it with a lock of connect_async()"
        if kind == "a coroutine"
        else "take the lock inside of it"
    )
    return TypeError(
        f"{function!r} makes {kind}, whose body would run without the lock: {what_to_do}"
    )
