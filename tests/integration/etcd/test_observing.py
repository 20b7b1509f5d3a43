"""Observations show what is there, whatever happens to the stream, the server and its history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from coordlock_etcd import EtcdBackend
from coordlock_etcd import messages_pb2 as pb
from coordlock_etcd.observing import Observations
from coordlock_etcd.requests import watch

from coordlock.backend import Delete, Expect, Listing, Put, Queue
from coordlock.errors import VersionMismatch
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.runtime.promise import Promise
from coordlock.testing.backend_contract import BOUND, Party
from coordlock.testing.counts import Counts
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd, EtcdCluster, EtcdServer
from tests.integration.etcd.conftest import Join, watches_in
from tests.integration.observing import follow, is_fresh, is_stale, put, values

#: With this time-to-live a client looks once in a second.
QUICK = "3s"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path) as server:
        yield server


@pytest.fixture
def other(join: Join, etcd: Etcd, root: str) -> EtcdBackend:
    """A client that the proxy's faults don't touch."""
    return backend_of(join(etcd.url_for(root, ttl="60s")))


@pytest.fixture
def observer(party: Party) -> EtcdBackend:
    """A client behind the proxy that looks every twenty seconds."""
    return backend_of(party)


@pytest.fixture
def quick(join: Join, proxy: FaultProxy, root: str) -> EtcdBackend:
    """A client behind the proxy that looks every second."""
    return backend_of(join(f"etcd://127.0.0.1:{proxy.port}{root}?ttl={QUICK}"))


@pytest.fixture
def folder(root: str) -> str:
    return f"{root}-data/"


def backend_of(party: Party) -> EtcdBackend:
    assert isinstance(party.backend, EtcdBackend)
    return party.backend


def observations_of(backend: EtcdBackend) -> Observations:
    assert backend._observations is not None
    return backend._observations


def requests(counts: Counts, method: str) -> int:
    return sum(n for kind, n in counts.requests.items() if kind.endswith(method))


# Compactions


def test_what_happened_before_a_compaction_while_the_stream_was_broken_is_shown(
    etcd: Etcd, observer: EtcdBackend, other: EtcdBackend, proxy: FaultProxy, folder: str
) -> None:
    put(other, folder, gone="1", left="1")
    observed = follow(observer, folder)
    proxy.refuse()
    proxy.drop_connections()
    eventually(lambda: is_stale(observed))
    other.write([Delete(folder + "gone"), Put(folder + "left", b"2")]).result(BOUND)
    etcd.compact()
    proxy.heal()
    eventually(lambda: is_fresh(observed))
    assert values(observed) == {"left": b"2"}


# Observers that come and go


def test_a_place_that_nobody_observes_any_more_is_not_watched(
    server: EtcdServer, join: Join, root: str, folder: str
) -> None:
    backend = backend_of(join(server.url_for(root, ttl="60s")))
    observed, other = follow(backend, folder), follow(backend, folder)
    eventually(lambda: watches_in(server) == 1)
    observed.cancel()
    put(backend, folder, a="1")
    eventually(lambda: values(other) == {"a": b"1"})
    assert watches_in(server) == 1
    other.cancel()
    eventually(lambda: watches_in(server) == 0)
    assert values(follow(backend, folder)) == {"a": b"1"}


# Many changes


def test_a_change_of_a_folder_costs_no_reading(
    observer: EtcdBackend, other: EtcdBackend, proxy: FaultProxy, folder: str
) -> None:
    observed = follow(observer, folder)
    with proxy.counting() as sent:
        for number in range(20):
            put(other, folder, a=str(number))
            eventually(lambda: values(observed) == {"a": b"%d" % number})  # noqa: B023
            put(other, f"{folder}deeper/", a=str(number))
    asked = sum(requests(sent, method) for method in ("Range", "Txn", "Watch"))
    assert asked <= 5, "the first ones, and a look with what it may find"


# Staleness


def test_an_event_that_the_server_never_sends_is_made_up_for(
    quick: EtcdBackend, other: EtcdBackend, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fault: etcd watches something else (as if it had lost the event: etcd issue 17529).
    real = watch

    def elsewhere(id: int, *_: Any, **__: Any) -> pb.WatchRequest:
        return real(id, b"nothing")

    monkeypatch.setattr("coordlock_etcd.requests.watch", elsewhere)
    observed, single = follow(quick, folder), follow(quick, folder + "a")
    for value in ("1", "2"):
        put(other, folder, a=value)
        eventually(lambda: values(observed) == {"a": value.encode()})  # noqa: B023
    other.write([Delete(folder + "a"), Put(f"{folder}deeper/a", b"")]).result(BOUND)
    eventually(lambda: values(observed) == values(single) == {})
    eventually(lambda: is_fresh(observed) and is_fresh(single))


def test_a_look_reads_only_places_with_changes_that_the_stream_has_not_reported(
    quick: EtcdBackend, other: EtcdBackend, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings, real = list[str](), quick.read

    def read(where: str) -> Promise[Listing]:
        readings.append(where)
        return real(where)

    monkeypatch.setattr(quick, "read", read)
    put(other, folder, a="0", b="0")
    observed, observations = follow(quick, folder), observations_of(quick)
    eventually(lambda: observations.looked_at > 0, "the first look reads all places")
    eventually(lambda: observations._observers._observed[folder].reading is None)
    readings.clear()
    for number in range(4):
        looked_at = observations.looked_at
        put(other, folder, a=str(number), c="new")
        other.write([Delete(folder + "c"), Put(f"{folder}deeper/c", b"")]).result(BOUND)
        eventually(lambda: observations.looked_at > looked_at)  # noqa: B023
    eventually(lambda: values(observed) == {"a": b"3", "b": b"0"})
    assert len(readings) <= 1, "a look may overtake the stream"


def test_a_stream_that_brings_nothing_though_there_are_changes_is_opened_anew(
    quick: EtcdBackend, other: EtcdBackend, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: each change came only with the next look (as with etcd issue 15402)."""
    with monkeypatch.context() as patch:
        patch.setattr("coordlock_etcd.requests.watch", lambda id, *_, **__: watch(id, b"nothing"))
        observed = follow(quick, folder)
    put(other, folder, a="0")
    eventually(lambda: values(observed) == {"a": b"0"}, "by a look")

    def is_reported() -> bool:
        put(other, folder, a="1")
        [place] = observations_of(quick)._watches.values()
        return bool(place.changes)

    eventually(is_reported)
    eventually(lambda: is_fresh(observed) and values(observed) == {"a": b"1"})


