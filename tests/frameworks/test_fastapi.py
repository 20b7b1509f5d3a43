"""`coordlock.integrations.fastapi` in FastAPI, in Starlette, and in servers that are killed."""

# No annotations from the future: FastAPI reads those of functions that are made in here.
import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.to_thread
import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import coordlock
from coordlock import AsyncClient, AsyncGrant
from coordlock.integrations.fastapi import LockMiddleware, held, hold, lifespan, locks
from testbed.servers.redis import RedisServer

BOUND = 60.0

Ask = Callable[[str], Awaitable[httpx.Response]]
Locks = Annotated[AsyncClient, Depends(locks)]
Report = Annotated[AsyncGrant, held("report", timeout=0.2)]
Account = Annotated[AsyncGrant, held(lambda name: f"account/{name}", timeout=BOUND)]


def asked(
    application: FastAPI | Starlette, test: Callable[[Ask, AsyncClient], Awaitable[None]]
) -> None:
    """Run ``test`` while the application is up; nothing is locked after it."""

    async def main() -> None:
        async with lifespan("memory://requests")(application) as state:

            async def up(scope: Any, receive: Any, send: Any) -> None:
                await application({**scope, "state": dict(state)}, receive, send)

            transport = httpx.ASGITransport(up, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://bank", timeout=BOUND
            ) as http:
                await test(http.get, state["locks"])
            assert await state["locks"].admin.names() == []

    asyncio.run(main())


@pytest.fixture
def application() -> FastAPI:
    made = FastAPI()
    made.add_middleware(LockMiddleware)
    return made


def test_the_lock_is_released_after_the_response_its_task_and_all_dependencies(
    application: FastAPI,
) -> None:
    seen: dict[str, bool] = {}

    def dependency(name: str, scope: Literal["function", "request"]) -> Any:
        async def depend(client: Locks) -> AsyncIterator[None]:
            yield
            seen[name] = await client.lock("report").locked()

        return Depends(depend, scope=scope)

    @application.get("/", dependencies=[dependency("before", "request")])
    async def work(
        client: Locks,
        grant: Report,
        tasks: BackgroundTasks,
        function: Annotated[None, dependency("function", "function")],
        after: Annotated[None, dependency("after", "request")],
    ) -> StreamingResponse:
        async def body() -> AsyncIterator[bytes]:
            yield b"done"
            seen["body"] = await client.lock("report").locked()

        async def task() -> None:
            seen["task"] = await client.lock("report").locked()

        tasks.add_task(task)
        return StreamingResponse(body())

    async def test(ask: Ask, client: AsyncClient) -> None:
        assert (await ask("/")).status_code == 200

    asked(application, test)
    assert seen == dict.fromkeys(["before", "function", "after", "body", "task"], True)


def test_requests_for_one_name_are_answered_one_after_another_in_sync_endpoints_too(
    application: FastAPI,
) -> None:
    balances = {"alice": 0, "bob": 0}

    @application.get("/{name}")
    def book(name: str, grant: Account, again: Account) -> int:
        assert grant is again
        balance = balances[name]
        grant.check()
        balances[name] = balance + 1
        return grant.token

    async def test(ask: Ask, client: AsyncClient) -> None:
        # More than FastAPI's pool has threads.
        answers = await asyncio.gather(*(ask(name) for name in ["alice", "bob"] * 50))
        assert {answer.status_code for answer in answers} == {200}

    asked(application, test)
    assert balances == {"alice": 50, "bob": 50}


