"""Members of groups through outages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordlock.client import Client
from coordlock.errors import AuthenticationFailed, ClientClosed, CoordlockError, NameConflict
from coordlock.kernel.ticket import Ticket
from coordlock.runtime.driver import Call, Steps
from coordlock.runtime.process import PROCESS
from coordlock.testing.lock_service import LockService
from coordlock.testing.waiting import eventually
from tests.unit.clients import Service, backend

#: More than the stack has room for, if each of them began the next.
MANY = 2000
BOUND = 60.0


@pytest.fixture
def other(service: Service) -> Iterator[Client]:
    with service.client() as client:
        yield client


def values(client: Client) -> list[bytes]:
    return [one.value for one in client.group("g").members()]


def test_however_often_a_value_is_set_in_an_outage_the_newest_is_published_after_it(
    client: Client, other: Client
) -> None:
    with client.group("g").keep_joined(b"first") as presence:
        faults = backend(client).faults
        faults.partition()
        for number in range(MANY):
            presence.publish(b"%d" % number)
        faults.heal()
        eventually(lambda: values(other) == [b"%d" % (MANY - 1)])
        presence.publish(b"last")
        eventually(lambda: values(other) == [b"last"])


def test_a_presence_is_the_parents_in_a_forked_child(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.group("g").keep_joined(b"first") as presence:
        with monkeypatch.context() as child:
            child.setattr(PROCESS, "id", -1)
            in_child = presence.is_member
            assert not in_child
            with pytest.raises(ClientClosed):
                presence.publish(b"the child's")
            presence.leave()
        assert presence.is_member
        assert presence.value == b"first"
        assert values(other) == [b"first"]


def test_a_value_that_nobody_would_publish_is_refused(service: Service) -> None:
    with service.client() as ending:
        presence = ending.group("g").keep_joined(b"first")
    with pytest.raises(ClientClosed):
        presence.publish(b"late")
    assert presence.value == b"first"


@pytest.mark.parametrize(
    "error",
    [NameConflict("g", "a group", "a semaphore", ""), AuthenticationFailed("etcd", "no right")],
)
def test_a_presence_asks_less_and_less_often_while_a_refusal_lasts_and_joins_again_after_it(
    caplog: pytest.LogCaptureFixture, error: CoordlockError
) -> None:
    caplog.set_level("WARNING", "coordlock")
    with (
        LockService() as service,
        service.connect() as client,
        client.group("g").keep_joined(b"first") as presence,
    ):
        join = presence._join

        def refuse(value: bytes) -> Steps[Ticket]:
            yield Call
            raise error

        setattr(presence, "_join", refuse)  # noqa: B010 - it is final
        service.lose("g")

        def refused() -> int:
            return sum("could not join again" in one.message for one in caplog.records)

        eventually(lambda: refused() == 1)
        for _ in range(600):
            service.advance(1)
        eventually(lambda: refused() >= 14)
        assert refused() <= 16  # each second, it would be 600
        setattr(presence, "_join", join)  # noqa: B010
        service.advance(61)
        eventually(lambda: presence.is_member)
