"""Whose a lock is, where a request moves between the threads of a pool, or between tasks.

FastAPI enters a sync dependency in one thread of its pool and leaves it in another, each in a copy
of the request's context. Between the two, the first thread serves other requests.
"""

# No annotations from the future: FastAPI reads those of functions that are made in here.
import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Annotated, Any

import anyio.to_thread
import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.responses import JSONResponse, Response

import coordlock
from coordlock import DeadlockDetected

#: So long may all requests of a test take on a machine that is busy.
PATIENCE = 60.0
#: Seconds until a waiter looks for a deadlock.
DELAY = 0.2


async def until(is_true: Callable[[], object]) -> None:
    """Wait until ``is_true``, and let the loop go on meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def ask(application: FastAPI, paths: list[str]) -> list[httpx.Response]:
    """The responses to all of ``paths``, asked for at once."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://bank", timeout=PATIENCE
    ) as http:
        return await asyncio.gather(*map(http.get, paths))


def limit_threads(number: int) -> None:
    anyio.to_thread.current_default_thread_limiter().total_tokens = number


def test_a_thread_that_entered_another_requests_lock_is_in_no_deadlock() -> None:
    """Each of two threads waits for what the other one has entered, for a request that moved on."""

    async def main(client: coordlock.Client) -> None:
        application = FastAPI()
        finish, both = asyncio.Event(), threading.Barrier(2)
        entered: dict[int, str] = {}

        def first() -> Iterator[coordlock.Grant]:
            both.wait(PATIENCE)  # so that each has a thread of its own
            name = entered[threading.get_ident()] = f"account/{threading.get_ident()}"
            with client.lock(name, timeout=PATIENCE) as grant:
                yield grant

        @application.get("/first")
        async def hold(grant: Annotated[coordlock.Grant, Depends(first)]) -> None:
            await finish.wait()

        def second() -> Iterator[coordlock.Grant]:
            both.wait(PATIENCE)
            (name,) = (name for thread, name in entered.items() if thread != threading.get_ident())
            with client.lock(name, timeout=PATIENCE) as grant:
                yield grant

        @application.get("/second")
        def then(grant: Annotated[coordlock.Grant, Depends(second)]) -> None:
            grant.check()

        limit_threads(2)
        holding = asyncio.create_task(ask(application, ["/first", "/first"]))
        await until(
            lambda: len(entered) == 2 and all(map(client.admin.contenders, entered.values()))
        )
        waiting = asyncio.create_task(ask(application, ["/second", "/second"]))
        await until(
            lambda: all(len(client.admin.contenders(name)) == 2 for name in entered.values())
        )
        await asyncio.sleep(5 * DELAY)
        assert client.admin.deadlocks() == ()
        finish.set()
        assert [one.status_code for one in await holding + await waiting] == [200] * 4

    with coordlock.connect("memory://moved-on", deadlock_delay=DELAY) as client:
        asyncio.run(main(client))


def test_a_request_never_enters_the_reentrant_lock_of_another() -> None:
    """Even on the thread that has acquired it, for a request that has moved on."""
    inside: list[int] = []
    most: list[int] = []

    async def main(client: coordlock.Client) -> None:
        application = FastAPI()

        def hold() -> Iterator[coordlock.Grant]:
            lock = client.reentrant_lock("account", timeout=PATIENCE)
            with lock as grant, lock:  # the request itself may enter it again
                yield grant

        @application.get("/book")
        async def book(grant: Annotated[coordlock.Grant, Depends(hold)]) -> int:
            inside.append(grant.token)
            most.append(len(inside))
            await asyncio.sleep(0.05)
            inside.remove(grant.token)
            return grant.token

        limit_threads(1)
        responses = await ask(application, ["/book"] * 5)
        assert len({response.json() for response in responses}) == 5

    with coordlock.connect("memory://not-mine") as client:
        asyncio.run(main(client))
    assert most == [1] * 5


