"""Locks for the requests of FastAPI and Starlette.

::

    app = FastAPI(lifespan=lifespan())
    app.add_middleware(LockMiddleware)

    AccountLock = Annotated[AsyncGrant, held(lambda name: f"account/{name}", timeout=5)]

    @app.post("/accounts/{name}")
    async def deposit(name: str, grant: AccountLock, session: Session) -> int: ...

A lock is held until the response was sent and every dependency has ended, in whatever order the
endpoint names them. So a session that is a dependency commits before the release.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

import coordlock
from coordlock.integrations.checked import Checked
from coordlock.integrations.statuses import refusal_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from coordlock.settings import Timeout

__all__ = ["LockMiddleware", "held", "hold", "lifespan", "locks"]

log: Final = logging.getLogger(__name__)

#: Where a request's scope keeps what it holds.
_HELD: Final = "coordlock.held"


class _Held(AsyncExitStack):
    """What a request holds: its end releases all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.grants: list[Checked] = []


G = TypeVar("G", bound=Checked)


class LockMiddleware:
    """Releases what a request has locked, when the application is done with the request.

    Until the response begins it answers for locks: 423 where one was not granted in time; 503 where
    one was lost, or the service of locks does not answer; both with ``Retry-After``. Your own
    handlers of these errors come first. No response below 400 begins after a lock of the request
    was lost.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        request = _Held()
        is_answered = scope["type"] == "websocket"

        async def send_if_held(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                if message["status"] < 400:
                    for grant in request.grants:
                        grant.check()
                is_answered = True
            await send(message)

        try:
            async with request:
                await self.app({**scope, _HELD: request}, receive, send_if_held)
        except coordlock.CoordlockError as error:
            if is_answered or (refusal := refusal_of(error)) is None:
                raise
            log.warning("%s %s: %d: %s", scope["method"], scope["path"], refusal.status, error)
            answer = JSONResponse(refusal.body, refusal.status, refusal.headers)
            await answer(scope, receive, send)


def lifespan(
    target: Any = None, **options: Any
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, coordlock.AsyncClient]]]:
    """The lifespan of an application with a client, which `locks` gives to its requests.

    Takes what `coordlock.AsyncClient` takes, and closes the client when the application ends. The
    client connects at its first use, so the application also starts, and answers what needs no
    lock, while the service of locks is away. Within a lifespan of your own, yield what it yields::

        async with lifespan()(app) as state:
            yield state
    """

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[dict[str, coordlock.AsyncClient]]:
        client = coordlock.AsyncClient(target, **options)
        try:
            yield {"locks": client}
        finally:
            await client.close()

    return run


def locks(connection: HTTPConnection) -> coordlock.AsyncClient:
    """The client that `lifespan` has made; also a dependency. RuntimeError without one."""
    client: coordlock.AsyncClient | None = getattr(connection.state, "locks", None)
    if client is None:
        raise RuntimeError(
            "the application has no client for locks: write FastAPI(lifespan=lifespan()), yield "
            "what lifespan()(app) gives from a lifespan of your own, and in tests enter the "
            "client: `with TestClient(app) as http`"
        )
    return client


async def hold(connection: HTTPConnection, lock: AbstractAsyncContextManager[G]) -> G:
    """Acquire ``lock``, of any kind, and hold it until the end of the request; the grant.

    Raises what ``acquire`` raises, TypeError for a lock of a `Client`, and RuntimeError in an
    application without the `LockMiddleware`.
    """
    request: _Held | None = connection.scope.get(_HELD)
    if request is None:
        raise RuntimeError(
            "nothing would release the lock: write app.add_middleware(LockMiddleware)"
        )
    if not hasattr(lock, "__aenter__"):
        raise TypeError(f"{lock!r} would block the event loop: make it with locks(request)")
    grant = await request.enter_async_context(lock)
    request.grants.append(grant)
    return grant


def held(
    key: str | Callable[..., str | Awaitable[str]],
    *,
    mode: coordlock.Mode = coordlock.Mode.EX,
    timeout: Timeout = coordlock.DEFAULT,
    label: str | None = None,
) -> Any:
    """A dependency of FastAPI: holds a lock until the end of the request, and gives its grant.

    ``key`` is the lock's name, or a function that gives it. FastAPI calls that function as a
    dependency: its parameters are those of the request, such as ``name`` of the path. The rest is
    as for `AsyncClient.lock`. Endpoints may be sync or async; a sync one gets an `AsyncGrant` too.
    """
    from fastapi import Depends

    if isinstance(key, str) and (found := re.search(r"\{(\w+)", key)):
        raise ValueError(
            f"{key!r} would be one lock for all: write held(lambda {found[1]}: f{key!r})"
        )
    given: Any = (lambda: key) if isinstance(key, str) else key

    async def acquire(
        connection: HTTPConnection, name: str = Depends(given)
    ) -> coordlock.AsyncGrant:
        lock = locks(connection).lock(name, mode=mode, timeout=timeout, label=label)
        return await hold(connection, lock)

    return Depends(acquire)
