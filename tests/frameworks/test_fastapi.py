"""FastAPI and Starlette enter and leave a lock for each request: in whose threads and tasks?"""

# No annotations from the future: FastAPI reads those of functions that are made in here.
import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated

import anyio.to_thread
import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import coordlock

#: So long may the whole of a test's requests take on a machine that is busy.
PATIENCE = 120.0

Application = FastAPI | Starlette


class Accounts:
    """Balances, which an update reads and writes in two steps: without the lock some are lost."""

    def __init__(self) -> None:
        self.balances: Counter[str] = Counter()

    def read(self, account: str) -> int:
        return self.balances[account]

    def write(self, account: str, balance: int) -> None:
        self.balances[account] = balance


def locks_by_a_sync_dependency(client: coordlock.Client, accounts: Accounts) -> FastAPI:
    application = FastAPI()

    def hold(account: str) -> Iterator[coordlock.Grant]:
        with client.lock(f"account/{account}", timeout=PATIENCE) as grant:
            yield grant

    @application.get("/{account}")
    def book(account: str, grant: Annotated[coordlock.Grant, Depends(hold)]) -> int:
        balance = accounts.read(account)
        grant.check()
        accounts.write(account, balance + 1)
        return grant.token

    return application


def locks_by_an_async_dependency(client: coordlock.AsyncClient, accounts: Accounts) -> FastAPI:
    application = FastAPI()

    async def hold(account: str) -> AsyncIterator[coordlock.AsyncGrant]:
        async with client.lock(f"account/{account}", timeout=PATIENCE) as grant:
            yield grant

    @application.get("/{account}")
    async def book(account: str, grant: Annotated[coordlock.AsyncGrant, Depends(hold)]) -> int:
        balance = accounts.read(account)
        await asyncio.sleep(0)
        grant.check()
        accounts.write(account, balance + 1)
        return grant.token

    return application


def locks_by_a_middleware(client: coordlock.AsyncClient, accounts: Accounts) -> Starlette:
    async def hold(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        account = request.url.path.strip("/")
        async with client.lock(f"account/{account}", timeout=PATIENCE) as grant:
            request.state.grant = grant
            return await call_next(request)

    async def book(request: Request) -> Response:
        account, grant = request.path_params["account"], request.state.grant
        balance = accounts.read(account)
        await asyncio.sleep(0)
        grant.check()
        accounts.write(account, balance + 1)
        return JSONResponse(grant.token)

    return Starlette(
        routes=[Route("/{account}", book)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=hold)],
    )


