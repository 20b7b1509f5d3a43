"""The server's half for ASGI: requests under stale tokens never reach the application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext
from typing import Any, Final

from coordlock.errors import StaleToken
from coordlock.fencing.fence import AsyncGuardingFence
from coordlock.fencing.http.header import HEADER
from coordlock.fencing.http.policy import (
    RESOURCE,
    TOKEN_KEY,
    Require,
    check_options,
    judge,
    resource_of,
)
from coordlock.fencing.http.problem import Problem
from coordlock.fencing.token import FencingToken

__all__ = ["FencingMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_NAME: Final = HEADER.lower().encode()


def _path(scope: Scope) -> str | None:
    return resource_of(scope["path"])


class FencingMiddleware:
    """Checks the header ``Fencing-Token`` of HTTP requests before an ASGI application sees them.

    The fence's guard is held until the application returns, fails or is cancelled. Answers 409 to a
    stale token, 400 to a malformed header, 428 where it is missing: see `Problem`. WebSockets
    and the lifespan pass through.

    Args:
        app: the application.
        fence: holds newer tokens back while the application works. None when the application
            checks the token itself, which it finds in ``scope[TOKEN_KEY]``.
        resource: tells a request's resource by its scope; None for what is not protected. By
            default each path is a resource of its own, however it is spelled: see `resource_of`.
        require: which requests must have the header: ``"all"``, ``"none"``, or ``"unsafe"`` for all
            but GET, HEAD, OPTIONS and TRACE; then no client may write what it derived from a
            read without a token. A request that has the header is always checked.

    Raises `ConfigurationError` for a fence or a ``require`` of another kind.
    """

    def __init__(
        self,
        app: ASGIApp,
        fence: AsyncGuardingFence | None,
        *,
        resource: Callable[[Scope], str | None] = _path,
        require: Require = "all",
    ) -> None:
        self._app = app
        self._fence = fence
        self._resource = RESOURCE.check(resource)
        self._require = require
        check_options(require, fence, AsyncGuardingFence, "ASGI")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or pass one of another kind through."""
        resource = self._resource(scope) if scope["type"] == "http" else None
        if resource is None:
            await self._app(scope, receive, send)
            return
        values = [
            value.decode("latin-1") for name, value in scope["headers"] if name.lower() == _NAME
        ]
        match judge(scope["method"], values, self._require):
            case Problem() as problem:
                await _answer(problem, scope, send)
            case None:
                await self._app(scope, receive, send)
            case token:
                await self._guarded(resource, token, scope, receive, send)

    async def _guarded(
        self, resource: str, token: FencingToken, scope: Scope, receive: Receive, send: Send
    ) -> None:
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        guard = self._fence.guard(resource, token) if self._fence else nullcontext()
        try:
            async with guard:
                await self._app({**scope, TOKEN_KEY: token}, receive, watched)
        except StaleToken as error:
            # The fence has refused it, or the application has, by a check of its own.
            if has_begun or error.token != token.value:
                raise
            await _answer(Problem.stale(error), scope, send)


async def _answer(problem: Problem, scope: Scope, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers]
    await send({"type": "http.response.start", "status": int(problem.status), "headers": headers})
    body = b"" if scope["method"] == "HEAD" else problem.body
    await send({"type": "http.response.body", "body": body})
