from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.config import configure
from coordlock.testing.backend_contract import BOUND, Party

#: Makes a backend with an open session from a URL; it is closed after the test.
Join = Callable[[str], Party]


@pytest.fixture
def join(no_leaks: None) -> Iterator[Join]:
    parties: list[Party] = []

    def make(url: str) -> Party:
        parties.append(Party(EtcdBackend.configure(configure(url))))
        return parties[-1]

    yield make
    for party in parties:
        party.backend.close().result(BOUND)
