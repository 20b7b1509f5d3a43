"""Requests that go together: how many messages they take, and what one spoils for the others."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from coordlock_etcd import EtcdBackend, requests
from coordlock_etcd.keys import Layout

import coordlock
from coordlock.errors import AuthenticationFailed, BackendUnavailable, SessionLost
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Snapshot
from coordlock.testing.backend_contract import BOUND, OWNER, Party
from coordlock.testing.connection import Connection
from coordlock.testing.proxy import FaultProxy
from testbed.servers.etcd import Etcd, EtcdServer
from tests.integration.etcd.conftest import Join, begin_anew, keys


def an_entry(queue: str) -> Entry:
    return Entry(queue, uuid.uuid4().hex, Mode.EX, OWNER)


@contextmanager
def at_once(party: Party) -> Iterator[None]:
    """What is asked here is asked before any of it is sent."""
    assert isinstance(party.backend, EtcdBackend)
    threads = party.backend._connection.threads
    held_back: list[Callable[[], None]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "run", lambda _, start: held_back.append(start))
        yield
    for start in held_back:
        start()


def enqueue(party: Party, *entries: Entry) -> list[Snapshot]:
    """What is answered to them, asked at once."""
    with at_once(party):
        coming = [party.backend.enqueue([entry]) for entry in entries]
    return [one.result(BOUND)[0] for one in coming]


def sent(proxy: FaultProxy) -> int:
    kinds = proxy.counts().requests.items()
    return sum(number for kind, number in kinds if kind.endswith("Txn"))


def test_what_is_asked_at_once_of_many_queues_is_one_request(
    party: Party, proxy: FaultProxy
) -> None:
    entries = [an_entry(f"q{number}") for number in range(64)]
    answers = enqueue(party, *entries)
    assert sent(proxy) == 1
    for entry, seen in zip(entries, answers, strict=True):
        [me] = seen.contenders
        assert (seen.queue, me.id, me.owner) == (entry.queue, entry.id, OWNER)
        assert (seen.omitted, seen.revision) == (0, me.order)
        assert party.backend.snapshot(entry.queue).result(BOUND).contenders[0].order == me.order
    with at_once(party):
        going = [party.backend.withdraw([entry]) for entry in (*entries[1:], an_entry("none"))]
    assert [one.result(BOUND) for one in going] == [True] * 63 + [False]
    assert sent(proxy) == 2
    assert party.backend.queues().result(BOUND) == ["q0"]


def test_more_than_a_transaction_holds_go_in_several(party: Party, proxy: FaultProxy) -> None:
    enqueue(party, *(an_entry(f"q{number}") for number in range(130)))
    assert sent(proxy) == 3


def test_an_asyncio_process_takes_many_locks_in_few_requests(
    etcd: Etcd, proxy: FaultProxy, root: str
) -> None:
    async def main() -> None:
        url = f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s"
        async with coordlock.connect_async(url) as client:
            grants = await asyncio.gather(*(client.lock(f"q{n}").acquire() for n in range(64)))
            assert len(keys(etcd, root)) == 64
            await asyncio.gather(*(grant.release() for grant in grants))
            assert keys(etcd, root) == []

    asyncio.run(main())
    assert sent(proxy) < 64


# Faults


def test_a_lost_answer_is_lost_for_all_and_none_is_enqueued_twice(
    etcd: Etcd, party: Party, proxy: FaultProxy, root: str
) -> None:
    entries = [an_entry(queue) for queue in "abc"]
    trap = proxy.on_request("*Txn", Connection.lose_reply)
    with at_once(party):
        coming = [party.backend.enqueue([entry]) for entry in entries]
    assert all(isinstance(one.exception(BOUND), BackendUnavailable) for one in coming)
    assert trap.sprung
    assert len(keys(etcd, root)) == 3
    # One has been there before, and so has the batch to be taken apart.
    answers = enqueue(party, *entries, an_entry("d"))
    assert [seen.contenders[0].id for seen in answers[:3]] == [entry.id for entry in entries]
    assert len(keys(etcd, root)) == 4


def test_a_contender_of_an_earlier_session_spoils_nothing_for_others(
    etcd: Etcd, party: Party, root: str
) -> None:
    entry, _, _ = party.enqueue("a")
    begin_anew(party, etcd, root)
    with at_once(party):
        refused, welcome = party.backend.enqueue([entry]), party.backend.enqueue([an_entry("b")])
    assert isinstance(refused.exception(BOUND), SessionLost)
    assert len(welcome.result(BOUND)[0].contenders) == 1


def test_a_lease_that_ended_fails_all_and_loses_the_session_once(etcd: Etcd, party: Party) -> None:
    etcd.etcdctl("lease", "revoke", party.info.id)
    with at_once(party):
        coming = [party.backend.enqueue([an_entry(queue)]) for queue in "abc"]
    assert all(isinstance(one.exception(BOUND), SessionLost) for one in coming)
    assert party.listener.events == ["lost: etcd does not know the lease any more"]


def test_who_may_not_be_served_keeps_nobody_from_it(tmp_path: Path, join: Join, root: str) -> None:
    with EtcdServer(tmp_path, auth=True) as server:
        party = join(server.url_for(f"/coordlock{root}", ttl="60s"))
        backend = party.backend
        assert isinstance(backend, EtcdBackend)
        # The user has rights below /coordlock.
        forbidden = requests.enqueue(Layout.below("/elsewhere"), an_entry("b"), backend._lease)
        with at_once(party):
            coming = backend.enqueue([an_entry("a")])
            refused = backend._enqueues.call(
                "b", forbidden, lambda _: (Snapshot("b", (), 0),), BOUND
            )
        assert isinstance(refused.exception(BOUND), AuthenticationFailed)
        assert len(coming.result(BOUND)[0].contenders) == 1
        party.backend.close().result(BOUND)
