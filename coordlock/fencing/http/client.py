"""The client's half: send the token, and raise `StaleToken` when the server refuses it.

Works with sessions and responses like those of httpx and requests, and imports neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from coordlock.fencing.http.header import HEADER, format_token
from coordlock.fencing.http.problem import may_be_stale, read_stale
from coordlock.fencing.token import FencingToken, Presented
from coordlock.runtime.caller import trace_context

__all__ = [
    "AsyncFencedSession",
    "FencedSession",
    "Response",
    "fenced",
    "fenced_async",
    "fencing_headers",
    "raise_for_stale",
]


class Response(Protocol):
    """What `raise_for_stale` reads of a response."""

    @property
    def status_code(self) -> int:
        """Such as 409."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in any case."""

    @property
    def content(self) -> bytes:
        """The body."""


R = TypeVar("R", bound=Response)
R_co = TypeVar("R_co", covariant=True)


class _Session(Protocol[R_co]):
    def request(self, *args: Any, **kwargs: Any) -> R_co: ...


def fencing_headers(token: Presented, shared: bool = False) -> dict[str, str]:
    """The header that carries ``token``: a grant, or a number; then ``shared`` for a read lock's.

    Raises `InvalidToken`; `Unsupported` for a grant of a semaphore; and `LockLost` for one that is
    known to be released or lost.
    """
    return {HEADER: format_token(FencingToken.of(token, shared))}


def raise_for_stale(response: Response) -> None:
    """Raise `StaleToken` when the server refused the token; do nothing for any other answer.

    An answer to HEAD has no body, so a refusal of it is a plain 409. Read a 409 that httpx streams
    before this.
    """
    # A good answer's body stays unread: the caller may want to stream it.
    if may_be_stale(response.status_code, response.headers.get("Content-Type")):
        error = read_stale(response.content)
        if error is not None:
            raise error


class _Fenced:
    """The parts of both sessions that need no waiting."""

    def __init__(self, token: Presented, shared: bool) -> None:
        self._token = token
        self._shared = shared
        fencing_headers(token, shared)  # so that a wrong token raises before the first request

    def _with_token(self, options: dict[str, Any]) -> dict[str, Any]:
        """``options`` of a request, with the headers of the token and of the current trace."""
        ours = {**trace_context(), **fencing_headers(self._token, self._shared)}
        ours_lower = {name.lower() for name in ours}
        given = options.get("headers") or {}
        pairs = given.items() if isinstance(given, Mapping) else given
        others = [(name, value) for name, value in pairs if _text(name).lower() not in ours_lower]
        both = [*others, *ours.items()]
        return {**options, "headers": dict(both) if isinstance(given, Mapping) else both}


class FencedSession(_Fenced, Generic[R]):
    """Sends each request with the token, through a session that stays the caller's: see `fenced`.

    ``options`` are those of the session's own methods.
    """

    def __init__(self, session: _Session[R], token: Presented, shared: bool = False) -> None:
        super().__init__(token, shared)
        self._session = session

    def request(self, method: str, url: Any, **options: Any) -> R:
        """The session's ``request`` with the token.

        Raises `StaleToken`; `LockLost` before a grant is sent that is known to be released or lost;
        and what the session raises.
        """
        response = self._session.request(method, url, **self._with_token(options))
        raise_for_stale(response)
        return response

    def get(self, url: Any, **options: Any) -> R:
        """GET: see `request`."""
        return self.request("GET", url, **options)

    def post(self, url: Any, **options: Any) -> R:
        """POST: see `request`."""
        return self.request("POST", url, **options)

    def put(self, url: Any, **options: Any) -> R:
        """PUT: see `request`."""
        return self.request("PUT", url, **options)

    def patch(self, url: Any, **options: Any) -> R:
        """PATCH: see `request`."""
        return self.request("PATCH", url, **options)

    def delete(self, url: Any, **options: Any) -> R:
        """DELETE: see `request`."""
        return self.request("DELETE", url, **options)


class AsyncFencedSession(_Fenced, Generic[R]):
    """`FencedSession` for asyncio: see `fenced_async`."""

    def __init__(
        self, session: _Session[Awaitable[R]], token: Presented, shared: bool = False
    ) -> None:
        super().__init__(token, shared)
        self._session = session

    async def request(self, method: str, url: Any, **options: Any) -> R:
        """The session's ``request`` with the token.

        Raises `StaleToken`; `LockLost` before a grant is sent that is known to be released or lost;
        and what the session raises.
        """
        response = await self._session.request(method, url, **self._with_token(options))
        raise_for_stale(response)
        return response

    async def get(self, url: Any, **options: Any) -> R:
        """GET: see `request`."""
        return await self.request("GET", url, **options)

    async def post(self, url: Any, **options: Any) -> R:
        """POST: see `request`."""
        return await self.request("POST", url, **options)

    async def put(self, url: Any, **options: Any) -> R:
        """PUT: see `request`."""
        return await self.request("PUT", url, **options)

    async def patch(self, url: Any, **options: Any) -> R:
        """PATCH: see `request`."""
        return await self.request("PATCH", url, **options)

    async def delete(self, url: Any, **options: Any) -> R:
        """DELETE: see `request`."""
        return await self.request("DELETE", url, **options)


def fenced(session: _Session[R], token: Presented, shared: bool = False) -> FencedSession[R]:
    """``session``, an ``httpx.Client`` or a ``requests.Session``, for requests under ``token``.

    Its methods send the header beside the caller's own and raise `StaleToken`. Raises
    `InvalidToken`, and `Unsupported` for a grant of a semaphore, before anything is sent; so do its
    methods with `LockLost` for a grant that is known to be released or lost.
    """
    return FencedSession(session, token, shared)


def fenced_async(
    session: _Session[Awaitable[R]], token: Presented, shared: bool = False
) -> AsyncFencedSession[R]:
    """`fenced` for an ``httpx.AsyncClient``."""
    return AsyncFencedSession(session, token, shared)


def _text(name: str | bytes) -> str:
    return name.decode("latin-1") if isinstance(name, bytes) else name
