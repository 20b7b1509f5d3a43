"""The server's half for WSGI: requests under stale tokens never reach the application."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from coordlock.errors import StaleToken
from coordlock.fencing.fence import GuardingFence
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

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["WSGIFencingMiddleware"]


def _path(environ: WSGIEnvironment) -> str | None:
    # WSGI hands bytes over as Latin-1; ASGI servers decode paths so.
    path: str = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return resource_of(path.encode("latin-1").decode("utf-8", "replace"))


class WSGIFencingMiddleware:
    """Checks the header ``Fencing-Token`` of requests before a WSGI application sees them.

    The fence's guard is held until the server closes the response, whether it was sent or not, or
    until the application fails. Answers 409 to a stale token, 400 to a malformed header, 428
    where it is missing: see `Problem`.

    Args:
        app: the application.
        fence: holds newer tokens back while the application works. None when the application
            checks the token itself, which it finds in ``environ[TOKEN_KEY]``.
        resource: tells a request's resource by its environ; None for what is not protected. By
            default each path is a resource of its own, however it is spelled: see `resource_of`.
        require: which requests must have the header: ``"all"``, ``"none"``, or ``"unsafe"`` for all
            but GET, HEAD, OPTIONS and TRACE; then no client may write what it derived from a
            read without a token. A request that has the header is always checked.

    Raises `ConfigurationError` for a fence or a ``require`` of another kind.
    """

    def __init__(
        self,
        app: WSGIApplication,
        fence: GuardingFence | None,
        *,
        resource: Callable[[WSGIEnvironment], str | None] = _path,
        require: Require = "all",
    ) -> None:
        self._app = app
        self._fence = fence
        self._resource = RESOURCE.check(resource)
        self._require = require
        check_options(require, fence, GuardingFence, "WSGI")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        resource = self._resource(environ)
        if resource is None:
            return self._app(environ, start_response)
        value = environ.get("HTTP_FENCING_TOKEN")
        values = [] if value is None else [value]
        match judge(environ["REQUEST_METHOD"], values, self._require):
            case Problem() as problem:
                return _answer(problem, environ, start_response)
            case None:
                return self._app(environ, start_response)
            case token:
                return self._guarded(resource, token, environ, start_response)

    def _guarded(
        self,
        resource: str,
        token: FencingToken,
        environ: WSGIEnvironment,
        start_response: StartResponse,
    ) -> Iterable[bytes]:
        has_begun = False

        def begin(*arguments: Any) -> Callable[[bytes], object]:
            nonlocal has_begun
            has_begun = True
            return start_response(*arguments)

        def refuse(error: StaleToken) -> Iterable[bytes]:
            """Answer the fence's refusal, or the application's own of this token."""
            if error.token != token.value:
                raise error
            # WSGI: a second call needs the failure, and raises it if something was sent before.
            failure = (sys.exc_info(),) if has_begun else ()
            return _answer(
                Problem.stale(error),
                environ,
                lambda status, headers: start_response(status, headers, *failure),
            )

        guard = self._fence.guard(resource, token) if self._fence else nullcontext()
        with ExitStack() as stack:
            try:
                stack.enter_context(guard)
                environ[TOKEN_KEY] = token
                chunks = self._app(environ, begin)
            except StaleToken as error:
                return refuse(error)
            if (close := getattr(chunks, "close", None)) is not None:
                stack.callback(close)
            return _Guarded(chunks, refuse, stack.pop_all())


class _Guarded:
    """The application's response; closing it leaves the guard. Servers close every response."""

    def __init__(
        self,
        chunks: Iterable[bytes],
        refuse: Callable[[StaleToken], Iterable[bytes]],
        stack: ExitStack,
    ) -> None:
        self._chunks = chunks
        self._refuse = refuse
        self._stack = stack

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks
        except StaleToken as error:
            yield from self._refuse(error)

    def close(self) -> None:
        self._stack.close()


def _answer(
    problem: Problem,
    environ: WSGIEnvironment,
    start_response: Callable[[str, list[tuple[str, str]]], object],
) -> Iterable[bytes]:
    start_response(f"{int(problem.status)} {problem.status.phrase}", problem.headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [problem.body]
