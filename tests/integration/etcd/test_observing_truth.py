"""Under faults at random, observers see states that were, in order, and know how old those are."""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left
from typing import Final, Self

import pytest
from coordlock_etcd import EtcdBackend

from coordlock.backend import Listing, Observation, Put
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.testing.backend_contract import BOUND
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.etcd import Etcd
from tests.integration.disturbing import disturbed
from tests.integration.etcd.conftest import Join

pytestmark = pytest.mark.faults

#: For how many seconds there are faults.
DURATION: Final = 10.0
NAMES: Final = "abcde"


class Writer:
    """Writes ever higher numbers to all keys of a folder, each in one transaction."""

    def __init__(self, backend: EtcdBackend, folder: str, chance: random.Random) -> None:
        self._backend, self._folder, self._chance = backend, folder, chance
        #: When the number 1 was acknowledged, 2, and so on.
        self.acknowledged: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._ended.wait(self._chance.choice([0, 0, 0.001, 0.01, 0.05])):
            number = len(self.acknowledged) + 1
            value = b"%d " % number + b"x" * self._chance.choice([0, 10, 30_000])
            writes = [Put(self._folder + name, value) for name in NAMES]
            self._backend.write(writes).result(BOUND)
            self.acknowledged.append(SYSTEM_CLOCK.now())

    def known_at(self, moment: float) -> int:
        """The number that was acknowledged last before ``moment``."""
        return bisect_left(self.acknowledged, moment)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class Judge:
    """Looks at an observation, again and again."""

    def __init__(self, observed: Observation[Listing], writer: Writer) -> None:
        self._observed, self._writer = observed, writer
        self._number = 0
        self.stale = 0

    def look(self) -> None:
        view = self._observed.view
        if view.state is None:
            return
        numbers = [int(one.data.split()[0]) for one in view.state.values.values()]
        assert len(numbers) in (0, len(NAMES))
        assert len(set(numbers)) <= 1, "half of a revision"
        number = max(numbers, default=0)
        assert number >= self._number, "an older state after a newer"
        self._number = number
        if view.stale_since is not None:
            self.stale += 1
            assert number >= self._writer.known_at(view.stale_since), "stale since earlier"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_whatever_breaks_observers_know_what_they_see(
    etcd: Etcd, join: Join, proxy: FaultProxy, root: str, seed: int
) -> None:
    chance = random.Random(seed)
    one = join(etcd.url_for(root, ttl="60s")).backend
    two = join(f"etcd://127.0.0.1:{proxy.port}{root}?ttl=3s&request_timeout=2s").backend
    assert isinstance(one, EtcdBackend)
    assert isinstance(two, EtcdBackend)

    folder = f"{root}-data/"
    with Writer(one, folder, random.Random(seed)) as writer:
        observed = two.follow(folder, lambda: None)
        judge = Judge(observed, writer)
        with disturbed(proxy, chance, [etcd.compact]):
            until = time.monotonic() + DURATION
            while time.monotonic() < until:
                judge.look()
                time.sleep(0.002)
    assert judge.stale
    newest = one.read(folder).result(BOUND).values
    eventually(lambda: observed.view.state is not None and observed.view.state.values == newest)
    eventually(lambda: observed.view.stale_since is None)
    judge.look()