def test_a_lock_that_is_not_granted_in_time_is_423_and_the_log_says_who_has_it(
    application: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    @application.get("/")
    async def work(grant: Report) -> None:
        raise AssertionError

    async def test(ask: Ask, client: AsyncClient) -> None:
        with caplog.at_level(logging.WARNING, "coordlock.integrations.fastapi"):
            async with client.lock("report", label="nightly"):
                answer = await ask("/")
        assert (answer.status_code, answer.json()["detail"]) == (
            423,
            "locked by another; try again",
        )
        assert answer.headers["Retry-After"] == "1"
        assert "GET /: 423: lock 'report' was not granted" in caplog.text
        assert "nightly" in caplog.text

    asked(application, test)


def test_an_application_starts_without_its_lock_service_and_locks_once_that_is_back(
    application: FastAPI, tmp_path: Path
) -> None:
    @application.get("/health")
    async def health() -> str:
        return "well"

    @application.get("/")
    async def work(grant: Annotated[AsyncGrant, held("report", timeout=BOUND)]) -> str:
        return "done"

    async def main(server: RedisServer) -> None:
        server.kill()
        options = "?connect_timeout=0.5&request_timeout=0.5&restart_delay=0"
        async with lifespan(server.url + options)(application) as state:
            up = lambda scope, *rest: application({**scope, "state": dict(state)}, *rest)  # noqa: E731
            transport = httpx.ASGITransport(up)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://bank", timeout=BOUND
            ) as http:
                assert (await http.get("/health")).status_code == 200
                away = await http.get("/")
                assert away.status_code == 503
                assert 1 <= int(away.headers["Retry-After"]) <= 30  # as long as it is away
                assert (await http.get("/health")).status_code == 200
                server.start()
                async with asyncio.timeout(BOUND):
                    while (await http.get("/")).status_code != 200:
                        continue

    with RedisServer(tmp_path / "server") as server:
        asyncio.run(main(server))


async def lose(client: AsyncClient, grant: AsyncGrant) -> None:
    await client.admin.evict((await client.admin.contenders("report"))[0])
    assert await grant.lost.wait()


def test_a_loss_before_the_response_is_503_and_is_thrown_into_the_dependencies(
    application: FastAPI,
) -> None:
    ends = []

    async def session() -> AsyncIterator[None]:
        try:
            yield
            ends.append("commit")
        except coordlock.LockLost:
            ends.append("rollback")
            raise

    @application.get("/", dependencies=[Depends(session)])
    async def work(client: Locks, grant: Report) -> str:
        await lose(client, grant)
        return "well done"

    async def test(ask: Ask, client: AsyncClient) -> None:
        answer = await ask("/")
        assert answer.status_code == 503
        assert answer.json()["detail"] == "the lock is not available; try again"
        assert answer.headers["Retry-After"] == "5"

    asked(application, test)
    assert ends == ["rollback"]


def test_handlers_of_the_applications_own_come_first(application: FastAPI) -> None:
    @application.exception_handler(coordlock.LockLost)
    async def lost(request: Request, error: Exception) -> Response:
        return Response(status_code=418)

    @application.get("/")
    async def work(client: Locks, grant: Report) -> None:
        await lose(client, grant)
        grant.check()

    async def test(ask: Ask, client: AsyncClient) -> None:
        assert (await ask("/")).status_code == 418

    asked(application, test)


def test_a_web_socket_holds_its_lock_until_it_is_closed(application: FastAPI) -> None:
    sent: list[Any] = []

    @application.websocket("/")
    async def talk(socket: WebSocket, client: Locks, grant: Report) -> None:
        await socket.accept()
        await socket.send_json(await client.lock("report").locked())

    async def main() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        async with lifespan("memory://sockets")(application) as state:
            scope = {"type": "websocket", "path": "/", "headers": [], "query_string": b""}
            await application({**scope, "state": state}, receive, send)
            assert await state["locks"].admin.names() == []

    asyncio.run(main())
    assert sent[1]["text"] == "true"