def test_an_answer_that_is_older_than_what_was_seen_is_not_shown(
    observer: EtcdBackend, other: EtcdBackend, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else etcd counts as restored before a busy machine has come to the end.
    monkeypatch.setattr("coordlock_etcd.transport.cluster._RESTORED_S", 3600.0)
    put(other, folder, a="1")
    now = other.read(folder).result(BOUND).revision
    # The fault: a server that lags behind, as seen from a client that has seen more.
    seen = now + 100
    observer._connection.cluster.saw(seen)
    observed = observer.follow(folder, lambda: None)
    threading.Event().wait(0.5)
    shown = observed.view.state
    put(other, folder, a="2")
    while (now := other.read(folder).result(BOUND).revision) < seen:
        assert shown is None
        shown = observed.view.state
        put(other, folder, a="2")
    eventually(lambda: values(observed) == {"a": b"2"})


# Servers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.mark.faults
def test_a_member_that_is_cut_off_from_the_others_is_in_doubt_since_before(
    cluster: EtcdCluster, join: Join, root: str, folder: str
) -> None:
    alone, *others = cluster.members
    one = backend_of(join(alone.url_for(root, ttl="6s")))
    put(one, folder, a="1")
    observed = follow(one, folder)
    eventually(lambda: observations_of(one).looked_at > 0, "a look is done")
    with ExitStack() as stack:
        for member in others:
            member.pause()
            stack.callback(member.resume)
        paused = SYSTEM_CLOCK.now()
        eventually(lambda: is_stale(observed), within=60)
        since = observed.view.stale_since
        assert since is not None
        assert since <= paused
    eventually(lambda: is_fresh(observed), within=60)
    assert values(observed) == {"a": b"1"}


# Places


def test_keys_without_a_leading_slash_are_those_of_the_same_paths(
    etcd: Etcd, join: Join, root: str
) -> None:
    backend = backend_of(join(etcd.url_for(root, ttl="60s", leading_slash="false")))
    folder, raw = f"{root}-data/", f"{root}-data/".removeprefix("/")
    backend.write([Put(folder + "a", b"1")]).result(BOUND)
    assert etcd.etcdctl("get", "--print-value-only", raw + "a").strip() == "1"
    observed = follow(backend, folder)
    single = follow(backend, folder + "b")
    etcd.etcdctl("put", raw + "b", "2")
    etcd.etcdctl("put", f"/{raw}c", "3")
    eventually(lambda: values(observed) == {"a": b"1", "b": b"2"})
    eventually(lambda: values(single) == {"b": b"2"})
    assert list(backend.read(folder).result(BOUND).values) == [folder + "a", folder + "b"]
    with pytest.raises(VersionMismatch) as caught:
        backend.write([Expect(folder + "a", 7), Put(folder + "b", b"")]).result(BOUND)
    assert caught.value.key == folder + "a"
    backend.write([Expect(folder + "a", 1), Delete(folder + "a")]).result(BOUND)
    eventually(lambda: values(observed) == {"b": b"2"})


def test_other_programs_contenders_are_observed(etcd: Etcd, other: EtcdBackend, root: str) -> None:
    observed = other.follow(Queue("q"), lambda: None)
    eventually(lambda: is_fresh(observed))
    etcd.etcdctl("put", f"{root}/q/5c", "somebody")
    eventually(lambda: observed.view.state is not None and observed.view.state.contenders)
    assert observed.view.state is not None
    [contender] = observed.view.state.contenders
    assert contender.owner is not None
    assert contender.owner.label == "somebody"
    assert contender == other.snapshot("q", owners=True).result(BOUND).contenders[0]
