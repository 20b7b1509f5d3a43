"""What happens after two thousand million contenders of one queue, on a server that counts on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coordlock_zookeeper import nodes

from coordlock.errors import BackendUnavailable
from testbed.servers.zookeeper import ZooKeeperServer
from tests.integration.zookeeper.conftest import BOUND, Parties, new_entry
from tests.integration.zookeeper.counter import set_counters

LAST = 2**31 - 1
QUEUES = ("heals", "busy", "overlap", "lost", "first", "second")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server with queues below /x that have two sequences left before the last."""
    with ZooKeeperServer(tmp_path_factory.mktemp("old"), container_check=600_000) as server:
        with server.kazoo() as kazoo:
            for name in QUEUES:
                kazoo.ensure_path(f"/x/{name}")
        set_counters(server, [f"/x/{name}" for name in QUEUES], LAST - 2)
        yield server


def test_a_queue_that_has_drained_starts_again(old: ZooKeeperServer, parties: Parties) -> None:
    party = parties(old.url_for("/x"))
    tokens, orders = [], []
    for _ in range(5):
        entry, contender, snapshot = party.enqueue("heals")
        assert snapshot.contenders == (contender,)
        assert party.backend.withdraw([entry]).result(BOUND)
        tokens.append(contender.token)
        orders.append(contender.order)
    assert orders == [LAST - 2, LAST - 1, 0, 1, 2]
    assert tokens == sorted(tokens, key=lambda token: token or 0)
    assert len(set(tokens)) == 5


@pytest.mark.parametrize("queues", [["first", "new"], ["new", "second"]])
def test_a_drained_queue_starts_again_for_a_set(
    old: ZooKeeperServer, parties: Parties, queues: list[str]
) -> None:
    """Its marker, too, must leave the queue that is made anew."""
    party = parties(old.url_for("/x"))
    for _ in range(4):
        entries = [new_entry(queue) for queue in queues]
        snapshots = party.backend.enqueue(entries).result(BOUND)
        for entry, snapshot in zip(entries, snapshots, strict=True):
            assert [one.id for one in snapshot.contenders] == [entry.id]
        assert party.backend.withdraw(entries).result(BOUND) is True
    with old.kazoo() as kazoo:
        assert [kazoo.get_children(f"/x/{queue}") for queue in queues] == [[], []]


def test_nobody_enters_while_contenders_from_before_are_there(
    old: ZooKeeperServer, parties: Parties
) -> None:
    party = parties(old.url_for("/x"))
    before = [party.enqueue("busy")[0] for _ in range(2)]
    entry = new_entry("busy")
    for _ in range(3):
        with pytest.raises(BackendUnavailable, match="are used up"):
            party.backend.enqueue([entry]).result(BOUND)
        assert party.ids("busy") == [one.id for one in before]
    for one in before:
        assert party.backend.withdraw([one]).result(BOUND)
    [snapshot] = party.backend.enqueue([entry]).result(BOUND)
    assert [one.id for one in snapshot.contenders] == [entry.id]


def test_overlapping_contenders_are_all_refused_or_in_order(
    old: ZooKeeperServer, parties: Parties
) -> None:
    """The server gives negative sequences to creates that overlap."""
    party = parties(old.url_for("/x"))
    answers = [party.backend.enqueue([new_entry("overlap")]) for _ in range(20)]
    entered = [answer.result() for answer in answers if answer.exception(BOUND) is None]
    assert len(entered) >= 2
    for answer in answers:
        error = answer.exception(BOUND)
        assert error is None or isinstance(error, BackendUnavailable)
    own = [snapshot.contenders[-1] for [snapshot] in entered]
    assert sorted(own, key=lambda one: one.order) == sorted(own, key=lambda one: one.token or 0)
    assert len({one.order for one in own}) == len(own)


def test_contenders_with_negative_sequences_whose_replies_were_lost_are_withdrawn(
    old: ZooKeeperServer, parties: Parties
) -> None:
    party, entry = parties(old.url_for("/x")), new_entry("lost")
    assert party.backend._current is not None
    own = party.backend._current.session.client
    path = f"/x/lost/{nodes.stem(entry.id, entry.claim)}"
    creates = [own.create_async(path, sequence=True, ephemeral=True) for _ in range(20)]
    made = [create.get(timeout=BOUND) for create in creates]
    assert any(one.startswith(f"{path}-") for one in made)
    assert party.backend.withdraw([entry]).result(BOUND)
    with old.kazoo() as kazoo:
        assert kazoo.get_children("/x/lost") == []
