"""Sessions are leases: how they live, how they end, and that their end is noticed."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coordlock_etcd import EtcdBackend

import coordlock
from coordlock.errors import BackendUnavailable, SessionLost
from coordlock.model.claim import Mode
from coordlock.model.contender import Entry
from coordlock.runtime.promise import Promise
from coordlock.testing.backend_contract import BOUND, OWNER, Party, backend_for
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd, EtcdServer
from tests.integration.etcd.conftest import Join

pytestmark = pytest.mark.faults


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path) as server:
        yield server


@pytest.fixture
def party(join: Join, etcd: Etcd, root: str) -> Party:
    return join(etcd.url_for(root, ttl="60s"))


def leases(etcd: Etcd) -> list[str]:
    return etcd.etcdctl("lease", "list").split()[3:]


def pause(server: EtcdServer) -> None:
    server.pause()
    eventually(lambda: not server.answers())  # the signal takes a moment


def test_the_time_to_live_is_in_whole_seconds_and_not_less_than_asked(
    join: Join, etcd: Etcd, root: str
) -> None:
    assert join(etcd.url_for(root, ttl="5500ms")).info.ttl == 6


def test_a_heartbeat_tells_that_the_lease_was_revoked(etcd: Etcd, party: Party) -> None:
    etcd.etcdctl("lease", "revoke", party.info.id)
    for _ in range(2):
        with pytest.raises(SessionLost, match="expired or was revoked"):
            party.backend.heartbeat().result(BOUND)
        assert party.listener.events == ["lost: its lease has expired or was revoked"]


def test_enqueueing_tells_that_the_lease_was_revoked(etcd: Etcd, party: Party) -> None:
    etcd.etcdctl("lease", "revoke", party.info.id)
    with pytest.raises(SessionLost):
        party.enqueue("q")
    assert party.listener.ended.is_set()
    with pytest.raises(SessionLost):
        party.enqueue("q")
    assert len(party.listener.events) == 1


def test_a_paused_server_keeps_no_request_waiting_for_long(
    server: EtcdServer, join: Join, root: str
) -> None:
    party = join(server.url_for(root, ttl="60s", request_timeout="1s"))
    entry, contender, snapshot = party.enqueue("q")
    told = threading.Event()
    party.backend.watch(contender, snapshot.revision, lambda _: told.set())
    other = Entry("q", uuid.uuid4().hex, Mode.EX, OWNER)
    pause(server)
    answers: list[Promise[Any]] = [
        party.backend.heartbeat(),
        party.backend.enqueue([other]),
        party.backend.withdraw([entry]),
        party.backend.snapshot("q"),
        party.backend.queues(),
        party.backend.evict(contender),
        party.backend.describe(),
    ]
    assert [type(answer.exception(BOUND)) for answer in answers] == [BackendUnavailable] * 7
    party.backend.close().result(BOUND)
    server.resume()


def test_closing_ends_what_is_pending_and_all_threads(
    server: EtcdServer, root: str, no_leaks: None
) -> None:
    # `no_leaks` looks at the threads.
    party = Party(backend_for(EtcdBackend, server.url_for(root, ttl="60s", request_timeout="1s")))
    _, contender, snapshot = party.enqueue("q")
    party.backend.watch(contender, snapshot.revision, lambda _: None)
    pause(server)
    pending = [party.backend.snapshot("q") for _ in range(20)]
    party.backend.close().result(BOUND)
    for answer in pending:
        assert isinstance(answer.exception(BOUND), BackendUnavailable)
    server.resume()


def test_closing_while_a_session_is_opened_leaves_no_lease(
    etcd: Etcd, root: str, no_leaks: None
) -> None:
    before = set(leases(etcd))
    for _ in range(20):
        backend = backend_for(EtcdBackend, etcd.url_for(root))
        opening = backend.open(_Nobody())
        backend.close().result(BOUND)
        assert opening.done()
    assert set(leases(etcd)) <= before


class _Nobody:
    def suspect(self, reason: str) -> None: ...

    def recovered(self) -> None: ...

    def lost(self, reason: str) -> None: ...


@pytest.mark.timeout(180)
def test_a_client_without_a_session_goes_on_when_etcd_has_lost_its_data(
    server: EtcdServer,
) -> None:
    with coordlock.connect(server.url_for("/lost", ttl="1s", request_timeout="2s")) as client:
        queue = client.work_queue("q")
        for _ in range(20):
            queue.put(b"one")
        server.kill()
        eventually(lambda: client.state.status.value == "lost", within=BOUND)
        shutil.rmtree(server.data)
        server.start()

        def is_put() -> bool:
            try:
                queue.put(b"two")
            except BackendUnavailable:
                return False
            return True

        eventually(is_put, within=BOUND)
        with queue.take(BOUND) as item:
            assert item.data == b"two"