def test_starlette_holds_locks_of_any_kind() -> None:
    async def report(request: Request) -> Response:
        grant = await hold(request, locks(request).semaphore("report", 1, timeout=BOUND))
        return JSONResponse(str(grant.claim))

    application = Starlette(routes=[Route("/", report)])
    application.add_middleware(LockMiddleware)

    async def test(ask: Ask, client: AsyncClient) -> None:
        answers = await asyncio.gather(*(ask("/") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}

    asked(application, test)


def test_what_is_missing_is_said() -> None:
    application = FastAPI()

    @application.get("/report")
    async def report(grant: Report) -> None: ...

    async def call(scope_state: dict[str, Any]) -> None:
        async def up(scope: Any, receive: Any, send: Any) -> None:
            await application({**scope, "state": scope_state}, receive, send)

        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(up), base_url="http://bank"
        ) as http:
            await http.get("/report")

    with pytest.raises(RuntimeError, match=r"lifespan=lifespan\(\)"):
        asyncio.run(call({}))

    async def without_middleware() -> None:
        async with coordlock.connect_async("memory://missing") as client:
            await call({"locks": client})

    with pytest.raises(RuntimeError, match=r"add_middleware\(LockMiddleware\)"):
        asyncio.run(without_middleware())
    with pytest.raises(ValueError, match=r"lambda name: f'account/\{name\}'"):
        held("account/{name}")


def test_a_sync_lock_is_refused(application: FastAPI) -> None:
    errors = []

    @application.get("/")
    async def work(request: Request) -> None:
        with coordlock.connect("memory://sync") as client:
            try:
                await hold(request, client.lock("x"))  # type: ignore[arg-type]  # on purpose
            except TypeError as error:
                errors.append(str(error))

    async def test(ask: Ask, client: AsyncClient) -> None:
        await ask("/")

    asked(application, test)
    assert "would block the event loop" in errors[0]


# Dependencies that applications write themselves


async def all_of(application: FastAPI, names: list[str]) -> list[httpx.Response]:
    """The responses to a request for each of ``names``, all sent at once."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://bank", timeout=BOUND
    ) as http:
        return await asyncio.gather(*(http.get(f"/{name}") for name in names))


async def until(is_true: Callable[[], object]) -> None:
    """Wait until ``is_true``, and let the loop go on meanwhile."""
    async with asyncio.timeout(BOUND):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_thread_that_entered_another_requests_lock_is_in_no_deadlock() -> None:
    """Each of two threads waits for what the other one has entered, for a request that moved on."""

    async def main(client: coordlock.Client) -> None:
        application = FastAPI()
        finish, both = asyncio.Event(), threading.Barrier(2)
        entered: dict[int, str] = {}

        def first() -> Iterator[coordlock.Grant]:
            both.wait(BOUND)  # so that each has a thread of its own
            name = entered[threading.get_ident()] = f"account/{threading.get_ident()}"
            with client.lock(name, timeout=BOUND) as grant:
                yield grant

        @application.get("/first")
        async def stay(grant: Annotated[coordlock.Grant, Depends(first)]) -> None:
            await finish.wait()

        def second() -> Iterator[coordlock.Grant]:
            both.wait(BOUND)
            (name,) = (name for thread, name in entered.items() if thread != threading.get_ident())
            with client.lock(name, timeout=BOUND) as grant:
                yield grant

        @application.get("/second")
        def then(grant: Annotated[coordlock.Grant, Depends(second)]) -> None:
            grant.check()

        anyio.to_thread.current_default_thread_limiter().total_tokens = 2
        holding = asyncio.create_task(all_of(application, ["first", "first"]))
        await until(
            lambda: len(entered) == 2 and all(map(client.admin.contenders, entered.values()))
        )
        waiting = asyncio.create_task(all_of(application, ["second", "second"]))
        await until(
            lambda: all(len(client.admin.contenders(name)) == 2 for name in entered.values())
        )
        await asyncio.sleep(1.0)
        assert client.admin.deadlocks() == ()
        finish.set()
        assert [one.status_code for one in await holding + await waiting] == [200] * 4

    with coordlock.connect("memory://moved-on", deadlock_delay=0.2) as client:
        asyncio.run(main(client))
