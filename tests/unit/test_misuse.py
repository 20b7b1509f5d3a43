"""Uses that look right and are not: each is refused, or does what its reader expects."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import pytest

import coordlock
from coordlock import Client, LockLost
from coordlock.fencing import MemoryFence
from coordlock.fencing.http import FencingMiddleware, WSGIFencingMiddleware
from coordlock.jobs.view import queue_of
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service, backend

pytestmark = pytest.mark.usefixtures("no_leaks")


class Coroutine:
    async def __call__(self, *args: object) -> None:
        """Do not."""


def hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    """As a decorator of another library does."""

    def wrapper(*args: object) -> Any:
        return function(*args)

    return wrapper


async def coroutine(*args: object) -> None:
    """Do not."""


def generator(*args: object) -> Iterator[None]:
    yield


async def async_generator(*args: object) -> Any:
    yield


BARE: list[Any] = [coroutine, generator, async_generator]
#: Functions whose body runs after the call.
LAZY = [
    *BARE,
    Coroutine(),
    *(functools.partial(one) for one in [*BARE, Coroutine()]),
    functools.partial(functools.partial(generator)),
]
#: The same, where only the call shows it.
HIDDEN = [hidden(one) for one in BARE]


def guarded(client: Client, function: Any) -> None:
    MemoryFence().guard("q", 1)(function)()


#: Each place of the public API for a function of the user's, and that function's way to its call.
PLACES: dict[str, Callable[[Client, Any], object]] = {
    "lock": lambda client, function: client.lock("q")(function)(),
    "multi_lock": lambda client, function: client.multi_lock(["q", "r"])(function)(),
    "reentrant_lock": lambda client, function: client.reentrant_lock("q")(function)(),
    "lock_by": lambda client, function: client.lock_by(lambda: "q")(function)(),
    "election": lambda client, function: client.election("e").run(function),
    "update": lambda client, function: client.value("/x").update(function),
    "guard": guarded,
}


@pytest.mark.parametrize("function", [*LAZY, *HIDDEN])
@pytest.mark.parametrize("place", PLACES)
def test_a_function_whose_body_would_run_too_late_is_refused_by_name(
    client: Client, place: str, function: Any
) -> None:
    with pytest.raises(TypeError, match=r"makes a (coroutine|generator), .*: \w+"):
        PLACES[place](client, function)
    assert client.admin.names() == []


@pytest.mark.parametrize("function", LAZY)
def test_a_callback_that_could_not_run_is_refused_at_once(client: Client, function: Any) -> None:
    with client.lock("q") as grant:
        for place in (
            grant.on_lost,
            grant.on_release_requested,
            client.lock_by,
            lambda resource: FencingMiddleware(coroutine, None, resource=resource),
            lambda resource: WSGIFencingMiddleware(lambda *_: [], None, resource=resource),
        ):
            with pytest.raises(TypeError, match=r"makes a (coroutine|generator), .*: \w+"):
                place(function)
        with pytest.raises(TypeError, match="a function of the grant, not None"):
            grant.on_lost(None)  # type: ignore[arg-type]  # on purpose


def test_asyncio_decorates_whatever_is_awaited_and_refuses_the_rest() -> None:
    async def main() -> None:
        async with coordlock.connect_async("memory://misuse") as client:
            ran: list[str] = []

            class Work:
                async def __call__(self, *args: object) -> None:
                    ran.append(repr(await client.admin.names()))

            for work in (Work(), functools.partial(Work()), Work().__call__):
                await client.lock("q")(work)()
                await client.lock_by(lambda: "q")(work)()
            assert ran == ["['q']"] * 6
            decorators: list[Any] = [client.lock("q"), client.lock_by(lambda: "q")]
            for decorate in decorators:
                for wrong in (
                    generator,
                    functools.partial(async_generator),
                    len,
                    hidden(coroutine),
                ):
                    with pytest.raises(TypeError, match=r"makes a generator|not a coroutine func"):
                        decorate(wrong)
            bodies: list[Any] = [generator, async_generator, lambda term: None]
            for wrong in bodies:
                with pytest.raises(TypeError, match="lead must be a coroutine function"):
                    await client.election("e").run(wrong)
            assert await client.admin.names() == []

    asyncio.run(main())


def test_a_signal_is_true_once_it_is_set(service: Service, client: Client) -> None:
    with client.lock("q").acquire() as grant:
        assert not grant.lost
        assert not grant.release_requested
        client.admin.request_release("q", "please")
        eventually(lambda: bool(grant.release_requested))
    term = client.election("e").campaign()
    assert not term.lost
    client.admin.evict(client.admin.contenders("e")[0])
    eventually(lambda: bool(term.lost))


@pytest.mark.parametrize("what", [None, "text", int])
def test_a_lock_decorates_nothing_but_functions(client: Client, what: Any) -> None:
    with pytest.raises(TypeError, match="a lock decorates functions"):
        client.lock("q")(what)


def test_a_grant_that_is_entered_is_not_entered_again_and_stays_held(client: Client) -> None:
    with client.lock("q") as grant:
        with pytest.raises(RuntimeError, match="entered already"), grant:
            raise AssertionError("unreachable")
        grant.check()
    with client.lock("r").acquire() as grant:
        with pytest.raises(RuntimeError, match="entered already"), grant:
            raise AssertionError("unreachable")
        grant.check()
    with pytest.raises(LockLost), grant:
        raise AssertionError("unreachable")


def test_a_grant_is_converted_by_one_call_at_a_time(client: Client) -> None:
    reader, grant = client.read_lock("q").acquire(), client.upgradeable_lock("q").acquire()
    with ThreadPoolExecutor() as pool:
        upgrade = pool.submit(grant.upgrade)
        eventually(lambda: any(one.converting_to for one in client.admin.contenders("q")))
        with pytest.raises(RuntimeError, match="is being upgraded already"):
            grant.upgrade()
        reader.release()
        upgrade.result(30)
    grant.release()


def test_the_start_of_a_job_is_entered_once_also_while_it_waits(client: Client) -> None:
    with ThreadPoolExecutor() as pool:
        with client.job("j").run(1):
            start = client.job("j", overlap="queue", timeout=30).run(2)
            waiting = pool.submit(start.__enter__)
            queue = functools.partial(backend(client).snapshot, queue_of("j"))
            eventually(lambda: len(queue().result(30).contenders) == 2)
            with pytest.raises(RuntimeError, match="entered before"):
                start.__enter__()
        waiting.result(30)
    start.__exit__(None, None, None)
    assert [slot.state for slot in client.job("j").info().slots] == ["done", "done"]


def test_a_wait_of_centuries_is_a_long_wait(client: Client) -> None:
    grant = client.lock("q").acquire()
    threading.Timer(0.05, grant.release).start()
    assert not grant.lost.wait(1e10)


def test_a_connection_is_awaited_once(service: Service) -> None:
    async def twice() -> None:
        connecting = coordlock.connect_async("memory://")
        async with connecting as client:
            with pytest.raises(RuntimeError, match="once more"):
                await connecting
            assert not await client.admin.names()

    asyncio.run(twice())


def test_a_connection_that_nobody_awaited_says_so() -> None:
    connecting = coordlock.connect_async("memory://")
    with pytest.raises(AttributeError, match=r"await the client first, client = await"):
        connecting.lock("q")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"attribute 'nonsense'$"):
        _ = connecting.nonsense  # type: ignore[attr-defined]
    assert not hasattr(connecting, "lock")


def test_a_lock_that_is_asked_for_what_a_grant_has_says_so(client: Client) -> None:
    locks: list[Any] = [client.lock("q"), client.reentrant_lock("q"), client.multi_lock(["q"])]
    locks.append(coordlock.AsyncClient("memory://").lock("q"))
    for lock in locks:
        with pytest.raises(AttributeError, match=r"the grant that acquire\(\) returns has it"):
            lock.release()
        with pytest.raises(AttributeError, match=r"attribute 'nonsense'$"):
            _ = lock.nonsense
        assert not hasattr(lock, "token")


def test_a_loss_behind_raise_from_none_is_a_note(service: Service, client: Client) -> None:
    def fail() -> None:
        with client.lock("q") as grant:
            client.admin.evict(client.admin.contenders("q")[0])
            assert grant.lost.wait(30)
            try:
                raise KeyError("inner")
            except KeyError:
                raise ValueError("outer") from None

    with pytest.raises(ValueError, match="outer") as caught:
        fail()
    assert "lock 'q'" in caught.value.__notes__[0]


def test_the_losses_of_two_locks_are_both_told(service: Service, client: Client) -> None:
    def fail() -> None:
        with client.lock("p") as p, client.lock("q") as q:
            service.service.expire(service.service.sessions()[0])
            assert p.lost.wait(30)
            assert q.lost.wait(30)

    with pytest.raises(LockLost, match="lock 'q'") as caught:
        fail()
    before = caught.value.__context__
    assert isinstance(before, LockLost)
    assert before.name == "p"


def test_an_error_whose_contexts_make_a_circle_is_raised_with_a_note(
    service: Service, client: Client
) -> None:
    def fail() -> None:
        with client.lock("q") as grant:
            service.service.expire(service.service.sessions()[0])
            assert grant.lost.wait(30)
            one, two = ValueError("one"), ValueError("two")
            one.__context__, two.__context__ = two, one
            raise one

    with pytest.raises(ValueError, match="one") as caught:
        fail()
    assert "lock 'q'" in caught.value.__notes__[0]


#: As Python itself says it, before 3.14 and from then on.
USE_WITH, USE_ASYNC_WITH = "asynchronous context manager", "does not support the context manager"
SYNC: list[Callable[[Client], Any]] = [
    lambda client: client,
    lambda client: client.lock("a"),
    lambda client: client.multi_lock(["a", "b"]),
    lambda client: client.lock("a").acquire(),
    lambda client: client.double_barrier("a", 2),
    lambda client: client.group("a").keep_joined(b""),
    lambda client: client.group("a").observe(),
]


@pytest.mark.parametrize("make", SYNC)
def test_async_with_at_what_is_for_threads_is_refused_before_anything_is_entered(
    client: Client, make: Callable[[Client], Any]
) -> None:
    async def enter() -> None:
        async with make(client):
            """Nothing gets here."""

    with pytest.raises(TypeError, match=USE_WITH):
        asyncio.run(enter())
    client.admin.evict_all("a")


def test_with_at_what_is_for_asyncio_is_refused_before_anything_is_entered() -> None:
    async def enter(thing: Any) -> None:
        with pytest.raises(TypeError, match=USE_ASYNC_WITH), thing:
            """Nothing gets here."""

    async def main() -> None:
        await enter(coordlock.connect_async("memory://mixed"))
        async with coordlock.connect_async("memory://mixed") as client:
            await enter(client)
            await enter(client.lock("a"))
            async with client.lock("a") as grant:
                await enter(grant)
            await enter(client.multi_lock(["a", "b"]))
            await enter(client.group("a").observe())

    asyncio.run(main())


def test_nothing_passes_for_a_context_manager_of_the_other_kind(client: Client) -> None:
    """As containers for dependencies ask, to enter what they have made."""

    async def main() -> None:
        async with coordlock.connect_async("memory://") as other:
            for thing in (other, other.lock("a"), other.group("a").observe()):
                assert isinstance(thing, AbstractAsyncContextManager)
                assert not isinstance(thing, AbstractContextManager)
                assert not hasattr(thing, "__enter__")

    for make in SYNC:
        thing = make(client)
        assert isinstance(thing, AbstractContextManager)
        assert not isinstance(thing, AbstractAsyncContextManager)
        assert not hasattr(thing, "__aenter__")
        client.admin.evict_all("a")
    asyncio.run(main())


def test_an_async_client_without_a_loop_of_asyncio_says_so() -> None:
    """As under trio, whose coroutines are not asyncio's."""
    with pytest.raises(RuntimeError, match=r"no event loop of asyncio .* trio\.to_thread"):
        coordlock.AsyncClient("memory://trio").admin.names().send(None)
