"""Connecting, and the clients that locks come from: one to block with, one for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack
from weakref import WeakSet, ref

from coordlock.backend.config import Target, configure, warn_unless_chosen
from coordlock.backend.registry import backend_for_client, backend_for_scheme
from coordlock.client.lock_makers import AsyncLocks, Locks
from coordlock.client.recipe_makers import AsyncRecipes, Recipes
from coordlock.errors import ConfigurationError
from coordlock.kernel.access import Access, close
from coordlock.kernel.engine import Engine
from coordlock.runtime.clock import SystemTimers
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import (
    Steps,
    awaiting,
    blocking,
    bounded,
    run,
    run_async,
    run_in_background,
)
from coordlock.runtime.guards import Resident
from coordlock.runtime.log import Log
from coordlock.runtime.recorder import Event, Subscription
from coordlock.settings import Settings

if TYPE_CHECKING:
    from coordlock.client.admin import Admin, AsyncAdmin
    from coordlock.client.state import ClientState
    from coordlock.settings.keywords import Options

__all__ = ["AsyncClient", "Client", "Connecting", "connect", "connect_async"]

log = Log("coordlock")


def connect(target: Target = None, *, client: object = None, **options: Unpack[Options]) -> Client:
    """Connect to the coordination service and open a session.

    The session is open when it returns. `Client` takes the same arguments and opens it at its first
    use.

    Args:
        target: a URL, a mapping or `Settings`; None takes the first of ``COORDLOCK_URL``,
            ``coordlock.toml``, ``[tool.coordlock]`` in ``pyproject.toml``, the files of the user
            and of the machine, and the local backend, with a warning in the log.
        client: an existing client of the service. A ``kazoo.client.KazooClient`` or an
            ``etcd3.Etcd3Client`` shares its connection, which is never closed here. A client of
            redis-py or valkey-py says how to connect.
        options: single options, which override those of ``target``; see the table in the
            documentation. ``url`` or ``backend`` among them take the place of a ``target`` of None.
            Options of third-party backends go into ``target``.

    Raises `ConfigurationError` at once for a configuration that cannot be used, and when the
    backend is not installed, `AuthenticationFailed`, and `BackendUnavailable` when there is no
    session within the option ``connect_timeout``.
    """
    engine = _engine_of(target, client, options)
    run(_opening(engine))
    return Client._of(Access(engine))


def connect_async(
    target: Target = None, *, client: object = None, **options: Unpack[Options]
) -> Connecting:
    """`connect` for asyncio: await the result, or enter it with ``async with``."""
    return Connecting(_engine_of(target, client, options))


class Connecting:
    """What `connect_async` returns: awaitable, and an async context manager."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._client: AsyncClient | None = None
        self._begun = False

    if not TYPE_CHECKING:  # which then finds the mistake itself

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse what belongs to the client, for which nobody has waited."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(AsyncClient, name):
                text += ": await the client first, client = await coordlock.connect_async(...)"
            raise AttributeError(text, name=name, obj=self)

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


class _BaseClient(Resident):
    """What sync and async clients share."""

    _instead = "pass its settings or a URL instead, and connect there"

    def __init__(
        self, target: Target = None, *, client: object = None, **options: Unpack[Options]
    ) -> None:
        """A client that connects at its first use, in each process separately.

        Takes what `connect` takes, and raises `ConfigurationError` at once. The
        first use raises the other errors of `connect`, within the option ``connect_timeout``.
        """
        engine = _engine_of(target, client, options)
        # Of its settings, because a variable of the environment may change until then. A given
        # client stays with its process.
        remake = None if client is not None else partial(_engine_of, engine.settings, None, {})
        self._access = Access(engine, remake)
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    @classmethod
    def _of(cls, access: Access) -> Self:
        made = cls.__new__(cls)
        made._access = access
        made._subscriptions = WeakSet()
        return made

    @property
    def _engine(self) -> Engine:
        return self._access.engine

    @property
    def settings(self) -> Settings:
        """The configuration in use."""
        return self._access.settings

    @property
    def state(self) -> ClientState:
        """What it knows of its session now: connected or not, since when, and the deadline.

        It asks nothing of the service, and may be read in any thread. In a process that was forked
        it is the state of that process.
        """
        from coordlock.client.state import state_of

        return state_of(self._access.begun, closed=self._access.closed)

    def on_event(self, listener: Callable[[Event], object]) -> Subscription:
        """Call ``listener`` with each event of this client: see `coordlock.telemetry.on_event`.

        Returns what ends that when it is called.
        """

        def is_mine(event: Event) -> bool:
            used = access()
            begun = None if used is None else used.begun
            return begun is not None and event.client == begun.number

        # The recorder keeps the subscription while it lasts, and that must not keep the client.
        access = ref(self._access, lambda _: subscription.end_soon())
        subscription = Subscription(listener, is_mine)
        self._subscriptions.add(subscription)
        return subscription

    def _close(self) -> Steps[None]:
        """Release what is held, end the session and disconnect. Idempotent, bounded, quiet.

        Grants that were held are `GrantState.LOST` from then on: ``check`` raises `LockLost`. But
        no callback of ``on_lost`` is called, and ``cancel_on_loss`` cancels no body. Calls that
        wait raise `ClientClosed`.

        Takes up to ``request_timeout`` when the service is silent; its session then ends by its
        time-to-live. The session of a client that was passed to `connect` goes on: its locks are
        released in the background, as soon as the service answers. The interpreter's exit closes
        clients that were not closed.
        """
        yield from self._access.close()
        for subscription in list(self._subscriptions):
            subscription.end_soon()

    def __repr__(self) -> str:
        closed = " closed" if self._access.closed else ""
        return f"<{type(self).__name__} {self.settings}{closed}>"


class Client(_BaseClient, Locks, Recipes):
    """A connection with its session, which makes locks and recipes.

    A context manager that closes it. Usable from any thread. A forked child must connect again: see
    `ClientClosed`.
    """

    close = blocking(_BaseClient._close)

    @property
    def admin(self) -> Admin:
        """The calls of operators: what is in use, who holds it, and how to free it."""
        from coordlock.client.admin import Admin

        return Admin(self._access)

    def _kind(self, sync: type, asynchronous: type) -> Any:
        return sync

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(_BaseClient, AsyncLocks, AsyncRecipes):
    """A connection with its session, for asyncio, which makes locks and recipes.

    An async context manager that closes it. Usable from any event loop of the process. A forked
    child must connect again: see `ClientClosed`.
    """

    close = awaiting(_BaseClient._close)

    @property
    def admin(self) -> AsyncAdmin:
        """The calls of operators: what is in use, who holds it, and how to free it."""
        from coordlock.client.admin import AsyncAdmin

        return AsyncAdmin(self._access)

    def _kind(self, sync: type, asynchronous: type) -> Any:
        return asynchronous

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        body: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _engine_of(target: Target, client: object, options: Options) -> Engine:
    timers = SystemTimers()
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
    is_open = False
    try:
        yield from bounded(engine.session(), engine.deadline(engine.settings.connect_timeout))
        is_open = True
    except DeadlineReached as late:
        raise engine.silent(late) from None
    finally:
        if not is_open:
            run_in_background(close(engine))
