"""Elections with candidates of other programs: ``etcdctl elect``, kazoo's and Curator's recipes."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.curator import Curator
from testbed.servers.etcd import Etcd
from testbed.servers.zookeeper import ZooKeeper
from tests.docs.pages import blocks

BOUND = 60.0

Start = Callable[..., Future[Any]]
Etcdctl = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


def values(election: coordlock.Election) -> list[bytes]:
    return [one.value for one in election.candidates()]


def leads(election: coordlock.Election, value: bytes) -> None:
    """Wait until the candidate with ``value`` leads."""
    eventually(lambda: values(election)[:1] == [value])


# etcdctl


@pytest.fixture
def on_etcd(etcd: Etcd, root: str) -> Iterator[coordlock.Election]:
    with coordlock.connect(etcd.url_for(root)) as client:
        yield client.election("scheduler", b"coordlock", timeout=BOUND)


@pytest.fixture
def etcdctl(etcd: Etcd, root: str) -> Iterator[Etcdctl]:
    """Starts ``etcdctl elect``; SIGTERM ends it."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            etcd.etcdctl_command("elect", f"{root}/scheduler", *words),
            env=etcd.etcdctl_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_etcdctl_and_coordlock_lead_in_turn(
    on_etcd: coordlock.Election, etcdctl: Etcdctl, root: str, start: Start
) -> None:
    term = on_etcd.campaign()
    process = etcdctl("theirs")
    eventually(lambda: values(on_etcd) == [b"coordlock", b"theirs"])
    term.publish(b"coordlock, still")
    assert process.poll() is None
    term.resign()
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"{root}/scheduler/")
    assert process.stdout.readline() == "theirs\n"
    leader = on_etcd.leader()
    assert leader is not None
    assert leader.value == b"theirs"
    assert (leader.token or 0) > term.token
    again = start(on_etcd.campaign, b"again")
    eventually(lambda: values(on_etcd) == [b"theirs", b"again"])
    process.send_signal(signal.SIGTERM)
    with again.result(BOUND):
        leads(on_etcd, b"again")


def test_etcdctl_listens_to_coordlocks_terms(on_etcd: coordlock.Election, etcdctl: Etcdctl) -> None:
    heard: list[str] = []
    listening = etcdctl("--listen")
    assert listening.stdout is not None
    reader = threading.Thread(target=lambda: heard.extend(listening.stdout or ()))
    with on_etcd.campaign(b"one") as term:
        reader.start()
        eventually(lambda: heard[1::2] == ["one\n"])
        term.publish(b"uno")
        eventually(lambda: heard[1::2] == ["one\n", "uno\n"])
    with on_etcd.campaign(b"two"):
        eventually(lambda: heard[1::2] == ["one\n", "uno\n", "two\n"])
    listening.kill()
    reader.join()


def test_coordlock_observes_etcdctls_terms(
    on_etcd: coordlock.Election, etcdctl: Etcdctl, root: str
) -> None:
    with on_etcd.observe() as leaders:
        assert leaders.next(BOUND) is None
        process = etcdctl("theirs")
        leader = leaders.next(BOUND)
        assert leader is not None
        assert leader.value == b"theirs"
        # It prints its key once it leads. Before that, SIGTERM leaves the key for a minute.
        assert process.stdout is not None
        assert process.stdout.readline().startswith(root)
        process.send_signal(signal.SIGTERM)
        assert leaders.next(BOUND) is None


# kazoo


@pytest.fixture
def on_zookeeper(zookeeper: ZooKeeper, root: str) -> Iterator[coordlock.Election]:
    with coordlock.connect(zookeeper.url_for(root)) as client:
        yield client.election("scheduler", b"coordlock", timeout=BOUND)


@pytest.fixture
def kazoo(zookeeper: ZooKeeper) -> Iterator[Any]:
    with zookeeper.kazoo() as kazoo:
        yield kazoo


def test_kazoos_election_and_coordlock_lead_in_turn(
    on_zookeeper: coordlock.Election, kazoo: Any, root: str, start: Start
) -> None:
    path = f"{root}/scheduler"
    kazoo.ensure_path(path)
    theirs, stop, led = kazoo.Election(path, "theirs"), threading.Event(), threading.Event()

    def lead() -> None:
        led.set()
        stop.wait(BOUND)

    term = on_zookeeper.campaign()
    running = start(theirs.run, lead)
    eventually(lambda: values(on_zookeeper) == [b"coordlock", b"theirs"])
    assert theirs.contenders() == ["coordlock", "theirs"]
    term.publish(b"coordlock, still")
    assert theirs.contenders() == ["coordlock, still", "theirs"]
    assert not led.is_set()
    term.resign()
    assert led.wait(BOUND)
    leads(on_zookeeper, b"theirs")
    again = start(on_zookeeper.campaign, b"again")
    eventually(lambda: values(on_zookeeper) == [b"theirs", b"again"])
    assert not again.done()
    stop.set()
    running.result(BOUND)
    with again.result(BOUND):
        leads(on_zookeeper, b"again")


# Curator


@pytest.fixture(scope="module")
def curator(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[Curator]:
    [driver] = [one for one in blocks("docs/backends/zookeeper.md") if one.language == "java"]
    with Curator(tmp_path_factory.mktemp("curator"), zookeeper, driver.text) as curator:
        yield curator


def test_curators_latch_and_coordlock_lead_in_turn(
    zookeeper: ZooKeeper, curator: Curator, root: str, start: Start
) -> None:
    url = zookeeper.url_for(root, nodes="curator-latch")
    with coordlock.connect(url) as client:
        election = client.election("scheduler", b"coordlock", timeout=BOUND)
        with election.campaign():
            theirs = curator.lock("LeaderLatch", f"{root}/scheduler")
            elected = theirs.ask()
            eventually(lambda: values(election) == [b"coordlock", b"curator"])
            assert not elected.done()
        assert elected.result(BOUND) == "granted"
        leads(election, b"curator")
        again = start(election.campaign, b"again")
        eventually(lambda: values(election) == [b"curator", b"again"])
        assert not again.done()
        theirs.release()
        with again.result(BOUND):
            leads(election, b"again")
