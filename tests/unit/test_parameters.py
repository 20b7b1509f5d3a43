"""The same parameters everywhere: what waits takes a timeout and a cancellation, by these names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import coordlock
from coordlock.settings import DEFAULT
from tests.unit.test_api import TWINS, members

#: What waits for other clients, by the classes that have it.
WAITING = {
    "acquire": {"UpgradeableLock", "Lock", "MultiLock", "ReentrantLock"},
    "campaign": {"Election"},
    "enter": {"DoubleBarrier"},
    "leave": {"DoubleBarrier"},
    "next": {"Observer"},
    "take": {"WorkQueue"},
    "upgrade": {"UpgradeableGrant"},
    "wait": {"Barrier", "Gate", "Latch"},
}
#: A loop over changes waits for as long as there are none, whatever the client's timeout.
FOR_EVER = {"next"}
#: It leaves the group for good, and waits for no member.
NO_WAIT = {("Presence", "leave")}
#: These are events, as threading's and asyncio's: what they wait for is the end of a grant.
EVENTS = {"Signal"}


def waiting() -> Iterator[Any]:
    for pair in TWINS:
        for kind in pair:
            for name, method in members(kind).items():
                plain = kind.__name__.removeprefix("Async")
                if name in WAITING and (plain, name) not in NO_WAIT and plain not in EVENTS:
                    yield pytest.param(plain, name, method, id=f"{kind.__name__}.{name}")


def makers() -> Iterator[Any]:
    for client in (coordlock.Client, coordlock.AsyncClient):
        for name, method in members(client).items():
            if inspect.isfunction(method) and "timeout" in inspect.signature(method).parameters:
                yield pytest.param(method, id=f"{client.__name__}.{name}")


@pytest.mark.parametrize(("kind", "name", "method"), list(waiting()))
def test_what_waits_takes_a_timeout_and_a_cancellation(kind: str, name: str, method: Any) -> None:
    assert kind in WAITING[name], "name it in WAITING"
    parameters = inspect.signature(method).parameters
    assert parameters["timeout"].default is (None if name in FOR_EVER else DEFAULT)
    assert parameters["timeout"].kind is not inspect.Parameter.VAR_KEYWORD
    assert parameters["cancellation"].default is None
    assert parameters["cancellation"].kind is inspect.Parameter.KEYWORD_ONLY


def test_everything_that_waits_is_looked_at() -> None:
    found: dict[str, set[str]] = {}
    for one in waiting():
        kind, name, _ = one.values
        found.setdefault(str(name), set()).add(str(kind))
    assert found == WAITING


@pytest.mark.parametrize("method", list(makers()))
def test_what_a_client_makes_has_the_clients_timeout_and_hold_by_default(method: Any) -> None:
    parameters = inspect.signature(method).parameters
    for name in ("timeout", "max_hold"):
        if name in parameters:
            assert parameters[name].default is DEFAULT
            assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    for name in ("label", "cancellation"):
        if name in parameters:
            assert parameters[name].default is None
            assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


Wait = Callable[..., object]

#: Waits in vain by what is waited for, with a client's timeout or a cancellation.
WAITS: dict[str, Wait] = {
    "gate": lambda client, **how: client.gate("g").wait(**how),
    "latch": lambda client, **how: client.latch("n", 2).wait(**how),
    "barrier": lambda client, **how: client.barrier("b", 2).wait(**how),
    "double barrier": lambda client, **how: client.double_barrier("d", 2).enter(**how),
    "work queue": lambda client, **how: client.work_queue("w").take(**how),
    "election": lambda client, **how: client.election("e").campaign(**how),
    "semaphore": lambda client, **how: client.semaphore("s", 1).acquire(**how),
    "lock": lambda client, **how: client.lock("l").acquire(**how),
}


@pytest.fixture
def busy() -> Iterator[None]:
    """A service on which each of the waits is in vain."""
    with (
        coordlock.connect("memory://waits") as other,
        other.lock("l"),
        other.semaphore("s", 1),
        other.election("e").campaign(),
    ):
        other.gate("g").shut()
        yield


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(("kind", "wait"), WAITS.items())
def test_the_clients_timeout_bounds_every_wait_and_the_error_names_what_was_waited_for(
    kind: str, wait: Wait
) -> None:
    with coordlock.connect("memory://waits", timeout=0.5) as client:
        with pytest.raises(coordlock.WaitTimeout, match=f"^{kind} '.' .* within ") as caught:
            wait(client)
        assert caught.value.kind == kind


def second(client: coordlock.Client, cancellation: coordlock.Cancellation) -> None:
    with client.counter("c").observe() as numbers:
        numbers.next()
        numbers.next(cancellation=cancellation)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(("kind", "wait"), [*WAITS.items(), ("counter", second)])
def test_a_cancellation_ends_every_wait_and_the_error_names_what_was_waited_for(
    kind: str, wait: Wait
) -> None:
    stop = coordlock.Cancellation()
    stop.cancel("enough")
    with coordlock.connect("memory://waits") as client:
        with pytest.raises(coordlock.WaitCancelled, match=f"^{kind} '.' .*enough") as caught:
            wait(client, cancellation=stop)
        assert caught.value.kind == kind
