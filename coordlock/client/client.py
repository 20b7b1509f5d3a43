"""Connecting, and the clients that locks come from: one to block with, one for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Unpack

from coordlock.backend import ServiceInfo
from coordlock.backend.config import Target, configure, warn_unless_chosen
from coordlock.backend.registry import backend_for_client, backend_for_scheme
from coordlock.client.recipe_makers import AsyncRecipes, Recipes
from coordlock.errors import ConfigurationError
from coordlock.kernel.access import Access, LazyAccess
from coordlock.kernel.engine import Engine
from coordlock.locks.lock import AsyncLock, Lock
from coordlock.model.claim import AnyClaim, Convertible, Mode, Permit
from coordlock.model.contender import Contender
from coordlock.model.names import check_name
from coordlock.runtime.cancellation import Cancellation
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps, run, run_async, run_in_background
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.log import Log
from coordlock.runtime.methods import awaiting, blocking
from coordlock.runtime.resident import Resident
from coordlock.runtime.statement import EnteredByAsyncWith, EnteredByWith
from coordlock.settings import DEFAULT, Duration, Settings, Timeout
from coordlock.settings.keywords import Options
from coordlock.settings.settings import lock_delay_of

if TYPE_CHECKING:
    from coordlock.client import kept
    from coordlock.client.kept import Kept
    from coordlock.kernel import watchdog
    from coordlock.locks import asking, clearance, multi_lock, queue_view, reentrance, sequencer
    from coordlock.locks import claims as multi_lock_claims
    from coordlock.locks.multi_lock import AsyncMultiLock, MultiLock
    from coordlock.locks.queue_view import QueueMember
    from coordlock.locks.reentrance import Reentrance
    from coordlock.model.waits import Deadlock
else:
    clearance = Lazily("coordlock.locks.clearance")
    queue_view = Lazily("coordlock.locks.queue_view")
    sequencer = Lazily("coordlock.locks.sequencer")
    watchdog = Lazily("coordlock.kernel.watchdog")
    asking = Lazily("coordlock.locks.asking")
    kept = Lazily("coordlock.client.kept")
    reentrance = Lazily("coordlock.locks.reentrance")
    multi_lock = Lazily("coordlock.locks.multi_lock")
    multi_lock_claims = Lazily("coordlock.locks.claims")

__all__ = ["AsyncClient", "Client", "Connecting", "connect", "connect_async"]

log = Log("coordlock")

L = TypeVar("L", Lock, AsyncLock)
M = TypeVar("M", "MultiLock", "AsyncMultiLock")


def connect(target: Target = None, *, client: object = None, **options: Unpack[Options]) -> Client:
    """Connect to the coordination service and open a session.

    Args:
        target: a URL, a mapping, a dataclass, a pydantic model or `Settings`; None takes the first
            of ``COORDLOCK_URL``, ``coordlock.toml``, ``[tool.coordlock]`` in ``pyproject.toml``,
            the files of the user and of the machine, and the local backend, with a warning in the
            log.
        client: an existing ``kazoo.client.KazooClient`` or ``etcd3.Etcd3Client`` whose connection
            is to be used; it is never closed here.
        options: single options, over those of ``target``; see the table in the documentation. Those
            of a backend that does not come with coordlock go into ``target``.

    Raises `ConfigurationError` at once for what cannot be used, `MissingExtra` when the backend is
    not installed, `AuthenticationFailed`, and `BackendUnavailable` when there is no session within
    the option ``connect_timeout``.
    """
    engine = _engine_of(target, client, options)
    run(_opening(engine))
    return Client._of(Access(engine))


def connect_async(
    target: Target = None, *, client: object = None, **options: Unpack[Options]
) -> Connecting:
    """Connect as `connect` does, for asyncio: await the result, or enter it with ``async with``."""
    return Connecting(_engine_of(target, client, options))


class Connecting(EnteredByAsyncWith):
    """An `AsyncClient` to be: awaitable, and an async context manager."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._client: AsyncClient | None = None
        self._begun = False

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._client is not None
        await self._client.close()

    async def _connect(self) -> AsyncClient:
        if self._begun:
            raise RuntimeError("this was awaited already: call connect_async() once more")
        self._begun = True
        await run_async(_opening(self._engine))
        return AsyncClient._of(Access(self._engine))


