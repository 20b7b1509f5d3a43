"""A contender whose reply was lost is found again, by the session that owns it and no other."""

from __future__ import annotations

from typing import Any

import pytest

import coordlock
from coordlock.errors import BackendUnavailable
from coordlock.model.contender import Entry
from coordlock.testing.connection import Connection
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from tests.integration.zookeeper.conftest import (
    BOUND,
    Parties,
    Party,
    lose_a_request,
    new_entry,
)

pytestmark = pytest.mark.faults


@pytest.fixture
def proxied(proxied: str) -> str:
    """With sessions whose end is waited for."""
    return proxied.replace("ttl=20s", "ttl=9s")


def lose_a_reply(proxy: FaultProxy, party: Party) -> Entry:
    """Enqueue once; the server makes the contender, the client sees its connection break."""
    entry = new_entry()
    trap = proxy.on_request("create2", Connection.lose_reply)
    with pytest.raises(BackendUnavailable):
        party.backend.enqueue([entry]).result(BOUND)
    assert trap.sprung
    return entry


def test_an_answer_that_is_left_out_ends_the_session_and_is_no_answer(
    proxy: FaultProxy,
    proxied: str,
    root: str,
    parties: Parties,
    kazoo: Any,
) -> None:
    """As by a member that has diverged and fails to write the answer down (kazoo's issue 254)."""
    party = parties(proxied)
    proxy.on_request("create2", Connection.omit_reply)
    with pytest.raises(BackendUnavailable, match="xids do not match"):
        party.backend.enqueue([new_entry()]).result(BOUND)
    assert party.lost.wait(BOUND)
    assert "xids do not match" in party.events[0]
    party.open()
    _, contender, _ = party.enqueue()
    # kazoo's thread is dead, and could not say goodbye: the server waits for a time-to-live.
    eventually(lambda: kazoo.get_children(f"{root}/q") == [contender.key.rpartition("/")[2]])


def test_a_lock_is_acquired_though_an_answer_is_left_out(proxy: FaultProxy, proxied: str) -> None:
    with coordlock.connect(proxied) as client:
        proxy.on_request("create2", Connection.omit_reply)
        with client.lock("q", timeout=BOUND) as grant:
            assert grant.token in [one.token for one in client.admin.contenders("q")]


def test_a_contender_of_an_earlier_session_is_replaced(
    proxy: FaultProxy, proxied: str, root: str, parties: Parties, kazoo: Any
) -> None:
    """A fault test: the reply is lost, then the session, which the server does not know yet."""
    party = parties(proxied)
    entry = lose_a_reply(proxy, party)
    (stale,) = kazoo.get_children(f"{root}/q")
    proxy.black_hole()  # the farewell of the first session must not arrive
    proxy.drop_connections()
    party.opening()
    proxy.heal()
    info = party.open()
    [snapshot] = party.backend.enqueue([entry]).result(BOUND)
    contender = snapshot.find(entry.id)
    assert contender is not None
    assert contender.key != f"{root}/q/{stale}"
    assert contender.session == info.id
    eventually(lambda: kazoo.get_children(f"{root}/q") == [contender.key.rpartition("/")[2]])


def test_a_late_twin_before_the_contender_is_removed(
    proxy: FaultProxy, proxied: str, root: str, parties: Parties, kazoo: Any
) -> None:
    """A create that the server got late stands before the one that replaced it."""
    party = parties(proxied)
    entry, late = lose_a_request(proxy, party, kazoo, root)
    [snapshot] = party.backend.enqueue([entry]).result(BOUND)
    contender = snapshot.find(entry.id)
    assert contender is not None
    twin = late.result(BOUND)
    assert [one.key for one in snapshot.contenders] == [twin, contender.key]
    eventually(lambda: kazoo.exists(twin) is None, "the twin to be removed")
    assert party.ids() == [entry.id]


def test_of_several_twins_the_first_is_adopted_and_the_others_leave(
    proxy: FaultProxy, proxied: str, root: str, parties: Parties, kazoo: Any
) -> None:
    """Several creates took effect late, and no reply came: a try must not find itself blocked."""
    party = parties(proxied)
    entry = lose_a_reply(proxy, party)
    party.recovers()
    [first] = kazoo.get_children(f"{root}/q")
    assert party.backend._current is not None
    own = party.backend._current.session.client
    for _ in range(6):
        own.create(f"{root}/q/{first[:-10]}", b"", sequence=True, ephemeral=True)
    [snapshot] = party.backend.enqueue([entry]).result(BOUND)
    assert [one.key for one in snapshot.contenders] == [f"{root}/q/{first}"]
    eventually(lambda: kazoo.get_children(f"{root}/q") == [first], "the others to leave")


def test_what_is_sent_again_makes_a_queue_that_the_server_has_removed_meanwhile(
    proxy: FaultProxy, proxied: str, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(proxied)
    before, _, _ = party.enqueue()  # the client knows that the queue is there
    assert party.backend.withdraw([before]).result(BOUND)
    entry = new_entry()
    proxy.on_request("create2", Connection.reset)
    with pytest.raises(BackendUnavailable):
        party.backend.enqueue([entry]).result(BOUND)
    party.recovers()
    eventually(lambda: kazoo.exists(f"{root}/q") is None, "the queue to be removed")
    [snapshot] = party.backend.enqueue([entry]).result(BOUND)
    assert [one.id for one in snapshot.contenders] == [entry.id]
