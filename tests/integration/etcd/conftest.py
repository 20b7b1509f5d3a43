from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from coordlock_etcd import EtcdBackend

from coordlock.config import configure
from coordlock.testing.backend_contract import BOUND, Party

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

    def make(url: str) -> Party:
        parties.append(Party(EtcdBackend.configure(configure(url))))
        return parties[-1]

    yield make
    for party in parties:
        party.backend.close().result(BOUND)
