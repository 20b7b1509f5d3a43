"""Under faults at random, every view is a state that was, in order, and knows how old it is."""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_right
from typing import Final, Self

import pytest
from coordlock_zookeeper import ZookeeperBackend

from coordlock.backend import Delete, Listing, Observation, Put, View
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock.testing.proxy import FaultProxy
from coordlock.testing.waiting import eventually
from testbed.servers.zookeeper import ZooKeeper
from tests.integration.disturbing import disturbed
from tests.integration.zookeeper.conftest import BOUND, Parties

pytestmark = pytest.mark.faults

#: For how many seconds there are faults.
DURATION: Final = 10.0
NAMES: Final = "abcdefgh"

State = dict[str, bytes]


class Writer:
    """Changes some of the keys of a folder, again and again, each time in one transaction."""

    def __init__(self, backend: ZookeeperBackend, folder: str, chance: random.Random) -> None:
        self._backend, self._folder, self._chance = backend, folder, chance
        #: By their revisions: when each was acknowledged, and what it did; None deletes.
        self.writes: dict[int, tuple[float, dict[str, bytes | None]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        chance = self._chance
        while not self._ended.wait(chance.choice([0, 0, 0.001, 0.01, 0.05])):
            changes: dict[str, bytes | None] = {}
            for name in chance.sample(NAMES, chance.randint(1, 3)):
                value = chance.randbytes(8) + b"x" * chance.choice([0, 10, 10_000])
                changes[self._folder + name] = chance.choice([value, value, None])
            operations = [
                Delete(key) if value is None else Put(key, value) for key, value in changes.items()
            ]
            revision = self._backend.write(operations).result(BOUND)
            self.writes[revision] = SYSTEM_CLOCK.now(), changes

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class History:
    """The states that a folder had, by the revisions of all that was written."""

    def __init__(self, *writers: Writer) -> None:
        writes = {rev: done for one in writers for rev, done in one.writes.items()}
        self.revisions = sorted(writes)
        self._states: list[State] = [{}]
        for revision in self.revisions:
            state: State = dict(self._states[-1])
            for key, value in writes[revision][1].items():
                state.pop(key, None)
                if value is not None:
                    state[key] = value
            self._states.append(state)
        self._acknowledged = {revision: writes[revision][0] for revision in self.revisions}

    def at(self, revision: int) -> State:
        return self._states[bisect_right(self.revisions, revision)]

    def known_at(self, moment: float) -> int:
        """The newest revision that was acknowledged before ``moment``."""
        known = (rev for rev, when in self._acknowledged.items() if when < moment)
        return max(known, default=0)


def check(views: list[View[Listing]], history: History) -> None:
    """Whether the views, in the order in which they were seen, are what is promised."""
    last = 0
    for view in views:
        if view.state is None:
            continue
        revision = view.state.revision
        assert revision >= last, "an older state after a newer"
        last = revision
        shown = {key: one.data for key, one in view.state.values.items()}
        assert shown == history.at(revision), "no state that was"
        if view.stale_since is not None:
            missed = history.at(history.known_at(view.stale_since))
            assert revision >= history.known_at(view.stale_since) or shown == missed


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_whatever_breaks_observers_know_what_they_see(
    zookeeper: ZooKeeper, parties: Parties, proxy: FaultProxy, root: str, seed: int
) -> None:
    chance = random.Random(seed)
    url = f"zookeeper://127.0.0.1:{proxy.port}{root}?ttl=3s"
    observer = parties(url, opened=False).backend
    writers = [parties(zookeeper.url_for(root), opened=False).backend for _ in range(2)]
    folder = f"{root}-data/"
    views: list[View[Listing]] = []
    seen: list[Observation[Listing]] = []

    def look() -> None:
        if seen:
            views.append(seen[0].view)

    seen.append(observer.follow(folder, look))
    with (
        Writer(writers[0], folder, random.Random(seed)) as one,
        Writer(writers[1], folder, random.Random(seed + 1000)) as two,
        disturbed(proxy, chance),
    ):
        time.sleep(DURATION)
    history = History(one, two)
    newest = history.at(history.revisions[-1])

    def is_up_to_date() -> bool:
        view = seen[0].view
        return (
            view.stale_since is None
            and view.state is not None
            and {key: value.data for key, value in view.state.values.items()} == newest
        )

    eventually(is_up_to_date)
    check(views, history)
    assert len({view.state.revision for view in views if view.state is not None}) > 1
    assert any(view.stale_since is not None for view in views)
    assert {k: v.data for k, v in observer.read(folder).result(BOUND).values.items()} == newest
