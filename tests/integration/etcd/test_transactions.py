"""Guarded data on a real etcd: limits, rights, answers from the past, several members."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from subprocess import CalledProcessError

import pytest
from coordlock_etcd import EtcdBackend

import coordlock
from coordlock import BackendUnavailable
from coordlock.backend import Departure, Put
from coordlock.errors import AuthenticationFailed, BackendError, TooLarge
from coordlock.testing.backend_contract import BOUND
from coordlock.types import VersionedValue
from testbed.servers.etcd import Etcd, EtcdCluster, EtcdServer
from tests.integration.etcd.conftest import Join


@pytest.fixture
def key(root: str) -> str:
    return f"{root}-data/key"


@pytest.fixture
def client(etcd: Etcd, root: str, no_leaks: None) -> Iterator[coordlock.Client]:
    with coordlock.connect(etcd.url_for(root)) as client:
        yield client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("auth"), auth=True, token_ttl=60) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


# Keys


def test_keys_are_plain_keys_that_stay(client: coordlock.Client, key: str, etcd: Etcd) -> None:
    with client.lock("orders") as grant:
        grant.transaction().put(key, b"data").commit()
        assert etcd.etcdctl("get", key, "--print-value-only") == "data\n"
        etcd.etcdctl("put", key, "etcdctl's")
        assert grant.read(key) == VersionedValue(b"etcdctl's", 2)
    client.close()
    assert etcd.etcdctl("get", key, "--print-value-only") == "etcdctl's\n"


# Limits


class SmallEtcd(EtcdServer):
    def command(self) -> list[str]:
        return [*super().command(), "--quota-backend-bytes=20000000"]


def test_what_is_repeated_on_a_full_etcd_says_what_an_operator_has_to_do(tmp_path: Path) -> None:
    with SmallEtcd(tmp_path) as small:
        url = small.url_for("/app", request_timeout="1s")
        with coordlock.connect(url) as client, client.lock("x"):
            queue, counter, latch = (
                client.work_queue("q"),
                client.counter("c"),
                client.latch("l", 2),
            )
            queue.put(b"before it is full")
            with suppress(CalledProcessError):
                for number in range(100):
                    small.etcdctl("put", f"/filler/{number}", stdin="x" * 1_000_000)
            writes: dict[str, Callable[[], object]] = {
                "try": client.lock("y").try_acquire,
                "put": lambda: queue.put(b"data"),
                "add": lambda: counter.add(1),
                "count down": latch.count_down,
                "set": lambda: client.value("/v").set(b"1"),
            }
            for name, write in writes.items():
                with pytest.raises(BackendError) as raised:
                    write()
                assert "etcdctl alarm disarm" in str(raised.value), name


def test_a_commit_that_fills_the_database_does_not_claim_that_nothing_was_written(
    tmp_path: Path,
) -> None:
    """etcd applies what takes the last of its space, and answers as if it had not."""

    def fill(url: str, number: int) -> None:
        with coordlock.connect(url) as client, client.lock(f"filler-{number}") as grant:
            for turn in range(200):
                grant.transaction().put(f"/data/{number}/{turn}", b"x" * 400_000).commit()

    with SmallEtcd(tmp_path) as small, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(fill, small.url, number) for number in range(8)]:
            with pytest.raises(BackendUnavailable, match=r"alarm disarm.* may have been made"):
                done.result(60)


def test_more_operations_than_the_server_takes_are_an_error_that_names_its_option(
    client: coordlock.Client, key: str
) -> None:
    with client.lock("orders") as grant:
        most, more = grant.transaction(), grant.transaction().put(f"{key}/128", b"x")
        for number in range(128):
            most.put(f"{key}/{number}", b"x")
            more.put(f"{key}/{number}", b"y")
        most.commit()
        with pytest.raises(TooLarge, match="--max-txn-ops"):
            more.commit()
        assert grant.read(f"{key}/128") is None
        assert grant.read(f"{key}/127") == VersionedValue(b"x", 1)


@pytest.mark.parametrize("size", [1_600_000, 3_000_000])
def test_more_data_than_the_server_takes_is_an_error_that_names_its_option(
    client: coordlock.Client, key: str, size: int
) -> None:
    with client.lock("orders") as grant:
        grant.transaction().put(key, b"x" * 1_500_000).commit()
        with pytest.raises(TooLarge, match="--max-request-bytes"):
            grant.transaction().put(key, b"x" * size).commit()
        assert grant.read(key) == VersionedValue(b"x" * 1_500_000, 1)


# Answers from the past


def test_an_answer_older_than_what_was_seen_is_refused(
    etcd: Etcd, join: Join, root: str, key: str
) -> None:
    """As members before 3.4.42 give it after a pause; here the client has seen the future."""
    party = join(etcd.url_for(root))
    _, contender, _ = party.enqueue("q")
    backend = party.backend
    assert isinstance(backend, EtcdBackend)
    backend.write([Put(key, b"x")], [contender]).result(BOUND)
    assert backend.read(key, guard=contender).result(BOUND).values == {key: VersionedValue(b"x", 1)}
    backend._connection.cluster.saw(backend._connection.cluster.revision + 10**6)
    assert isinstance(backend.read(key, guard=contender).exception(BOUND), BackendUnavailable)
    # So are those to writes: a restored etcd grants what clients believe to hold.
    assert isinstance(backend.evict(contender).exception(BOUND), BackendUnavailable)
    # Of the past one cannot tell either who has gone.
    assert isinstance(backend.read(key, guard=contender).exception(BOUND), BackendUnavailable)


def test_who_hears_of_a_departure_accepts_no_answer_from_before(
    etcd: Etcd, join: Join, root: str
) -> None:
    one, two = join(etcd.url_for(root)), join(etcd.url_for(root))
    entry, _, _ = one.enqueue("q")
    _, contender, snapshot = two.enqueue("q")
    assert isinstance(one.backend, EtcdBackend)
    assert isinstance(two.backend, EtcdBackend)
    cluster = two.backend._connection.cluster
    told, seen = threading.Event(), []

    def departed(_: Departure) -> None:
        seen.append(cluster.revision)
        told.set()

    two.backend.watch(snapshot.before(contender)[0], snapshot.revision, departed)
    etcd.etcdctl("put", f"{root}-data", "before")
    assert one.backend.withdraw([entry]).result(BOUND)
    assert told.wait(BOUND)
    assert seen[0] >= one.backend._connection.cluster.revision > snapshot.revision


# Rights


def test_a_key_that_the_user_has_no_right_to_is_refused_and_nothing_is_written(
    server: EtcdServer, root: str
) -> None:
    allowed, forbidden = f"/coordlock/data{root}", f"/forbidden{root}"
    with (
        coordlock.connect(server.url_for(f"/coordlock{root}")) as client,
        client.lock("orders") as grant,
    ):
        with pytest.raises(AuthenticationFailed, match="each key of a transaction"):
            grant.read(forbidden)
        for refused in (
            grant.transaction().put(allowed, b"x").put(forbidden, b"x"),
            grant.transaction().put(allowed, b"x").expect(forbidden, 0),
            grant.transaction().put(allowed, b"x").delete(forbidden),
        ):
            with pytest.raises(AuthenticationFailed, match="each key of a transaction"):
                refused.commit()
        assert grant.read(allowed) is None
        grant.transaction().put(allowed, b"x").commit()
        server.etcdctl("role", "grant-permission", "locker", "readwrite", forbidden)
        grant.transaction().put(forbidden, b"x").commit()
        assert grant.read(forbidden) == VersionedValue(b"x", 1)


def test_a_commit_with_a_token_of_the_past_is_made_once(server: EtcdServer, root: str) -> None:
    """etcd refuses it before it does anything, so after a new login it is sent again."""
    key = f"/coordlock/data{root}"
    with (
        coordlock.connect(server.url_for(f"/coordlock{root}")) as client,
        client.lock("orders") as grant,
    ):
        for number in range(1, 4):
            server.etcdctl("role", "add", f"role{root}{number}".replace("/", "-"))
            grant.transaction().put(key, b"x").commit()
            assert grant.read(key) == VersionedValue(b"x", number)


# Messages that come late


# Several members
