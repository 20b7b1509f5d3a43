"""The HTTP fence on real servers: what is held back, what passes, and when the guard is left."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

import httpx
import pytest

from coordlock import StaleToken
from coordlock.fencing import AsyncMemoryFence, FencingToken, Marks, MemoryFence
from coordlock.fencing.http import (
    HEADER,
    TOKEN_KEY,
    FencingMiddleware,
    WSGIFencingMiddleware,
    fenced,
)
from coordlock.testing.waiting import eventually
from testbed.servers.http import asgi_server, wsgi_server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

#: What an application does: method, path and token in, body out.
Handle = Callable[[str, str, FencingToken | None], bytes]


def asgi_app(handle: Handle) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        token = scope.get(TOKEN_KEY)
        body = await asyncio.to_thread(handle, scope["method"], scope["path"], token)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": body})

    return app


def wsgi_app(handle: Handle) -> Any:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode()
        body = handle(environ["REQUEST_METHOD"], path, environ.get(TOKEN_KEY))
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    return app


@dataclass
class Served:
    url: str
    marks: Callable[[str], Marks]


class Serve(Protocol):
    def __call__(self, handle: Handle, **options: Any) -> Served: ...


@pytest.fixture(params=["asgi", "wsgi"])
def interface(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def serve(interface: str) -> Iterator[Serve]:
    """Serves an application behind the middleware, on a fence in memory if nothing else is said."""
    with ExitStack() as stack:

        def asgi(handle: Handle, **options: Any) -> Served:
            memory = AsyncMemoryFence()
            app = FencingMiddleware(asgi_app(handle), **{"fence": memory, **options})
            url = stack.enter_context(asgi_server(app, lifespan="off", log_level="critical"))
            return Served(url, lambda resource: asyncio.run(memory.marks(resource)))

        def wsgi(handle: Handle, **options: Any) -> Served:
            memory = MemoryFence()
            app = WSGIFencingMiddleware(wsgi_app(handle), **{"fence": memory, **options})
            return Served(stack.enter_context(wsgi_server(app)), memory.marks)

        yield {"asgi": asgi, "wsgi": wsgi}[interface]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(verify=False, timeout=60) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def tell(method: str, path: str, token: FencingToken | None) -> bytes:
    """What the application was given."""
    return f"{method} {path} {token and (token.value, token.shared)}".encode()


# One step


def test_a_newer_token_waits_until_older_ones_have_been_handled(
    serve: Serve, client: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    working, go_on = Event(), Event()
    done = []

    def handle(method: str, path: str, token: FencingToken | None) -> bytes:
        assert token is not None
        if token.value == 33:
            working.set()
            assert go_on.wait(60)
        done.append(token.value)
        return b""

    served = serve(handle)
    older = pool.submit(fenced(client, 33).put, served.url)
    assert working.wait(60)
    newer = pool.submit(fenced(client, 34).put, served.url)
    eventually(lambda: served.marks("/") == Marks(34))
    with pytest.raises(StaleToken):
        fenced(client, 33).put(served.url)
    assert not newer.done()
    assert not done
    go_on.set()
    assert older.result(60).status_code == newer.result(60).status_code == 200
    assert done == [33, 34]


def test_the_guard_is_left_when_the_application_fails(serve: Serve, client: httpx.Client) -> None:
    def handle(method: str, path: str, token: FencingToken | None) -> bytes:
        if method == "POST":
            raise LookupError("nothing there")
        return b""

    served = serve(handle)
    assert fenced(client, 33).post(served.url).status_code == 500
    assert fenced(client, 34).put(served.url).status_code == 200


# Who passes


@pytest.mark.parametrize(
    "spelling", ["//alice", "/%61lice", "/%2561lice", "/alice/", "/./b/../alice"]
)
def test_a_path_is_one_resource_however_it_is_spelled(serve: Serve, spelling: str) -> None:
    served = serve(tell)
    for path, token, status in (("/alice", "34", 200), (spelling, "33", 409)):
        # Clients of a higher level would change the spelling.
        with closing(HTTPConnection(served.url.removeprefix("http://"), timeout=60)) as connection:
            connection.request("PUT", path, headers={"Fencing-Token": token})
            assert connection.getresponse().status == status
    assert served.marks("/alice") == Marks(34)


@pytest.mark.parametrize(
    ("require", "get", "put"), [("unsafe", 200, 428), ("all", 428, 428), ("none", 200, 200)]
)
def test_without_the_header_it_depends(
    serve: Serve, client: httpx.Client, require: str, get: int, put: int
) -> None:
    url = serve(tell, require=require).url
    assert (client.get(url).status_code, client.put(url).status_code) == (get, put)
    fenced(client, 34).put(url)
    with pytest.raises(StaleToken):
        fenced(client, 33).get(url)


@pytest.mark.parametrize(
    "values", [["x"], [""], ["034"], ["34, 34"], ["34", "34"], ["34", ""], ["34; shared=?0"]]
)
def test_a_malformed_header_is_a_bad_request(
    serve: Serve, client: httpx.Client, values: list[str]
) -> None:
    served = serve(tell, require="none")
    for method in ("GET", "PUT"):
        response = client.request(
            method, served.url, headers=[(HEADER.lower(), value) for value in values]
        )
        assert response.status_code == 400
        assert response.headers["Content-Type"] == "application/problem+json"
        assert set(response.json()) == {"type", "title", "status", "detail"}
    assert served.marks("/") == Marks()


# Checks of the application's own


@pytest.mark.parametrize("fence", ["memory", None])
def test_the_application_may_check_the_token_itself(
    serve: Serve, client: httpx.Client, fence: str | None
) -> None:
    own = MemoryFence()

    def handle(method: str, path: str, token: FencingToken | None) -> bytes:
        assert token is not None
        own.check("row of alice", token)
        return b""

    url = serve(handle, **({} if fence else {"fence": None})).url
    own.check("row of alice", 34)
    with pytest.raises(StaleToken) as refused:
        fenced(client, 33).put(url)
    error = refused.value
    assert (error.resource, error.token, error.newest) == ("row of alice", 33, 34)
    assert fenced(client, 34).put(url).status_code == 200


# ASGI

Messages = list[dict[str, Any]]


def http_scope(token: int, **changes: Any) -> dict[str, Any]:
    headers = [(b"fencing-token", b"%d" % token)]
    return {"type": "http", "method": "PUT", "path": "/x", "headers": headers, **changes}


async def receive_nothing() -> dict[str, Any]:
    raise AssertionError("nobody asked")


class TestASGI:
    @pytest.mark.parametrize("kind", ["lifespan", "websocket", "something new"])
    def test_other_scopes_pass_through_untouched(self, kind: str) -> None:
        seen = []

        async def app(*arguments: Any) -> None:
            seen.append(arguments)

        scope = {"type": kind, "path": "/x", "headers": [(b"fencing-token", b"x")]}

        async def send(message: Any) -> None:
            raise AssertionError(message)

        asyncio.run(FencingMiddleware(app, AsyncMemoryFence())(scope, receive_nothing, send))
        [(passed, receive, sender)] = seen
        assert passed is scope
        assert (receive, sender) == (receive_nothing, send)

    def test_a_cancelled_request_leaves_the_guard(self) -> None:
        working = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope[TOKEN_KEY].value == 33:
                working.set()
                await asyncio.Event().wait()

        async def main() -> None:
            memory = AsyncMemoryFence()
            middleware = FencingMiddleware(app, memory)
            older = asyncio.create_task(call(middleware, http_scope(33)))
            await working.wait()
            waiting = asyncio.create_task(call(middleware, http_scope(34)))
            newest = asyncio.create_task(call(middleware, http_scope(35)))
            await asyncio.sleep(0)  # both begin to wait
            assert await memory.marks("/x") == Marks(35)
            waiting.cancel()
            older.cancel()
            await asyncio.wait_for(newest, 60)
            for task in (waiting, older):
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(main())

    def test_a_client_that_is_gone_does_not_keep_the_guard(self, pool: ThreadPoolExecutor) -> None:
        working = Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope[TOKEN_KEY].value == 33:
                working.set()
                while (await receive())["type"] != "http.disconnect":
                    pass
                return
            await send({"type": "http.response.start", "status": 204})
            await send({"type": "http.response.body"})

        memory = AsyncMemoryFence()
        request = b"PUT / HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 0\r\n\r\n"
        with (
            asgi_server(FencingMiddleware(app, memory), lifespan="off") as url,
            httpx.Client(verify=False, timeout=60) as client,
            socket.create_connection(("127.0.0.1", httpx.URL(url).port)) as leaving,
        ):
            leaving.sendall(request)
            assert working.wait(60)
            newer = pool.submit(fenced(client, 34).put, url)
            eventually(lambda: asyncio.run(memory.marks("/")) == Marks(34))
            assert not newer.done()
            leaving.close()
            assert newer.result(60).status_code == 204


async def call(app: Any, scope: dict[str, Any], sent: Messages | None = None) -> Messages:
    messages: Messages = [] if sent is None else sent

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive_nothing, send)
    return messages


# WSGI


class Recording(MemoryFence):
    """Notes when its guard is entered and left."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events = events

    @contextmanager
    def guard(self, *arguments: Any) -> Iterator[None]:  # type: ignore[override]  # it decorates nothing
        with super().guard(*arguments):
            self.events.append("entered")
            try:
                yield
            finally:
                self.events.append("left")


