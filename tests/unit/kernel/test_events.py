"""What is told of a client's sessions and contenders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordlock import AcquireTimeout, Client
from coordlock.kernel.events import (
    ContenderEvent,
    Event,
    Granted,
    Left,
    Lost,
    Queued,
    SessionEnded,
    SessionOpened,
)
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service, no_leaks: None) -> Iterator[Client]:
    with service.client() as client:
        yield client


@pytest.fixture
def told(client: Client) -> list[Event]:
    told: list[Event] = []
    client._engine.listeners.add(told.append)
    return told


def kinds(told: list[Event]) -> list[type[Event]]:
    return [type(event) for event in told]


def test_a_lock_that_is_free_is_granted_and_left(client: Client, told: list[Event]) -> None:
    grant = client.lock("q").acquire()
    grant.release()
    eventually(lambda: len(told) == 2)
    granted, left = told
    assert isinstance(granted, Granted)
    assert isinstance(left, Left)
    assert (granted.name, granted.token, left.id) == ("q", grant.token, granted.id)
    assert left.was_granted
    assert granted.waited >= 0
    assert granted.at <= left.at


def test_a_waiter_is_queued_and_leaves_without_a_grant(
    service: Service, client: Client, told: list[Event]
) -> None:
    with service.client() as other, other.lock("q"), pytest.raises(AcquireTimeout):
        client.lock("q").acquire(0.01)
    eventually(lambda: len(told) == 2)
    queued, left = told
    assert isinstance(queued, Queued)
    assert queued.position == 1
    assert isinstance(left, Left)
    assert not left.was_granted


def test_a_try_that_is_refused_is_told_like_a_wait_of_no_time(
    service: Service, client: Client, told: list[Event]
) -> None:
    with service.client() as other, other.lock("q"):
        assert client.lock("q").try_acquire() is None
    eventually(lambda: len(told) == 2)
    assert kinds(told) == [Queued, Left]


def test_a_session_that_ends_takes_its_grants_along_and_another_is_opened(
    service: Service, client: Client, told: list[Event]
) -> None:
    grant = client.lock("q").acquire()
    service.service.expire(service.service.sessions()[0])
    assert grant.lost.wait(30)
    client.lock("q").acquire().release()
    eventually(lambda: kinds(told)[-1:] == [Left])
    assert kinds(told) == [Granted, SessionEnded, Lost, SessionOpened, Granted, Left]
    contenders = [event for event in told if isinstance(event, ContenderEvent)]
    assert contenders[0].id == contenders[1].id != contenders[2].id


def test_a_listener_that_has_gone_hears_nothing_and_a_failing_one_disturbs_none(
    client: Client, told: list[Event]
) -> None:
    def fail(event: Event) -> None:
        raise ValueError(event)

    ends = [client._engine.listeners.add(fail), client._engine.listeners.add(told.append)]
    client.lock("q").acquire().release()
    eventually(lambda: len(told) == 4)
    for end in ends:
        end()
    client.lock("q").acquire().release()
    eventually(lambda: len(told) == 6)


def test_with_no_listener_no_event_is_made(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordlock.kernel.events.Granted", None)
    monkeypatch.setattr("coordlock.kernel.events.Left", None)
    client.lock("q").acquire().release()