@pytest.mark.parametrize("started", [False, True], ids=["", "after the loop's thread has acquired"])
def test_a_task_never_enters_a_reentrant_lock_of_the_sync_client_that_another_holds(
    started: bool,
) -> None:
    """Both run in the thread of the loop."""

    async def main() -> None:
        application = FastAPI()

        @application.get("/try")
        async def book() -> bool:
            with client.reentrant_lock("account").try_acquire() or ExitStack() as grant:
                await asyncio.sleep(0.05)
                return isinstance(grant, coordlock.Grant)

        answers = [one.json() for one in await ask(application, ["/try"] * 3)]
        assert sorted(answers) == [False, False, True]

    with coordlock.connect("memory://loop") as client:
        if started:
            client.lock("migration").acquire().release()
        asyncio.run(main())


# Deadlocks that are some


def deadlocked(locks: Callable[[str], Any]) -> list[str]:
    """What becomes of two threads that take two locks in opposite order, by ``locks(name)``."""
    both, ends = threading.Barrier(2), []

    def work(one: str, other: str) -> None:
        try:
            with locks(one):
                both.wait(PATIENCE)
                with locks(other):
                    ends.append("both")
        except DeadlockDetected:
            ends.append("victim")

    threads = [threading.Thread(target=work, args=names) for names in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return sorted(ends)


def test_a_deadlock_through_context_managers_stacks_and_decorators_is_found() -> None:
    with coordlock.connect("memory://found", deadlock_delay=DELAY, timeout=PATIENCE) as client:

        @contextmanager
        def generator(name: str) -> Iterator[coordlock.Grant]:
            with client.lock(name) as grant:
                yield grant

        @contextmanager
        def stack(name: str) -> Iterator[None]:
            with ExitStack() as locks:
                locks.enter_context(client.lock(name))
                yield

        for locks in (client.lock, generator, stack):
            assert deadlocked(locks) == ["both", "victim"]

        both = threading.Barrier(2)

        def nested(one: str, other: str) -> str:
            @client.lock(one)
            def outer() -> str:
                both.wait(PATIENCE)
                return inner()

            @client.lock(other)
            def inner() -> str:
                return "both"

            try:
                return outer()
            except DeadlockDetected:
                return "victim"

        ends: list[str] = []
        threads = [
            threading.Thread(target=lambda names=names: ends.append(nested(*names)))
            for names in (("a", "b"), ("b", "a"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(ends) == ["both", "victim"]


def test_a_deadlock_between_the_async_dependencies_of_two_requests_is_found() -> None:
    async def main() -> None:
        application = FastAPI()
        both = asyncio.Barrier(2)
        url = "memory://dependencies"
        async with coordlock.connect_async(url, deadlock_delay=DELAY) as client:

            async def outer(one: str) -> AsyncIterator[None]:
                async with client.lock(one, timeout=PATIENCE):
                    await both.wait()
                    yield

            async def inner(other: str) -> AsyncIterator[None]:
                async with AsyncExitStack() as locks:
                    await locks.enter_async_context(client.lock(other, timeout=PATIENCE))
                    yield

            @application.exception_handler(DeadlockDetected)
            async def conflict(request: Any, error: Exception) -> Response:
                return JSONResponse(str(error), status_code=409)

            @application.get("/{one}/{other}", dependencies=[Depends(outer), Depends(inner)])
            async def book(one: str, other: str) -> None:
                pass

            responses = await ask(application, ["/a/b", "/b/a"])
            assert sorted(one.status_code for one in responses) == [200, 409]

    asyncio.run(main())


def test_a_deadlock_through_coroutine_decorators_and_async_generators_is_found() -> None:
    async def main() -> list[str]:
        url = "memory://coroutines"
        async with coordlock.connect_async(url, deadlock_delay=DELAY, timeout=PATIENCE) as client:
            both = asyncio.Barrier(2)

            @asynccontextmanager
            async def generator(name: str) -> AsyncIterator[None]:
                async with client.lock(name):
                    yield

            async def work(one: str, other: str) -> str:
                @client.lock(one)
                async def outer() -> str:
                    await both.wait()
                    async with generator(other):
                        return "both"

                try:
                    return await outer()
                except DeadlockDetected:
                    return "victim"

            return sorted(await asyncio.gather(work("a", "b"), work("b", "a")))

    assert asyncio.run(main()) == ["both", "victim"]
