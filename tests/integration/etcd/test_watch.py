"""Departures are told once, whatever happens to the stream, the server and its history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from coordlock_etcd import EtcdBackend, requests
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.watcher import Watcher

from coordlock.backend import Departure
from coordlock.errors import BackendUnavailable
from coordlock.model.contender import Contender, Snapshot
from coordlock.runtime.log import flush
from coordlock.runtime.promise import failed
from coordlock.testing.backend_contract import BOUND, Party
from coordlock.testing.connection import Connection
from coordlock.testing.counts import Counts
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.order import is_told_in_order
from testbed.servers.etcd import Etcd, EtcdServer
from tests.integration.etcd.conftest import Join


class Told:
    """Remembers how often a departure was told, and whether in order."""

    def __init__(self) -> None:
        self.times = 0
        self.in_order: bool | None = None
        self.once = threading.Event()

    def __call__(self, departure: Departure) -> None:
        self.times += 1
        self.in_order = departure is not Departure.UNORDERED
        self.once.set()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path) as server:
        yield server


@pytest.fixture
def watcher(join: Join, proxy: FaultProxy, root: str) -> Party:
    """A party behind the proxy."""
    return join(f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=30s")


@pytest.fixture
def other(join: Join, etcd: Etcd, root: str) -> Party:
    """A party that the proxy's faults don't touch."""
    return join(etcd.url_for(root, ttl="60s"))


def watched(party: Party, contender: Contender, snapshot: Snapshot, *waiters: Contender) -> Told:
    """Watches ``contender``, and returns when the stream is known to be up."""
    told = Told()
    party.backend.watch(contender, snapshot.revision, told, waiters=waiters)
    probe = Told()
    entry, mine, seen = party.enqueue("probe")
    party.backend.watch(mine, seen.revision, probe)
    party.backend.withdraw([entry]).result(BOUND)
    assert probe.once.wait(BOUND)
    return told


def watcher_of(party: Party) -> Watcher:
    assert isinstance(party.backend, EtcdBackend)
    return party.backend._watcher


def waits_behind_a_shared_watch(party: Party, other: Party) -> Contender:
    """A contender of ``party``'s, whose own watch is the last that is sent."""
    _, first, snapshot = other.enqueue("q")
    watched(party, first, snapshot)
    _, mine, seen = party.enqueue("q")
    party.backend.watch(mine, seen.revision, Told())
    party.backend.watch(first, seen.revision, Told())
    return mine


def test_a_watch_thread_that_could_not_be_started_is_started_by_the_next_watch(
    watcher: Party, other: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, contender, snapshot = other.enqueue("q")
    told = Told()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError))
        with pytest.raises(RuntimeError):
            watcher.backend.watch(contender, snapshot.revision, Told())
    watcher.backend.watch(contender, snapshot.revision, told)
    other.backend.withdraw([entry]).result(BOUND)
    assert told.once.wait(BOUND)


def test_a_deletion_whose_history_is_compacted_is_told(
    etcd: Etcd, watcher: Party, other: Party
) -> None:
    entry, contender, snapshot = other.enqueue("q")
    other.backend.withdraw([entry]).result(BOUND)
    other.enqueue("q")
    etcd.compact()
    told = Told()
    watcher.backend.watch(contender, snapshot.revision, told)
    assert told.once.wait(BOUND)


