"""coordlock and ``etcdctl lock`` exclude each other on the same prefix, in either order."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import coordlock
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd

QUEUE = "orders"


@pytest.fixture
def client(etcd: Etcd, root: str) -> Iterator[coordlock.Client]:
    with coordlock.connect(etcd.url_for(root)) as client:
        yield client


@pytest.fixture
def etcdctl_lock(etcd: Etcd, root: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``etcdctl lock``, which prints its key when it holds and releases on SIGTERM."""
    started: list[subprocess.Popen[str]] = []

    def start(path: str = f"{root}/{QUEUE}") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            etcd.etcdctl_command("lock", path, "--ttl=60"),
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


def length(client: coordlock.Client) -> int:
    return len(client.admin.contenders(QUEUE))


def key_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_holding_etcdctl_excludes_every_mode_but_null(
    client: coordlock.Client, etcdctl_lock: Callable[..., subprocess.Popen[str]], root: str
) -> None:
    process = etcdctl_lock()
    assert key_of(process).startswith(f"{root}/{QUEUE}/")
    for mode in coordlock.Mode:
        grant = client.lock(QUEUE, mode=mode).try_acquire()
        assert (grant is not None) is (mode is coordlock.Mode.NL)
        if grant is not None:
            grant.release()
    process.send_signal(signal.SIGTERM)
    assert client.lock(QUEUE).acquire(60).release()


@pytest.mark.parametrize("mode", [mode for mode in coordlock.Mode if mode.name != "NL"], ids=str)
def test_a_holding_coordlock_excludes_etcdctl(
    client: coordlock.Client,
    etcdctl_lock: Callable[..., subprocess.Popen[str]],
    mode: coordlock.Mode,
) -> None:
    with client.lock(QUEUE, mode=mode) as grant:
        process = etcdctl_lock()
        eventually(lambda: length(client) == 2)
        first, second = client.admin.contenders(QUEUE)
        assert (first.token, first.holding, second.holding) == (grant.token, True, False)
        # It has been queued behind ours, and told to wait, before it could print its key.
        assert process.poll() is None
    assert second.contender.key == key_of(process)
    assert [one.holding for one in client.admin.contenders(QUEUE)] == [True]


def test_a_mixed_queue_is_served_in_order(
    client: coordlock.Client, etcdctl_lock: Callable[..., subprocess.Popen[str]]
) -> None:
    with ThreadPoolExecutor() as pool:
        with client.lock(QUEUE):
            first = etcdctl_lock()
            eventually(lambda: length(client) == 2)
            ours = pool.submit(client.lock(QUEUE).acquire, 60)
            eventually(lambda: length(client) == 3)
            last = etcdctl_lock()
            eventually(lambda: length(client) == 4)
        tokens = [one.token for one in client.admin.contenders(QUEUE) if one.token]
        assert key_of(first)
        assert not ours.done()
        first.send_signal(signal.SIGTERM)
        grant = ours.result(60)
        assert grant.token == tokens[1]
        assert grant.release()
        assert key_of(last)


# At the top, and without a slash before the name, as in etcd's documentation: etcdctl lock mutex1


@pytest.mark.parametrize(
    ("place", "options", "path"),
    [
        ("/", {}, "/{}"),
        ("/", {"leading_slash": "false"}, "{}"),
        ("/{}", {"leading_slash": "false"}, "{}/orders"),
    ],
    ids=["the top", "the top without a slash", "a root without a slash"],
)
def test_wherever_etcdctl_locks_they_exclude_each_other(
    etcd: Etcd,
    etcdctl_lock: Callable[..., subprocess.Popen[str]],
    root: str,
    place: str,
    options: dict[str, str],
    path: str,
) -> None:
    own = root.strip("/")  # the top is shared with other tests
    path, name = path.format(own), own if place == "/" else QUEUE
    with coordlock.connect(etcd.url_for(place.format(own), **options)) as client:
        first = etcdctl_lock(path)
        assert key_of(first).startswith(f"{path}/")
        assert client.lock(name).try_acquire() is None
        assert client.admin.names().count(name) == 1
        first.send_signal(signal.SIGTERM)
        with client.lock(name, timeout=60):
            second = etcdctl_lock(path)
            eventually(lambda: len(client.admin.contenders(name)) == 2)
            assert [one.holding for one in client.admin.contenders(name)] == [True, False]
            assert second.poll() is None
        assert key_of(second).startswith(f"{path}/")
