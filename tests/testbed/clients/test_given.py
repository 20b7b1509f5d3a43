"""What coordlock leaves behind in a client that it was given is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from coordlock_faults.journal import Journal, read
from coordlock_faults.leaks import leaks

import coordlock
from coordlock.testing.connection import Connection
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.zookeeper_frames import ZooKeeperFrames
from testbed.clients import given
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "_PATIENCE", 1.0)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "c1.jsonl", "c1") as journal:
        yield journal


def found(tmp_path: Path) -> list[str]:
    return [one.what for one in leaks(read([tmp_path / "c1.jsonl"]))]


def test_a_session_that_has_nothing_of_a_closed_client_is_right(
    zookeeper: ZooKeeper, root: str, journal: Journal, tmp_path: Path
) -> None:
    url = zookeeper.url_for(root, ttl="10s")
    theirs = given.start(url, 1)
    with (
        coordlock.connect(url, client=theirs.client) as client,
        coordlock.connect(url, client=theirs.client) as other,
    ):
        client.lock("a").acquire()
        other.lock("b").acquire()
        [first], [second] = client.admin.contenders("a"), client.admin.contenders("b")
        assert first.session == second.session
    theirs.end(journal)
    assert not theirs.client.connected
    assert found(tmp_path) == []


def test_a_contender_that_is_left_in_the_session_is_found(
    zookeeper: ZooKeeper, root: str, journal: Journal, tmp_path: Path
) -> None:
    theirs = given.start(zookeeper.url_for(root), 1)
    theirs.client.create(f"{root}/q/left", ephemeral=True, makepath=True)
    theirs.end(journal)
    assert [what.partition(":")[0] for what in found(tmp_path)] == [
        "contenders in what was given to c1"
    ]


def test_a_listener_that_is_left_is_found(
    zookeeper: ZooKeeper, root: str, journal: Journal, tmp_path: Path
) -> None:
    theirs = given.start(zookeeper.url_for(root), 1)
    theirs.client.add_listener(lambda _: None)
    theirs.end(journal)
    assert [what.partition(":")[0] for what in found(tmp_path)] == [
        "listeners in what was given to c1"
    ]


def test_a_client_that_was_stopped_is_found(
    zookeeper: ZooKeeper, root: str, journal: Journal
) -> None:
    theirs = given.start(zookeeper.url_for(root), 1)
    theirs.client.stop()
    theirs.client.close()
    with pytest.raises(TimeoutError, match="go on"):
        theirs.end(journal)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_whose_thread_has_died_is_started_again(
    zookeeper: ZooKeeper, root: str, journal: Journal
) -> None:
    with FaultProxy(zookeeper.host, zookeeper.port, ZooKeeperFrames) as proxy:
        url = f"zookeeper://127.0.0.1:{proxy.port}{root}"
        theirs = given.start(url, 1)
        session = theirs.client.client_id
        with coordlock.connect(url, client=theirs.client) as client:
            trap = proxy.on_request("create2", Connection.omit_reply)
            client.lock("a").acquire().release()
            assert trap.sprung
        assert theirs.client.client_id != session
        theirs.end(journal)


def test_a_channel_that_is_open_is_right(etcd: Etcd, root: str, journal: Journal) -> None:
    url = etcd.url_for(root)
    theirs = given.start(url, 1)
    with coordlock.connect(url, client=theirs.client) as client:
        client.lock("a").acquire()
    theirs.end(journal)


def test_a_channel_that_was_closed_is_found(etcd: Etcd, root: str, journal: Journal) -> None:
    theirs = given.start(etcd.url_for(root), 1)
    theirs.client.channel.close()
    with pytest.raises(ValueError, match="closed channel"):
        theirs.end(journal)


def test_where_no_client_can_be_given_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        given.start("memory://any", 1)
