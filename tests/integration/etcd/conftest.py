from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.request import urlopen

import grpc
import pytest
from coordlock_etcd import EtcdBackend

from coordlock.backend.config import configure
from coordlock.runtime.clock import SystemTimers
from coordlock.testing.backend_contract import BOUND, Party
from coordlock.testing.grpc_frames import GrpcFrames
from coordlock.testing.proxy import FaultProxy
from testbed.servers.etcd import Etcd

#: Makes a backend with an open session from a URL; it is closed after the test.
Join = Callable[[str], Party]


class EtcdClient:
    """What is used of an ``etcd3.Etcd3Client``: a channel, and the metadata of its calls.

    The library itself cannot be installed beside a current protobuf; the install matrix has it.
    """

    def __init__(self, host: str, port: int) -> None:
        self.channel = grpc.insecure_channel(f"{host}:{port}")
        self.metadata: tuple[tuple[str, str], ...] | None = None


@pytest.fixture
def join(no_leaks: None) -> Iterator[Join]:
    parties: list[Party] = []
    timers = SystemTimers("coordlock-test")

    def make(url: str) -> Party:
        parties.append(Party(EtcdBackend.configure(configure(url), timers=timers)))
        return parties[-1]

    yield make
    for party in parties:
        party.backend.close().result(BOUND)
    timers.close()  # as a client does; its thread would end seconds later


@pytest.fixture
def proxy(etcd: Etcd) -> Iterator[FaultProxy]:
    with FaultProxy(etcd.host, etcd.port, GrpcFrames) as proxy:
        yield proxy


@pytest.fixture
def party(join: Join, proxy: FaultProxy, root: str) -> Party:
    """Through the proxy."""
    return join(f"etcd://127.0.0.1:{proxy.port}{root}?ttl=60s")


def watches_in(etcd: Etcd) -> int:
    """How many watches the server has, by its own account."""
    with urlopen(f"http://{etcd.endpoint.hosts[0]}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    [count] = [one for one in lines if one.startswith("etcd_debugging_mvcc_watcher_total ")]
    return int(count.split()[1])


def keys(etcd: Etcd, root: str) -> list[str]:
    """Those that etcd has below the root."""
    return etcd.etcdctl("get", "--prefix", "--keys-only", f"{root}/").split()


def begin_anew(party: Party, etcd: Etcd, root: str) -> None:
    """Open another session, while the one contender of the session before lives on in etcd."""
    [key] = keys(etcd, root)
    lease = etcd.etcdctl("lease", "grant", "600").split()[1]
    etcd.etcdctl("put", f"--lease={lease}", key, "unchanged")
    party.backend.open(party.listener).result(BOUND)
