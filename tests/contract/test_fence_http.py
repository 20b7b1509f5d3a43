"""The middleware passes the suite of fences through real servers, with the clients' wrappers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import httpx
import pytest
import requests

from coordlock.fencing import AsyncMemoryFence, MemoryFence, Presented
from coordlock.fencing.http import (
    FencingMiddleware,
    WSGIFencingMiddleware,
    fenced,
    fenced_async,
)
from coordlock.testing.fence_contract import FenceContract, Protected
from coordlock.testing.portal import Portal
from testbed.servers.http import asgi_server, wsgi_server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


def parameter(query: str, name: str) -> str:
    [value] = parse_qs(query, strict_parsing=True)[name]
    return value


class Integers:
    """A server's integers: GET and PUT ``/?resource=``; POST does nothing."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def handle(self, method: str, query: str) -> bytes:
        resource = parameter(query, "resource")
        if method == "PUT":
            self.values[resource] = int(parameter(query, "value"))
        return b"%d" % self.values.get(resource, 0)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        body = self.handle(scope["method"], scope["query_string"].decode())
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": body})

    def wsgi(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        # A generator: it does nothing before the server asks for its first chunk.
        body = self.handle(environ["REQUEST_METHOD"], environ["QUERY_STRING"])
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield body


class OverHTTP(Protected):
    def __init__(self, fence: Any, url: str, session: Callable[[Presented, bool], Any]) -> None:
        """``session`` makes one whose requests have the token."""
        super().__init__(fence)
        self.url = url
        self.session = session

    def send(self, method: str, token: Presented, shared: bool, **parameters: object) -> str:
        response = self.session(token, shared).request(method, self.url, params=parameters)
        response.raise_for_status()
        return str(response.text)

    def read(self, resource: str, token: Presented, shared: bool = False) -> int:
        return int(self.send("GET", token, shared, resource=resource))

    def write(self, resource: str, token: Presented, value: int, shared: bool = False) -> None:
        self.send("PUT", token, shared, resource=resource, value=value)

    def check(self, resource: str, token: Presented, shared: bool = False) -> None:
        self.send("POST", token, shared, resource=resource)


class Mounted:
    """What the one uvicorn of this module serves: each test its own middleware."""

    def __init__(self) -> None:
        self.app: Any = None
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


@pytest.fixture(scope="module")
def mounted() -> Iterator[Mounted]:
    mounted = Mounted()
    with asgi_server(mounted, lifespan="off") as mounted.url:
        yield mounted


class OfASGI(FenceContract):
    fence = FencingMiddleware
    races = 20  # both sides run in this process: 10 ms for a request

    @pytest.fixture
    def portal(self) -> Iterator[Portal]:
        with closing(Portal()) as portal:
            yield portal

    @pytest.fixture
    def memory(self) -> AsyncMemoryFence:
        return AsyncMemoryFence()

    @pytest.fixture
    def url(self, mounted: Mounted, memory: AsyncMemoryFence) -> str:
        mounted.app = FencingMiddleware(
            Integers().asgi,
            memory,
            resource=lambda scope: parameter(scope["query_string"].decode(), "resource"),
            require="all",
        )
        return mounted.url


class TestASGIWithHttpx(OfASGI):
    fence = FencingMiddleware

    @pytest.fixture
    def protected(self, url: str, memory: AsyncMemoryFence, portal: Portal) -> Iterator[Protected]:
        with httpx.Client(verify=False, timeout=60) as client:
            yield OverHTTP(portal.front(memory), url, partial(fenced, client))


class TestASGIWithAsyncHttpx(OfASGI):
    fence = FencingMiddleware

    @pytest.fixture
    def protected(self, url: str, memory: AsyncMemoryFence, portal: Portal) -> Iterator[Protected]:
        client = httpx.AsyncClient(verify=False, timeout=60)

        def session(token: Presented, shared: bool) -> Any:
            return portal.front(fenced_async(client, token, shared))

        yield OverHTTP(portal.front(memory), url, session)
        portal.wait(client.aclose())


class TestWSGIWithRequests(FenceContract):
    fence = WSGIFencingMiddleware

    @pytest.fixture
    def protected(self) -> Iterator[Protected]:
        memory = MemoryFence()
        app = WSGIFencingMiddleware(
            Integers().wsgi,
            memory,
            resource=lambda environ: parameter(environ["QUERY_STRING"], "resource"),
            require="all",
        )
        with wsgi_server(app) as url, requests.Session() as session:
            yield OverHTTP(memory, url, partial(fenced, session))
