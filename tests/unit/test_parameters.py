"""The same parameters everywhere: what waits takes a timeout and a cancellation, by these names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
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


@pytest.mark.parametrize(
    ("kind", "wait"),
    [
        ("gate", lambda client: client.gate("g").wait()),
        ("latch", lambda client: client.latch("n", 2).wait()),
        ("barrier", lambda client: client.barrier("b", 2).wait()),
        ("double barrier", lambda client: client.double_barrier("d", 2).enter()),
        ("work queue", lambda client: client.work_queue("w").take()),
        ("election", lambda client: client.election("e").campaign()),
        ("semaphore", lambda client: client.semaphore("s", 1).acquire()),
        ("lock", lambda client: client.lock("l").acquire()),
    ],
)
def test_the_clients_timeout_bounds_every_wait_and_the_error_names_what_was_waited_for(
    kind: str, wait: Any
) -> None:
    with (
        coordlock.connect("memory://timeouts") as other,
        coordlock.connect("memory://timeouts", timeout=0.05) as client,
        other.lock("l"),
        other.semaphore("s", 1),
        other.election("e").campaign(),
    ):
        other.gate("g").shut()
        with pytest.raises(coordlock.WaitTimeout, match=f"^{kind} '.' .* within 0") as caught:
            wait(client)
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("kind", "wait"),
    [
        ("gate", lambda client, stop: client.gate("g").wait(cancellation=stop)),
        ("latch", lambda client, stop: client.latch("n", 2).wait(cancellation=stop)),
        ("barrier", lambda client, stop: client.barrier("b", 2).wait(cancellation=stop)),
        (
            "double barrier",
            lambda client, stop: client.double_barrier("d", 2).enter(cancellation=stop),
        ),
        ("work queue", lambda client, stop: client.work_queue("w").take(cancellation=stop)),
        ("election", lambda client, stop: client.election("e").campaign(cancellation=stop)),
        ("lock", lambda client, stop: client.lock("l").acquire(cancellation=stop)),
        ("counter", lambda client, stop: _second(client.counter("c").observe(), stop)),
    ],
)
def test_a_cancellation_ends_every_wait_and_the_error_names_what_was_waited_for(
    kind: str, wait: Any
) -> None:
    stop = coordlock.Cancellation()
    stop.cancel("enough")
    with (
        coordlock.connect("memory://cancellations") as client,
        client.lock("l"),
        client.election("e").campaign(),
    ):
        client.gate("g").shut()
        with pytest.raises(coordlock.WaitCancelled, match=f"^{kind} '.' .*enough") as caught:
            wait(client, stop)
        assert caught.value.kind == kind


def _second(observer: Any, stop: coordlock.Cancellation) -> None:
    with observer:
        observer.next()
        observer.next(cancellation=stop)