async def ask(application: Application, names: list[str]) -> list[httpx.Response]:
    """The responses to a request for each of ``names``, all sent at once."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://bank", timeout=PATIENCE
    ) as http:
        return await asyncio.gather(*(http.get(f"/{name}") for name in names))


def check_answers(responses: list[httpx.Response], accounts: Accounts, names: list[str]) -> None:
    """Every request was answered, under a grant of its own, and no update was lost."""
    assert [response.status_code for response in responses] == [200] * len(names)
    by_name = Counter(zip(names, (response.json() for response in responses), strict=True))
    assert set(by_name.values()) == {1}
    assert accounts.balances == Counter(names)


def test_a_sync_dependency_releases_in_whatever_thread_it_is_left(url: str) -> None:
    names = [str(number % 12) for number in range(40)]
    accounts = Accounts()
    with coordlock.connect(url) as client:
        for _ in range(3):
            accounts.balances.clear()
            application = locks_by_a_sync_dependency(client, accounts)
            check_answers(asyncio.run(ask(application, names)), accounts, names)
            assert not any(client.admin.contenders(queue) for queue in client.admin.names())


@pytest.mark.parametrize(
    "names",
    [[str(number % 12) for number in range(40)], ["one"] * 100],
    ids=["40 on 12 names", "100 on one name"],
)
@pytest.mark.parametrize("make", [locks_by_an_async_dependency, locks_by_a_middleware])
def test_an_async_application_answers_all_and_releases_all(
    url: str,
    make: Callable[[coordlock.AsyncClient, Accounts], Application],
    names: list[str],
) -> None:
    async def main() -> None:
        accounts = Accounts()
        async with coordlock.connect_async(url) as client:
            check_answers(await ask(make(client, accounts), names), accounts, names)
            # ZooKeeper keeps the nodes of empty queues for a while.
            queues = [await client.admin.contenders(queue) for queue in await client.admin.names()]
            assert not any(queues)

    asyncio.run(main())


def test_a_request_that_fails_releases_its_lock() -> None:
    application = FastAPI()

    async def main() -> None:
        async with coordlock.connect_async("memory://failing") as client:

            async def hold() -> AsyncIterator[coordlock.AsyncGrant]:
                async with client.lock("one") as grant:
                    yield grant

            @application.get("/{account}", dependencies=[Depends(hold)])
            async def fail(account: str) -> None:
                raise KeyError(account)

            for _ in range(2):
                with pytest.raises(KeyError):
                    await ask(application, ["one"])
            assert await client.admin.names() == []

    asyncio.run(main())


def test_a_loss_that_is_noticed_when_the_endpoint_returns_becomes_the_answer() -> None:
    """The dependency's scope is the function's; with the request's, 200 would have been sent."""
    application = FastAPI()

    async def main() -> None:
        async with coordlock.connect_async("memory://losing") as client:

            async def hold() -> AsyncIterator[coordlock.AsyncGrant]:
                async with client.lock("one") as grant:
                    yield grant

            @application.exception_handler(coordlock.LockLost)
            async def lost(request: Request, error: Exception) -> Response:
                return Response(status_code=503)

            @application.get("/{account}")
            async def lose(
                account: str,
                grant: Annotated[coordlock.AsyncGrant, Depends(hold, scope="function")],
            ) -> str:
                await client.admin.evict((await client.admin.contenders(account))[0])
                assert await grant.lost.wait()
                return account

            (response,) = await ask(application, ["one"])
            assert response.status_code == 503
            assert await client.admin.names() == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (coordlock.AcquireTimeout("one", 5.0), 423),
        (coordlock.errors.WaitUnavailable("etcd", "no answer", "one", 5.0), 503),
        (coordlock.WaitCancelled("one", "SIGTERM"), 503),
        (coordlock.SessionLost("etcd", "it expired"), 503),
        (coordlock.BackendUnavailable("etcd", "no answer"), 503),
    ],
)
def test_a_busy_lock_an_outage_and_other_ends_without_a_grant_are_answered_as_what_they_are(
    error: coordlock.CoordlockError, status: int
) -> None:
    """Starlette looks for the handler of each of an error's classes, in their order."""
    application = FastAPI()

    @application.exception_handler(coordlock.AcquireTimeout)
    async def busy(request: Request, error: Exception) -> Response:
        return Response(status_code=423)

    @application.exception_handler(coordlock.WaitError)
    @application.exception_handler(coordlock.BackendUnavailable)
    async def unavailable(request: Request, error: Exception) -> Response:
        return Response(status_code=503)

    @application.get("/{account}")
    async def fail(account: str) -> None:
        raise error

    (response,) = asyncio.run(ask(application, ["one"]))
    assert response.status_code == status


# A pool full of waiters


def test_sync_waiters_that_fill_the_pool_starve_the_holder_until_they_give_up() -> None:
    """What the page on web frameworks warns of: the holder's own endpoint gets no thread."""
    accounts = Accounts()
    answered: list[int] = []

    async def main(client: coordlock.Client) -> None:
        application = FastAPI()
        all_here = asyncio.Barrier(20)

        def hold() -> Iterator[coordlock.Grant]:
            with client.lock("one", timeout=1) as grant:
                yield grant

        @application.exception_handler(coordlock.AcquireTimeout)
        async def busy(request: Request, error: Exception) -> Response:
            return Response(status_code=423)

        @application.get("/{account}", dependencies=[Depends(all_here.wait), Depends(hold)])
        def book(account: str) -> int:
            accounts.write(account, accounts.read(account) + 1)
            return 1

        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = 4
        responses = await ask(application, ["one"] * 20)
        answered.extend(response.status_code for response in responses)

    with coordlock.connect("memory://starving") as client:
        asyncio.run(main(client))
        assert client.admin.names() == []
    assert set(answered) == {200, 423}
    assert accounts.balances["one"] == answered.count(200)


def test_a_pool_with_a_thread_for_each_waiter_answers_all() -> None:
    names = ["one"] * 100
    accounts = Accounts()

    async def main(client: coordlock.Client) -> list[httpx.Response]:
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = len(names) + 10
        return await ask(locks_by_a_sync_dependency(client, accounts), names)

    with coordlock.connect("memory://roomy") as client:
        check_answers(asyncio.run(main(client)), accounts, names)
        assert client.admin.names() == []