class Chunks:
    """An application's response."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def __iter__(self) -> Iterator[bytes]:
        for number in range(3):
            self.events.append(f"chunk {number}")
            yield b"%d" % number

    def close(self) -> None:
        self.events.append("closed")


class TestWSGI:
    @pytest.fixture
    def events(self) -> list[str]:
        return []

    def ask(self, app: Any, events: list[str], **changes: Any) -> Any:
        """The response of the middleware around ``app`` to a PUT under token 33."""

        def start_response(status: str, headers: Any, failure: Any = None) -> Any:
            assert not started or failure, "called again without a failure"
            started.append(status)
            events.append(status)

        started: list[str] = []

        middleware = WSGIFencingMiddleware(app, changes.pop("fence", Recording(events)))
        environ = {"REQUEST_METHOD": "PUT", "PATH_INFO": "/x", "HTTP_FENCING_TOKEN": "33"}
        return middleware(environ | changes, start_response)

    def test_the_guard_is_held_until_the_response_is_closed(self, events: list[str]) -> None:
        response = self.ask(lambda environ, start: Chunks(events), events)
        assert list(response) == [b"0", b"1", b"2"]
        assert "left" not in events
        response.close()
        assert events == ["entered", "chunk 0", "chunk 1", "chunk 2", "closed", "left"]
        response.close()
        assert events.count("left") == events.count("closed") == 1