def test_a_connection_that_the_network_forgot_is_replaced(
    join: Join, proxy: FaultProxy, other: Party, root: str
) -> None:
    party = join(f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s&request_timeout=30s")
    entry, contender, snapshot = other.enqueue("q")
    told = watched(party, contender, snapshot)
    # The fault: this one connection is silent for ever, and a new one works.
    proxy.on_request("*LeaseKeepAlive", Connection.black_hole)
    assert party.backend.heartbeat().result(BOUND) == 60
    other.backend.withdraw([entry]).result(BOUND)
    assert told.once.wait(BOUND)


def test_a_silent_connection_is_noticed_without_a_request(
    watcher: Party, other: Party, proxy: FaultProxy
) -> None:
    _, contender, snapshot = other.enqueue("q")
    watched(watcher, contender, snapshot)
    proxy.black_hole()
    # gRPC pings after 10 seconds at the latest, and waits 5 for the answer.
    eventually(lambda: watcher.listener.events, within=60)
    proxy.heal()
    eventually(lambda: watcher.listener.events[-1] == "recovered")


def test_an_event_that_the_server_never_sends_is_made_up_for(
    watcher: Party, other: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, contender, _ = other.enqueue("q")
    watched(watcher, *other.enqueue("r")[1:])  # its stream is up
    # The fault: etcd watches something else (as if it had lost the event: etcd issue 17529).
    real = requests.watch
    monkeypatch.setattr(requests, "watch", lambda id, *_, **__: real(id, b"nothing"))
    _, mine, snapshot = watcher.enqueue("q")
    watcher.backend.watch(mine, snapshot.revision, Told())
    told = Told()
    watcher.backend.watch(contender, snapshot.revision, told, waiters=(mine,))
    monkeypatch.setattr(requests, "watch", real)
    monkeypatch.setattr("coordlock_etcd.watcher.RECHECK_INTERVAL_S", 0.0)
    other.backend.withdraw([entry]).result(BOUND)
    assert told.times == 0
    watcher.backend.heartbeat().result(BOUND)
    assert told.once.wait(BOUND)
    assert told.in_order is False  # the event of the waiter's own departure may be lost, too


def test_what_others_wrote_before_the_watch_began_costs_one_reading_and_no_order(
    watcher: Party, other: Party, proxy: FaultProxy
) -> None:
    holder, first, _ = other.enqueue("q")
    _, mine, snapshot = watcher.enqueue("q")
    other.enqueue("elsewhere")
    with proxy.counting() as sent:
        watcher.backend.watch(mine, snapshot.revision, Told())
        told = Told()
        watcher.backend.watch(first, snapshot.revision, told, waiters=(mine,))
        eventually(lambda: is_told_in_order(watcher.backend, mine))
        other.backend.withdraw([holder]).result(BOUND)
        assert told.once.wait(BOUND)
    assert told.in_order is True
    assert readings(sent) == 1


def test_a_departure_from_a_long_queue_proves_nothing_but_itself(
    watcher: Party, other: Party
) -> None:
    crowd = [other.enqueue("q") for _ in range(16)]
    _, mine, snapshot = watcher.enqueue("q")
    watcher.backend.watch(mine, snapshot.revision, Told())
    entry, nearest, _ = crowd[-1]
    told = watched(watcher, nearest, snapshot, mine)
    other.backend.withdraw([entry]).result(BOUND)
    assert told.once.wait(BOUND)
    assert told.in_order is False


def readings(counts: Counts) -> int:
    return counts.requests["Txn"] + counts.requests["Range"]


def test_what_a_watch_on_a_value_has_missed_is_found_though_the_reading_fails(
    watcher: Party, other: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched(watcher, *other.enqueue("r")[1:])  # its stream is up
    entry, contender, snapshot = other.enqueue("q")
    connection = watcher_of(watcher)._connection
    other.backend.withdraw([entry]).result(BOUND)
    told = Told()
    with monkeypatch.context() as patch:
        unavailable = BackendUnavailable("etcd", "no answer")
        patch.setattr(connection, "call", call := Mock(side_effect=lambda *_: failed(unavailable)))
        watcher.backend.watch(contender, snapshot.revision, told, changes=True)
        eventually(lambda: call.called)
    assert told.once.wait(BOUND)


def test_the_departure_of_an_earlier_contender_of_the_same_key_is_not_told(
    watcher: Party, other: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, earlier, _ = other.enqueue("q")
    other.backend.withdraw([entry]).result(BOUND)
    [snapshot] = other.backend.enqueue([entry]).result(BOUND)
    contender = snapshot.contenders[-1]
    assert contender.key == earlier.key
    # The fault: the member lags, and its present is before the contender came.
    real = requests.watch

    def from_the_past(id: int, key: bytes, end: bytes = b"", **puts: bool) -> pb.WatchRequest:
        request = real(id, key, end, **puts)
        request.create_request.start_revision = earlier.order
        return request

    monkeypatch.setattr(requests, "watch", from_the_past)
    told = Told()
    watcher.backend.watch(contender, snapshot.revision, told, changes=True)
    for _ in range(2):
        watched(watcher, *other.enqueue("s")[1:])
    assert told.times == 0
    other.backend.withdraw([entry]).result(BOUND)
    assert told.once.wait(BOUND)
    assert told.times == 1


def test_departures_are_in_order_again_after_the_stream_has_broken(
    watcher: Party, other: Party, proxy: FaultProxy
) -> None:
    mine = waits_behind_a_shared_watch(watcher, other)
    eventually(lambda: is_told_in_order(watcher.backend, mine))
    proxy.refuse()
    proxy.drop_connections()
    eventually(lambda: watcher.listener.events)
    assert not is_told_in_order(watcher.backend, mine)
    proxy.heal()
    eventually(lambda: is_told_in_order(watcher.backend, mine))


def test_after_a_reconnect_the_keys_of_all_watches_are_read_together(
    watcher: Party, other: Party, proxy: FaultProxy
) -> None:
    for number in range(20):
        _, contender, snapshot = other.enqueue(f"q{number}")
        watcher.backend.watch(contender, snapshot.revision, Told())
    watched(watcher, *other.enqueue("r")[1:])
    other.enqueue("elsewhere")
    watches = watcher_of(watcher)._watches.watched.values()
    eventually(lambda: all(watch.is_covered for watch in watches))
    with proxy.counting() as sent:
        proxy.drop_connections()
        eventually(lambda: "recovered" in watcher.listener.events)
        eventually(lambda: all(watch.is_covered for watch in watches))
    assert len(watches) == 21
    assert readings(sent) <= 4


def test_own_watches_of_an_earlier_session_do_not_disturb_those_of_the_next(
    watcher: Party, other: Party, caplog: pytest.LogCaptureFixture
) -> None:
    _, earlier, seen = watcher.enqueue("q")
    watched(watcher, earlier, seen)
    other.enqueue("elsewhere")
    watcher.backend.open(watcher.listener).result(BOUND)
    mine = waits_behind_a_shared_watch(watcher, other)
    eventually(lambda: is_told_in_order(watcher.backend, mine))
    assert flush(30)
    assert "failed" not in caplog.text
