from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Iterator
from fractions import Fraction
from typing import Any

import pytest

from coordlock import DEFAULT, AcquireTimeout, Client, LockLost, Mode, Settings
from coordlock.kernel.access import Access
from coordlock.kernel.engine import Engine
from coordlock.types import Permit
from tests.unit.clients import Service


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service, no_leaks: None) -> Iterator[Client]:
    with service.client() as client:
        yield client


@pytest.mark.parametrize(
    ("make", "claim"),
    [
        (lambda client: client.lock("q"), Mode.EX),
        (lambda client: client.lock("q", mode=Mode.PW), Mode.PW),
        (lambda client: client.read_lock("q"), Mode.PR),
        (lambda client: client.write_lock("q"), Mode.EX),
        (lambda client: client.semaphore("q", 3), Permit(3)),
    ],
)
def test_a_lock_asks_for_what_it_was_made_for(client: Client, make: Any, claim: object) -> None:
    lock = make(client)
    assert lock.claim == claim
    with lock as grant:
        assert grant.claim == claim
        assert [one.claim for one in lock.contenders()] == [claim]


# Timeouts


def test_the_nearest_timeout_counts(service: Service) -> None:
    engine = service.engine()
    client = Client._of(Access(Engine(engine.backend, Settings("memory", timeout=7.0))))
    assert client.lock("q").timeout == 7.0
    assert client.lock("q", timeout=DEFAULT).timeout == 7.0
    assert client.lock("q", timeout=3).timeout == 3
    assert client.lock("q", timeout=None).timeout is None
    assert client.lock("q", timeout=math.inf).timeout is None
    assert client.lock("q", timeout=0).timeout == 0
    client.close()
    Client._of(Access(engine)).close()


@pytest.mark.parametrize(
    "timeout", [-1, -0.001, math.nan, -math.inf, "five", b"5", True, False, []]
)
def test_a_timeout_that_is_none_is_refused_wherever_it_is_given(
    client: Client, timeout: Any
) -> None:
    with pytest.raises(ValueError, match="timeout"):
        client.lock("q", timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        client.lock("q").acquire(timeout)
    assert client.admin.names() == []


@pytest.mark.parametrize("timeout", [0.01, Fraction(1, 100), 0.0, 0])
def test_any_kind_of_number_is_a_timeout(client: Client, timeout: Any) -> None:
    with client.lock("q"), pytest.raises(AcquireTimeout):
        client.lock("q").acquire(timeout)


@pytest.mark.parametrize("timeout", [1e12, 1e300])
def test_a_very_long_timeout_is_one(client: Client, timeout: Any) -> None:
    assert client.lock("q").acquire(timeout).release()


def test_a_with_block_takes_the_locks_timeout(client: Client) -> None:
    with client.lock("q"), pytest.raises(AcquireTimeout), client.lock("q", timeout=0):
        pytest.fail("entered")


# Decorators


def test_a_decorated_function_keeps_its_face_and_its_results(client: Client) -> None:
    @client.lock("q")
    def add(one: int, *, other: int = 2) -> int:
        """Add."""
        assert len(client.admin.contenders("q")) == 1
        return one + other

    assert (add.__name__, add.__doc__) == ("add", "Add.")
    assert str(inspect.signature(add)) == "(one: 'int', *, other: 'int' = 2) -> 'int'"
    assert add(1, other=4) == 5
    assert add(1) == 3
    assert client.admin.contenders("q") == ()


def test_a_decorated_function_whose_lock_was_lost_raises(service: Service, client: Client) -> None:
    @client.lock("q")
    def lose() -> int:
        service.evict("q")
        return 1

    with pytest.raises(LockLost):
        lose()


async def coroutine() -> None:
    pass


async def async_generator() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [coroutine, async_generator, generator])
def test_a_sync_lock_refuses_functions_whose_bodies_run_later(
    client: Client, function: Any
) -> None:
    with pytest.raises(TypeError):
        client.lock("q")(function)


@pytest.mark.parametrize("function", [async_generator, generator, len])
def test_an_async_lock_refuses_all_but_coroutine_functions(function: Any) -> None:
    async def main() -> None:
        async with Service().async_client() as client:
            with pytest.raises(TypeError):
                client.lock("q")(function)

    asyncio.run(main())


def test_a_decorated_coroutine_runs_under_the_lock() -> None:
    async def main() -> None:
        async with Service().async_client() as client:
            inside, most = 0, 0

            @client.lock("q", timeout=60)
            async def work(number: int) -> int:
                nonlocal inside, most
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
                return number

            assert await asyncio.gather(*map(work, range(10))) == list(range(10))
            assert most == 1
            assert inspect.iscoroutinefunction(work)

    asyncio.run(main())


# One lock object for many


def test_a_lock_is_usable_after_its_session_was_lost(service: Service, client: Client) -> None:
    lock = client.lock("q")
    first = lock.acquire()
    service.service.expire(service.service.sessions()[0])
    assert first.lost.wait(30)
    with lock as second:
        assert second.token > first.token
        second.check()
