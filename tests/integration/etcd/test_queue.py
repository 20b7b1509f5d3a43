"""Enqueueing: one transaction, tokens from etcd's revisions, replies that get lost."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from coordlock_etcd import EtcdBackend, requests
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.rpc import RANGE
from coordlock_etcd.transport.connection import SILENCE_S

import coordlock
from coordlock.errors import BackendUnavailable, SessionLost
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry, Snapshot
from coordlock.runtime.process import THREAD
from coordlock.runtime.promise import Promise, failed
from coordlock.testing.backend_contract import BOUND, OWNER, Party
from coordlock.testing.connection import Connection
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from tests.integration.etcd.conftest import Join, begin_anew, keys


def test_the_token_is_the_creation_revision_of_the_key(etcd: Etcd, party: Party) -> None:
    for _ in range(3):
        _, contender, snapshot = party.enqueue("q")
        [kv] = json.loads(etcd.etcdctl("get", contender.key, "--write-out=json"))["kvs"]
        assert contender.token == contender.order == kv["create_revision"] == snapshot.revision
        assert contender.session == f"{kv['lease']:016x}" == party.info.id


def test_a_heartbeat_is_one_message(party: Party, proxy: FaultProxy) -> None:
    with proxy.counting() as sent:
        assert party.backend.heartbeat().result(BOUND) == 60
    assert [kind.rpartition("/")[2] for kind in sent.requests.elements()] == ["LeaseKeepAlive"]


def test_an_answer_without_its_message_is_none(
    etcd: Etcd, party: Party, proxy: FaultProxy, root: str
) -> None:
    """A proxy on the way, and its trailers tell of success."""
    party.enqueue("warm")
    entry = Entry("q", uuid.uuid4().hex, Mode.EX, OWNER)
    for unless_blocked in (False, True):
        trap = proxy.on_request("*Txn", Connection.omit_reply)
        with pytest.raises(BackendUnavailable, match="without its message"):
            party.backend.enqueue([entry], unless_blocked=unless_blocked).result(BOUND)
        trap.wait()
    [snapshot] = party.backend.enqueue([entry]).result(BOUND)
    assert [one.id for one in snapshot.contenders] == [entry.id]
    assert len(keys(etcd, f"{root}/q")) == 1


def test_a_contender_of_an_earlier_session_is_not_adopted_but_removed(
    etcd: Etcd, party: Party, root: str
) -> None:
    entry, earlier, _ = party.enqueue("q")
    begin_anew(party, etcd, root)
    [snapshot] = party.backend.enqueue([entry]).result(BOUND)
    [contender] = snapshot.contenders
    assert contender.id == entry.id
    assert contender.session != earlier.session
    assert contender.order > earlier.order


def test_opening_again_ends_what_the_session_before_left_behind(party: Party) -> None:
    party.enqueue("q")
    second = party.backend.open(party.listener).result(BOUND)
    assert second.id != party.info.id
    party.enqueue("q")

    def sessions() -> list[str]:
        return [c.session for c in party.backend.snapshot("q").result(BOUND).contenders]

    eventually(lambda: sessions() == [second.id])


def test_who_come_at_once_are_sent_a_few_at_a_time(
    join: Join, proxy: FaultProxy, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordlock_etcd.transport.connection.SILENCE_S", 60.0)
    party = join(f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=60s")
    entries = [Entry("q", uuid.uuid4().hex, Mode.EX, OWNER) for _ in range(150)]
    # The fault: the server is busy for a while.
    proxy.replies.black_hole()
    coming = [party.backend.enqueue([entry]) for entry in entries]
    eventually(lambda: proxy.counts().requests["Txn"] == 16)
    assert not any(one.done() for one in coming)
    proxy.heal()
    orders = [one.result(BOUND)[0].contenders[-1].order for one in coming]
    assert proxy.counts().requests["Txn"] == 150
    assert len({*orders}) == 150


@pytest.mark.long  # the machine decides how long
@pytest.mark.timeout(300)
def test_three_thousand_locks_at_once_are_granted_and_heartbeats_do_not_wait(
    etcd: Etcd, root: str
) -> None:
    waited: list[float] = []

    async def main() -> None:
        client = await coordlock.connect_async(etcd.url_for(root, ttl="60s"))
        async with client:
            taking = [
                asyncio.ensure_future(client.lock(f"l{number}").acquire(timeout=240))
                for number in range(3000)
            ]
            while not all(one.done() for one in taking):
                sent = time.monotonic()
                await asyncio.to_thread(client._engine.backend.heartbeat().result, 60)
                waited.append(time.monotonic() - sent)
                await asyncio.sleep(0.2)
            for one in taking:
                (await one).check()

    asyncio.run(main())
    print(f"{len(waited)} heartbeats, the slowest took {max(waited):.2f} s")
    assert max(waited) < 5, "seconds; a heartbeat that waits behind all takes as long as they do"


def test_who_wait_to_be_sent_fail_with_their_session(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Promise[tuple[Snapshot, ...]]] = []

    def send(*_: object, **__: object) -> Promise[tuple[Snapshot, ...]]:
        sent.append(Promise())
        return sent[-1]

    backend = party.backend
    assert isinstance(backend, EtcdBackend)
    with monkeypatch.context() as patch:
        patch.setattr(backend._connection, "call", send)
        entries = [Entry("q", uuid.uuid4().hex, Mode.EX, OWNER) for _ in range(100)]
        coming = [backend.enqueue([entry]) for entry in entries]
        assert len(sent) == 16
        backend._session.lose(backend._lease, "it expired")
        sent[0].fail(SessionLost("etcd", "it expired"))
        assert all(isinstance(one.exception(BOUND), SessionLost) for one in coming[16:])
        assert len(sent) == 16


def test_a_contender_gets_more_time_after_two_silences_though_other_requests_are_answered(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes seconds delays changes, and neither readings nor heartbeats."""
    backend = party.backend
    assert isinstance(backend, EtcdBackend)
    call, seconds = backend._connection.call, list[float]()

    def stay_silent(*_: object, timeout: float, **__: object) -> Promise[tuple[Snapshot, ...]]:
        seconds.append(timeout)
        return failed(BackendUnavailable("etcd", "Deadline Exceeded"))

    def ask(request: Callable[[], Promise[Any]]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(backend._connection, "call", stay_silent)
            for _ in range(3):
                assert isinstance(request().exception(BOUND), BackendUnavailable)
                call(RANGE, requests.nearest(b"other/"), id).result(BOUND)

    entry = Entry("q", uuid.uuid4().hex, Mode.EX, OWNER)
    ask(lambda: backend.enqueue([entry]))
    backend.enqueue([entry]).result(BOUND)
    ask(lambda: backend.withdraw([entry]))
    assert seconds == 2 * [SILENCE_S, SILENCE_S, backend._connection.timeout]


def test_a_reading_that_a_compaction_disturbs_can_be_repeated(
    etcd: Etcd, party: Party, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contenders = [party.enqueue("q")[1] for _ in range(20)]
    behind = requests.behind

    def compacted(prefix: bytes, order: int, revision: int) -> pb.RangeRequest:
        put = json.loads(etcd.etcdctl("put", f"{root}x", "newer", "--write-out=json"))
        etcd.etcdctl("compact", str(put["header"]["revision"]))
        return behind(prefix, order, revision)

    # Part of a queue may take two requests, at one revision.
    with monkeypatch.context() as patch:
        patch.setattr(requests, "behind", compacted)
        with pytest.raises(BackendUnavailable, match="compacted"):
            party.backend.snapshot("q", contenders[17]).result(BOUND)
    part = party.backend.snapshot("q", contenders[17]).result(BOUND)
    assert part.omitted + len(part.contenders) == 18


def test_keys_of_other_programs_are_contenders_too(etcd: Etcd, party: Party, root: str) -> None:
    etcd.etcdctl("put", f"{root}/q/a b\tc", "who knows")
    _, contender, snapshot = party.enqueue("q")
    [foreign] = snapshot.before(contender)
    assert (foreign.claim, foreign.owner, foreign.session) == (Mode.EX, None, "")
    [seen] = party.backend.snapshot("q", foreign, owners=True).result(BOUND).contenders
    assert str(seen.owner) == "who knows"
    assert party.backend.evict(foreign).result(BOUND)


def test_evicting_spares_a_later_contender_with_the_same_key(
    etcd: Etcd, party: Party, root: str
) -> None:
    etcd.etcdctl("put", f"{root}/q/5c", "first")
    [first] = party.backend.snapshot("q").result(BOUND).contenders
    etcd.etcdctl("del", f"{root}/q/5c")
    etcd.etcdctl("put", f"{root}/q/5c", "second")
    assert party.backend.evict(first).result(BOUND) is False
    assert len(keys(etcd, root)) == 1


def test_a_lock_that_is_taken_again_and_again_has_one_key_in_etcds_history(
    etcd: Etcd, root: str
) -> None:
    """etcd looks at each key that was deleted since the last compaction when it reads a queue."""
    with coordlock.connect(etcd.url_for(root)) as client:
        keys_seen, tokens = set[str](), list[int]()
        for _ in range(30):
            with client.lock("q") as grant:
                keys_seen.add(client.admin.contenders("q")[0].contender.key)
                tokens.append(grant.token)
        assert tokens == sorted(set(tokens))
        assert len(keys_seen) <= 2  # the next acquire may come before the last release has ended


@pytest.mark.parametrize("together_with", [[], [Entry("b", uuid.uuid4().hex, Mode.EX, OWNER)]])
def test_what_another_process_has_made_in_the_session_is_neither_adopted_nor_removed(
    etcd: Etcd, party: Party, root: str, together_with: list[Entry]
) -> None:
    """As the copy of a virtual machine, which has the same session and the same free ids."""
    entry, contender, _ = party.enqueue("q")
    other = replace(entry, owner=replace(entry.owner, since=2.0), publishes=False)
    with pytest.raises(SessionLost, match="another process"):
        party.backend.enqueue([other, *together_with]).result(BOUND)
    assert party.listener.ended.is_set()
    assert party.backend.snapshot("q", owners=True).result(BOUND).contenders == (contender,)
    assert len(keys(etcd, root)) == 1


@pytest.mark.parametrize("is_busy", [False, True])
def test_the_thread_that_brings_an_answer_must_not_wait(party: Party, is_busy: bool) -> None:
    backend = party.backend
    assert isinstance(backend, EtcdBackend)
    calling = backend._connection.threads._calling
    if is_busy:  # then gRPC's thread brings it
        eventually(lambda: calling.acquire(blocking=False))
    seen: list[bool] = []
    caller = threading.get_ident()

    def answered(_: object) -> None:
        seen.append(threading.get_ident() == caller or THREAD.must_not_wait)

    backend.snapshot("q").add_done_callback(answered)
    eventually(lambda: seen == [True])
    assert not THREAD.must_not_wait
