"""Contenders as znodes: one round trip, parents that come and go, order, tokens."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from coordlock.backend import Departure
from coordlock.model.claim import Mode, Permit
from coordlock.testing.connection import Connection
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.order import is_told_in_order
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.zookeeper.conftest import BOUND, OWNER, Parties, lose_a_request, new_entry


def test_the_contender_is_an_ephemeral_sequential_node_with_its_owner(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(root))
    entry, contender, _ = party.enqueue("a/b")
    assert contender.key == f"{root}/a%2Fb/{entry.id}__lock__0000000000"
    data, stat = kazoo.get(contender.key)
    assert data == OWNER.encode()
    assert contender.token == stat.czxid
    assert contender.session == f"{stat.ephemeralOwner % 2**64:#x}"


def test_enqueueing_is_one_round_trip_even_with_new_parents(
    proxy: FaultProxy, proxied: str, parties: Parties
) -> None:
    party = parties(proxied)
    proxy.replies.black_hole()
    with proxy.counting() as sent:
        answer = party.backend.enqueue([new_entry()])
        # All of it is sent, though nothing is answered.
        eventually(lambda: proxy.counts().requests["getChildren2"] == 1)
        assert not answer.done()
    assert sent.requests == {"create": 1, "createContainer": 1, "create2": 1, "getChildren2": 1}
    proxy.heal()
    [snapshot] = answer.result(BOUND)
    assert len(snapshot.contenders) == 1


def test_a_second_contender_of_a_known_queue_costs_two_requests(
    proxy: FaultProxy, proxied: str, parties: Parties
) -> None:
    party = parties(proxied)
    party.enqueue()
    with proxy.counting() as sent:
        entry, *_ = party.enqueue()
    assert sent.requests == {"create2": 1, "getChildren2": 1}
    with proxy.counting() as sent:
        assert party.backend.withdraw([entry]).result(BOUND)
    assert sent.requests == {"delete": 1}


def test_a_contender_that_a_lost_attempt_left_behind_goes_though_its_removal_is_lost_too(
    proxy: FaultProxy, proxied: str, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(proxied)
    party.enqueue()
    entry, late = lose_a_request(proxy, party, kazoo, root)
    trap = proxy.on_request("delete", Connection.lose_request)
    [snapshot] = party.backend.enqueue([entry]).result(BOUND)
    twin = late.result(BOUND)
    contender = snapshot.find(entry.id)
    assert contender is not None
    eventually(lambda: trap.sprung)
    assert kazoo.exists(twin)
    party.recovers()
    eventually(lambda: not kazoo.exists(twin))
    assert kazoo.exists(contender.key)
    with proxy.counting() as sent:
        party.backend.heartbeat().result(BOUND)
    assert sent.requests["delete"] == 0


def test_the_parent_of_an_unused_queue_is_removed_and_made_again(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(root))
    entry, before, _ = party.enqueue()
    assert party.backend.withdraw([entry]).result(BOUND)
    eventually(lambda: kazoo.exists(f"{root}/q") is None, "the container to be reaped")
    _, after, snapshot = party.enqueue()
    assert snapshot.contenders == (after,)
    assert before.order == after.order == 0
    assert before.token is not None
    assert after.token is not None
    assert after.token > before.token


def test_a_deleted_root_is_made_again(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(f"{root}/deep/er"))
    entry, *_ = party.enqueue()
    party.backend.withdraw([entry]).result(BOUND)
    kazoo.delete(root, recursive=True)
    _, contender, snapshot = party.enqueue()
    assert snapshot.contenders == (contender,)


def test_other_programs_contenders_count_and_other_children_do_not(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(root))
    kazoo.ensure_path(f"{root}/q")
    curator = kazoo.create(f"{root}/q/_c_0a1b-lock-", b"jvm-17", ephemeral=True, sequence=True)
    reader = kazoo.create(f"{root}/q/_c_0a1b-__READ__", ephemeral=True, sequence=True)
    kazoo.create(f"{root}/q/leases", b"")
    _, contender, _ = party.enqueue(claim=Permit(9))
    seen = party.backend.snapshot("q", owners=True).result(BOUND).contenders
    assert [one.key for one in seen] == [curator, reader, contender.key]
    assert [one.claim for one in seen] == [Mode.EX, Mode.PR, Permit(9)]
    assert str(seen[0].owner) == "jvm-17"


@pytest.mark.parametrize("made_by", ["Curator", "coordlock"])
def test_the_queue_is_read_when_a_writer_of_curators_has_left(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any, made_by: str
) -> None:
    """Its thread may have taken the read lock, too, at the writer's own place."""
    party = parties(zookeeper.url_for(root))
    guid = uuid.uuid4()
    stem = f"_c_{guid if made_by == 'Curator' else guid.hex}-__WRIT__"
    path = kazoo.create(f"{root}/q/{stem}", ephemeral=True, sequence=True, makepath=True)
    writer, mine = party.enqueue()[2].contenders
    told: Future[Departure] = Future()
    party.backend.watch(mine, 0, lambda _: None)
    eventually(lambda: is_told_in_order(party.backend, mine))
    party.backend.watch(writer, 0, told.set_result, waiters=[mine])
    kazoo.delete(path)
    assert (told.result(BOUND) is Departure.IN_ORDER) is (made_by == "coordlock")


def test_a_queue_that_may_not_be_read_is_listed(
    zookeeper: ZooKeeper, root: str, parties: Parties, kazoo: Any
) -> None:
    party = parties(zookeeper.url_for(root))
    kazoo.ensure_path(root)
    kazoo.create(f"{root}/secret", acl=[make_digest_acl("somebody", "else", all=True)])
    assert party.backend.queues().result(BOUND) == ["secret"]