class _BaseClient(Resident, Generic[L, M], shown="Client"):
    """What sync and async clients share."""

    #: The lock of one name; and the name of that of several, which is loaded when it is used.
    _lock_kind: ClassVar[Callable[..., Any]]
    _multi_lock_kind: ClassVar[str]

    _instead = "pass its settings on, or a URL, and connect there"

    def __init__(
        self, target: Target = None, *, client: object = None, **options: Unpack[Options]
    ) -> None:
        """A client that connects when it is used for the first time, in each process anew.

        Takes what `connect` takes, and raises `ConfigurationError` and `MissingExtra` at once. What
        else `connect` raises comes at the first use, within the option ``connect_timeout``.
        """
        engine = _engine_of(target, client, options)
        # Of its settings, because a variable of the environment may change until then.
        remake = partial(_engine_of, engine.settings, client, {})
        self._access: Access = LazyAccess(engine, remake if client is None else None)

    @classmethod
    def _of(cls, access: Access) -> Self:
        made = cls.__new__(cls)
        made._access = access
        return made

    @property
    def _engine(self) -> Engine:
        return self._access.engine

    @property
    def settings(self) -> Settings:
        """The configuration in use."""
        return self._access.settings

    def lock(
        self,
        name: str,
        *,
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
        reentrant: bool = False,
        owner: Hashable | None = None,
        convertible: bool = False,
        keeps_value: bool = False,
        lock_delay: Duration = 0.0,
    ) -> L:
        """The lock ``name``, exclusive or in another of the six modes; nothing is sent yet.

        ``timeout`` in seconds is the default of its ``acquire``: None waits forever, 0 tries once.
        ``label`` is what queues show beside host and pid, and ``max_hold`` for how long a grant may
        be held before it is lost (0.1 s to 30 days, None for no limit), by default the client's.
        ``cancellation`` ends the waits for it from elsewhere: each raises `AcquireCancelled`.

        A ``reentrant`` lock may be acquired again, in the same mode or a weaker one, by the thread
        or the task that holds it, or by a caller that names the same ``owner``. Its grants share a
        token, and the last release frees it. It is not inherited by tasks and threads that its
        owner starts, nor by another request on a thread of a pool. To acquire what was lost and is
        not released raises `LockLost`.

        The grant of a ``convertible`` lock may be converted to other modes while it is held:
        `Grant.convert`. Programs with an older release, or with kazoo's or Curator's recipes, take
        it for an exclusive one. It is not reentrant, and not one of several at once.

        With ``keeps_value`` a small value belongs to the lock: `Grant.value`. It takes a reading
        and a write more to acquire, and a write more to release. All clients that hold the lock in
        mode EX or PW must ask for it. Such a lock is neither reentrant nor convertible, and not one
        of several at once. To acquire it raises `Unsupported` where the backend keeps no data.

        After a holder with a ``lock_delay`` (seconds, up to an hour) whose session is lost, the
        next one waits that long before it is granted, so that what was sent under the lock arrives
        before. Such a lock keeps a value, too, with what that asks of the other clients.

        Raises `InvalidName` for an empty name or one of more than 255 bytes in UTF-8.
        """
        claim: AnyClaim = _mode(mode)
        if convertible:
            claim = _convertible(mode, reentrant)
        delay = lock_delay_of(lock_delay)
        if (keeps_value or delay) and (reentrant or convertible):
            raise ValueError(
                "a lock that keeps a value, or has a lock_delay, is neither reentrant nor "
                "convertible"
            )
        return self._make(
            *(name, claim, timeout, label, max_hold, cancellation),
            _reentrance(reentrant, owner),
            keeps_value=keeps_value or delay > 0,
            lock_delay=delay,
        )

    def upgradeable_lock(
        self,
        name: str,
        *,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> L:
        """The lock ``name``, shared with readers by one holder at a time that may come to write.

        Its grant's `Grant.upgrade` makes it exclusive, when the readers have gone, without letting
        another writer in before: what was read still holds. `Grant.downgrade` goes back. It
        excludes other upgradeable locks and writers from the beginning, so no two of them ever wait
        for each other. The rest is as for a convertible `lock`.
        """
        claim = Convertible(Mode.PR, update=True)
        return self._make(name, claim, timeout, label, max_hold, cancellation)

    def read_lock(
        self,
        name: str,
        *,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
        reentrant: bool = False,
        owner: Hashable | None = None,
    ) -> L:
        """The lock ``name``, shared with other readers: mode PR."""
        return self._make(
            name, Mode.PR, timeout, label, max_hold, cancellation, _reentrance(reentrant, owner)
        )

    def write_lock(
        self,
        name: str,
        *,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
        reentrant: bool = False,
        owner: Hashable | None = None,
    ) -> L:
        """The lock ``name``, exclusive: mode EX."""
        return self._make(
            name, Mode.EX, timeout, label, max_hold, cancellation, _reentrance(reentrant, owner)
        )

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> L:
        """One of ``permits`` (1 to 10,000) of the semaphore ``name``.

        Every client must ask for the same number: another is a `QueueMismatch` at acquiring.
        """
        return self._make(name, Permit(permits), timeout, label, max_hold, cancellation)

    def multi_lock(
        self,
        locks: Iterable[str | L | M],
        *,
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> M:
        """All of ``locks`` at once: names, which ``mode`` is for, and locks made by this client.

        They are asked for in one step, so multi-locks never deadlock, whatever the order of their
        names. All or none are granted. Of lock objects the name and the mode, or the permit, count.
        A name in several modes is asked for in the weakest that contains them all. The rest is as
        for `lock`.

        Raises ValueError for no names, for a semaphore given twice, and for a name given as a lock
        and as a semaphore; `InvalidName`; `Unsupported` where the backend can't. An acquire raises
        `BackendError` for more names than the service takes in one step.
        """
        claims = multi_lock.claims_of(self._access, locks, _mode(mode))
        return self._make_multi(claims, timeout, label, max_hold, cancellation)

    def tree_lock(
        self,
        path: str,
        *,
        mode: Mode = Mode.EX,
        timeout: Timeout = DEFAULT,
        label: str | None = None,
        max_hold: Timeout = DEFAULT,
        cancellation: Cancellation | None = None,
    ) -> M:
        """The subtree at ``path``, such as ``"eu/orders/42"``, in one of the six modes.

        EX is for a writer of all that is there, PR for a reader of it. Each excludes what conflicts
        with it above and below, and none in another branch. The nodes above are locked in the same
        step, in the mode CR or CW, which tells that something below is held. The rest is as for
        `lock`, which locks the node alone.

        Raises `InvalidName` for what is no path: empty, or with ``//``, ``.``, ``..``, or a slash
        at an end.
        """
        claims = multi_lock_claims.of_path(path, _mode(mode))
        return self._make_multi(claims, timeout, label, max_hold, cancellation, path)

    def _make(
        self,
        name: str,
        claim: AnyClaim,
        timeout: Timeout,
        label: str | None,
        max_hold: Timeout,
        cancellation: Cancellation | None,
        reentrance: Reentrance | None = None,
        *,
        keeps_value: bool = False,
        lock_delay: float = 0.0,
    ) -> L:
        made: L = self._lock_kind(
            self._access,
            *(name, claim, timeout, label, max_hold, cancellation, reentrance),
            keeps_value=keeps_value,
            lock_delay=lock_delay,
        )
        return made

    def _make_multi(
        self,
        claims: Mapping[str, AnyClaim],
        timeout: Timeout,
        label: str | None,
        max_hold: Timeout,
        cancellation: Cancellation | None,
        node: str | None = None,
    ) -> M:
        kind = getattr(multi_lock, self._multi_lock_kind)
        made: M = kind(self._access, claims, timeout, label, max_hold, cancellation, node)
        return made

    def _queues(self) -> Steps[list[str]]:
        """The names that are in use under the root, sorted. Raises `BackendUnavailable`."""
        names = yield from self._engine.ask(self._engine.backend.queues)
        return sorted(names)

    def _contenders(self, name: str) -> Steps[tuple[QueueMember, ...]]:
        """The queue of ``name`` in order, holders and waiters. Raises `BackendUnavailable`."""
        return (yield from queue_view.queue_view(self._engine, check_name(name)))

    def _kept(self, name: str | None = None) -> Steps[tuple[Kept, ...]]:
        """What is kept under names, in use now or not, or under ``name``; sorted. For operators.

        That is counters, latches, gates and barriers that were ever changed, and work queues in
        which something was ever put. Raises `Unsupported` where the backend keeps no data, and
        `BackendUnavailable`.
        """
        return (yield from kept.kept(self._engine, None if name is None else check_name(name)))

    def _evict(self, contender: QueueMember | Contender) -> Steps[bool]:
        """Remove any client's contender from its queue; whether it was there. For operators.

        Its owner is told that the lock is lost, but may still be at work: evict only what is
        stuck. Raises `BackendUnavailable`.
        """
        target = contender.contender if isinstance(contender, queue_view.QueueMember) else contender
        if not isinstance(target, Contender):
            raise TypeError(f"evict takes what contenders() gives, not {contender!r}")
        return (yield from self._engine.remove(lambda: self._engine.backend.evict(target)))

    def _evict_all(self, name: str) -> Steps[tuple[QueueMember, ...]]:
        """Remove all contenders of ``name``, and return those that were there. For operators.

        From the end, so that no waiter is granted meanwhile; holders come last, once no waiter is
        left. Contenders that come meanwhile are evicted too; if they come faster than they can be
        evicted, the newest stay. Raises `BackendUnavailable`.
        """
        return (yield from clearance.cleared(self._engine, check_name(name)))

    def _deadlocks(self) -> Steps[tuple[Deadlock, ...]]:
        """The deadlocks among all clients, of which each client's detection ends its own.

        Those that look for deadlocks tell what they hold and wait for, once they have waited for
        the option ``deadlock_delay``; of others nothing is known. Raises `BackendUnavailable`.
        """
        return (yield from self._engine.bounded(watchdog.deadlocks(self._engine)))

    def _ask_to_release(
        self, name: str, reason: str = "", *, contender: QueueMember | None = None
    ) -> Steps[tuple[QueueMember, ...]]:
        """Ask whoever holds ``name`` to release it; those that were asked, none where it is free.

        Or the one ``contender`` that `contenders` gave. Their `Grant.asked` is set, with
        ``reason``, up to 1000 characters; what they do then is up to them. Raises `Unsupported`
        where the backend keeps no data, and `BackendUnavailable`.
        """
        return (yield from asking.ask(self._engine, check_name(name), reason, contender))

    def _verify_token(self, text: str) -> Steps[QueueMember]:
        """Prove by consensus that the grant is held whose `Grant.sequencer` is ``text``.

        For a server that was given it along with a request: another process, without the grant. It
        is true at a moment during this call; later only a fence knows. Gives the grant's place in
        its queue. Raises `LockLost` where it is not held any more, `InvalidSequencer`, and
        `BackendUnavailable`.
        """
        return (yield from sequencer.verified(self._engine, text))

    def _describe(self) -> Steps[ServiceInfo]:
        """The service, its version and warnings about it. Raises `BackendUnavailable`."""
        return (yield from self._engine.ask(self._engine.backend.describe))

    def _close(self) -> Steps[None]:
        """Release what is held, end the session and disconnect. Idempotent, bounded, quiet.

        Takes up to ``request_timeout`` when the service is silent; its session then ends by its
        time-to-live. One that came with a given client does not: there what is held is released in
        the background, as soon as the service answers. Done at the interpreter's exit for clients
        that were not closed.
        """
        yield from self._access.close()

    def __repr__(self) -> str:
        closed = " closed" if self._access.closed else ""
        return f"<{type(self).__name__} {self.settings}{closed}>"


class Client(EnteredByWith, _BaseClient[Lock, "MultiLock"], Recipes):
    """A connection with its session; locks come from here. A context manager that closes it.

    Threads share it. A forked child must connect anew: see `ForkedClient`.
    """

    _lock_kind = Lock
    _multi_lock_kind = "MultiLock"

    queues = blocking(_BaseClient[Lock, "MultiLock"]._queues)
    contenders = blocking(_BaseClient[Lock, "MultiLock"]._contenders)
    kept = blocking(_BaseClient[Lock, "MultiLock"]._kept)
    evict = blocking(_BaseClient[Lock, "MultiLock"]._evict)
    evict_all = blocking(_BaseClient[Lock, "MultiLock"]._evict_all)
    deadlocks = blocking(_BaseClient[Lock, "MultiLock"]._deadlocks)
    describe = blocking(_BaseClient[Lock, "MultiLock"]._describe)
    ask_to_release = blocking(_BaseClient[Lock, "MultiLock"]._ask_to_release)
    verify_token = blocking(_BaseClient[Lock, "MultiLock"]._verify_token)
    close = blocking(_BaseClient[Lock, "MultiLock"]._close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(EnteredByAsyncWith, _BaseClient[AsyncLock, "AsyncMultiLock"], AsyncRecipes):
    """A connection with its session, for asyncio; locks come from here.

    An async context manager that closes it. Usable from any event loop of the process. A forked
    child must connect anew: see `ForkedClient`.
    """

    _lock_kind = AsyncLock
    _multi_lock_kind = "AsyncMultiLock"

    queues = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._queues)
    contenders = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._contenders)
    kept = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._kept)
    evict = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._evict)
    evict_all = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._evict_all)
    deadlocks = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._deadlocks)
    describe = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._describe)
    ask_to_release = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._ask_to_release)
    verify_token = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._verify_token)
    close = awaiting(_BaseClient[AsyncLock, "AsyncMultiLock"]._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _reentrance(reentrant: bool, owner: Hashable | None) -> Reentrance | None:
    if reentrant:
        return reentrance.Reentrance(owner)
    if owner is not None:
        raise ValueError("an owner is of reentrant locks alone: say reentrant=True, too")
    return None


def _convertible(mode: Mode, reentrant: bool) -> Convertible:
    if reentrant:
        raise ValueError("a lock is reentrant or convertible, not both: its grants share one mode")
    if mode is Mode.NL:
        raise ValueError("a convertible lock is acquired in another mode than NL, which is no lock")
    return Convertible(mode)


def _mode(mode: Mode) -> Mode:
    if not isinstance(mode, Mode):
        raise ValueError(f"mode must be one of {', '.join(map(repr, Mode))}, not {mode!r}")
    return mode


def _engine_of(target: Target, client: object, options: Options) -> Engine:
    timers = SystemTimers("coordlock-timers")
    if client is None:
        settings = configure(target, dict(options))
        if target is None:
            warn_unless_chosen(settings, _warn_once)
        kind = backend_for_scheme(settings.scheme)
        return Engine(kind.configure(settings, timers=timers), settings, timers)
    backend = backend_for_client(client)
    settings = configure({"backend": backend.scheme} if target is None else target, dict(options))
    if settings.scheme != backend.scheme:
        raise ConfigurationError(f"client is for {backend.scheme}://, not {settings.scheme}://")
    return Engine(backend.configure(settings, client, timers=timers), settings, timers, client)


@cache
def _warn_once(text: str) -> None:
    log.warning(text)


def _opening(engine: Engine) -> Steps[None]:
    """Open the first session, or close ``engine``: also where Ctrl-C or a cancellation comes."""
    yield engine.deadline(engine.settings.connect_timeout)
    is_open = False
    try:
        yield from engine.session()
        is_open = True
    except DeadlineReached as late:
        raise engine.silent(late) from None
    finally:
        if not is_open:
            run_in_background(engine.close())
